package archtest

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestFilesAndFunctionsKeepTheirBudget(t *testing.T) {
	t.Parallel()
	bad, err := CheckBudget(os.DirFS(root(t)), Exceptions)
	require.NoError(t, err)
	require.Empty(t, bad)
}

// goFile is a file of so many lines that declares what it is given.
func goFile(lines int, declarations string) *fstest.MapFile {
	text := "package p\n\n" + declarations
	return &fstest.MapFile{Data: []byte(text + strings.Repeat("\n", lines-strings.Count(text, "\n")))}
}

// function is one of so many lines.
func function(head string, lines int) string {
	return head + " {\n" + strings.Repeat("\t_ = 0\n", lines-2) + "}\n"
}

func TestWhatIsTooLongIsFound(t *testing.T) {
	t.Parallel()
	tree := fstest.MapFS{
		"long.go":                  goFile(401, ""),
		"full.go":                  goFile(400, function("func full()", 70)+function("func over()", 71)),
		"a/methods_test.go":        goFile(300, function("func (t *T) Over()", 71)+function("func (t G[K, V]) Over()", 72)+function("func (t *H[K]) Over()", 73)),
		"a/excused.go":             goFile(500, function("func excused()", 90)),
		".git/long.go":             goFile(500, ""),
		"_old/long.go":             goFile(500, ""),
		"a/testdata/fuzz/F/not.go": {Data: []byte("no Go at all")},
	}
	bad, err := CheckBudget(tree, map[string]Exception{
		"a/excused.go":         {Lines: 450, Reason: "it is worth it"},
		"a/excused.go excused": {Lines: 90},
		"full.go":              {Lines: 500, Reason: "was longer once"},
		"gone.go":              {Lines: 500, Reason: "was there once"},
	})
	require.NoError(t, err)
	require.Equal(t, []string{
		"a/excused.go has 500 lines: its exception is for 450",
		"a/methods_test.go G.Over has 72 lines: want at most 70",
		"a/methods_test.go H.Over has 73 lines: want at most 70",
		"a/methods_test.go T.Over has 71 lines: want at most 70",
		"full.go has 400 lines and needs no exception any more",
		"full.go over has 71 lines: want at most 70",
		"long.go has 401 lines: want at most 400",
		"a/excused.go excused has an exception without a reason",
		"gone.go has an exception and is not there",
	}, bad)

	_, err = CheckBudget(fstest.MapFS{"bad.go": {Data: []byte("no Go at all")}}, nil)
	require.ErrorContains(t, err, "bad.go")
}
