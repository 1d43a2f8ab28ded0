package script

import (
	"io/fs"
	"os"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const goodHeader = `-- move: moves a job
-- KEYS: sessions due
-- ARGV: session number, then per item: id; when
-- ANSWER: OK codes | AGAIN codes
-- More to say about it.
local sessions, due = unpack(KEYS)
return {'OK'}
`

func loadText(text string) (*Script, error) {
	return Load(fstest.MapFS{"x.lua": {Data: []byte(text)}}, "x.lua")
}

func TestHeaderIsReadWhole(t *testing.T) {
	t.Parallel()
	s, err := loadText(goodHeader)
	require.NoError(t, err)
	assert.Equal(t, Header{
		Name: "move", About: "moves a job", Keys: []string{"sessions", "due"},
		Args:   []string{"session", "number", "then", "per", "item:", "id", "when"},
		Answer: "OK codes | AGAIN codes",
	}, s.Header)
	assert.True(t, s.Numbered())
	assert.Equal(t, goodHeader, s.Body())
	assert.Equal(t, goodHeader, s.Source(), "the body uses nothing of the library")
	assert.Len(t, s.SHA(), 40)
}

func TestBeforeABodyStandsWhatItUsesOfLibraries(t *testing.T) {
	t.Parallel()
	tree := fstest.MapFS{"x.lua": {Data: []byte(goodHeader + "b(1) -- and not d\n")}}
	plain, err := Load(tree, "x.lua")
	require.NoError(t, err)
	more, err := Load(tree, "x.lua", "-- a is for b\nlocal a = 1\nlocal c = 2\n", "-- b adds\nlocal function b(n)\n  return n + a -- not c\nend\n\nlocal d = 3\n")
	require.NoError(t, err)
	assert.Equal(t, "local a = 1\nlocal function b(n)\n  return n + a -- not c\nend\n\n"+plain.Body(), more.Source())
	assert.NotEqual(t, plain.SHA(), more.SHA())
}

func TestOnlySessionAndNumberFirstMakeAScriptNumbered(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]bool{
		"session number": true, "session number seen": true,
		"number session": false, "session": false, "cursor session number": false, "none": false,
	} {
		s, err := loadText("-- a: b\n-- KEYS: sessions\n-- ARGV: " + args + "\n-- ANSWER: OK\nlocal sessions = unpack(KEYS)\n")
		require.NoError(t, err, args)
		assert.Equal(t, want, s.Numbered(), args)
	}
}

func TestEachMistakeInAHeaderIsRefused(t *testing.T) {
	t.Parallel()
	const rest = "-- KEYS: sessions\n-- ARGV: none\n-- ANSWER: OK\nlocal sessions = unpack(KEYS)\n"
	for name, mistake := range map[string]struct{ text, want string }{
		"empty":                    {"", "the first line must be"},
		"no name":                  {"-- KEYS: sessions\n-- ARGV: none\n-- ANSWER: OK\nlocal sessions = unpack(KEYS)\n", "needs KEYS"},
		"name without a purpose":   {"-- move\n" + rest, "the first line must be"},
		"no KEYS":                  {"-- a: b\n-- ARGV: none\n-- ANSWER: OK\nlocal  = unpack(KEYS)\n", "needs KEYS"},
		"no ARGV":                  {"-- a: b\n-- KEYS: due\n-- ANSWER: OK\nlocal due = unpack(KEYS)\n", "needs KEYS, ARGV and ANSWER"},
		"no ANSWER":                {"-- a: b\n-- KEYS: due\n-- ARGV: none\nlocal due = unpack(KEYS)\n", "needs KEYS, ARGV and ANSWER"},
		"a key that is none":       {"-- a: b\n-- KEYS: queue\n-- ARGV: none\n-- ANSWER: OK\nlocal queue = unpack(KEYS)\n", `"queue"`},
		"a key with a comma":       {"-- a: b\n-- KEYS: due, dead\n-- ARGV: none\n-- ANSWER: OK\nlocal due, dead = unpack(KEYS)\n", `"due,"`},
		"code binds another order": {"-- a: b\n-- KEYS: due dead\n-- ARGV: none\n-- ANSWER: OK\nlocal dead, due = unpack(KEYS)\n", `want "local due, dead = unpack(KEYS)"`},
		"code binds fewer":         {"-- a: b\n-- KEYS: due dead\n-- ARGV: none\n-- ANSWER: OK\nlocal due = unpack(KEYS)\n", `want "local due, dead = unpack(KEYS)"`},
		"code before the binding":  {"-- a: b\n-- KEYS: due\n-- ARGV: none\n-- ANSWER: OK\nlocal x = 1\nlocal due = unpack(KEYS)\n", `"local x = 1"`},
		"blank line in the header": {"-- a: b\n\n" + rest, "needs KEYS"},
		"no code at all":           {"-- a: b\n-- KEYS: due\n-- ARGV: none\n-- ANSWER: OK", `the first line of code is ""`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := loadText(mistake.text)
			require.ErrorContains(t, err, mistake.want)
			require.ErrorContains(t, err, "x.lua", "the file is named")
		})
	}
}

func TestEveryMistakeIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	_, err := loadText("-- a: b\n-- KEYS: queue list\n-- ARGV: none\nlocal x\n")
	for _, want := range []string{`"queue"`, `"list"`, "ANSWER", `"local x"`} {
		assert.ErrorContains(t, err, want)
	}
}

func TestScriptsOfThisPackageAreSound(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, s := range Own() {
		names["lua/"+s.Name+".lua"] = true
	}
	paths, err := fs.Glob(files, "lua/*.lua")
	require.NoError(t, err)
	for _, path := range paths {
		if path == "lua/lib.lua" {
			continue
		}
		assert.True(t, names[path], "%s is not listed by Own", path)
		_, err := Load(files, path)
		require.NoError(t, err)
	}
	assert.Len(t, paths, len(names)+1)
}

func TestAMissingFileIsAnErrorAndMustLoadPanics(t *testing.T) {
	t.Parallel()
	_, err := Load(os.DirFS("testdata"), "nothing.lua")
	require.ErrorIs(t, err, fs.ErrNotExist)
	assert.Panics(t, func() { MustLoad(os.DirFS("testdata"), "nothing.lua") })
	assert.Panics(t, func() { mustRead(os.DirFS("testdata"), "nothing.lua") })
}
