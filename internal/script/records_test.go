package script

import (
	"context"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redistest"
)

var markScript = MustLoad(os.DirFS("testdata"), "mark.lua")

// mark makes a call that counts in records, each in its turn.
func mark(records ...string) *Call {
	c := &Call{Op: "mark", Script: markScript, Records: records}
	for i := range records {
		c.Args = append(c.Args, strconv.Itoa(i+1))
	}
	return c
}

func (d *desk) marks(t *testing.T, record string) string {
	t.Helper()
	n, err := d.direct.HGet(context.Background(), record, "n").Result()
	require.NoError(t, err)
	return n
}

const recordHeader = "-- a: b\n-- KEYS: sessions due records…\n-- ARGV: none\n-- ANSWER: OK\n"

func TestAHeaderThatEndsInRecordsHasThemBoundInTheSecondLine(t *testing.T) {
	t.Parallel()
	s, err := loadText(recordHeader + "local sessions, due = unpack(KEYS)\nlocal records = {unpack(KEYS, 3)}\n")
	require.NoError(t, err)
	assert.Equal(t, []string{"sessions", "due"}, s.Keys)
	assert.True(t, s.Records)
	assert.False(t, countScript.Records)
	for body, want := range map[string]string{
		"local sessions, due = unpack(KEYS)\n":                                                `the second line of code is "": want "local records = {unpack(KEYS, 3)}"`,
		"local sessions, due = unpack(KEYS)\nlocal records = {unpack(KEYS, 2)}\n":             `want "local records = {unpack(KEYS, 3)}"`,
		"local sessions, due = unpack(KEYS)\n\nlocal records = {unpack(KEYS, 3)}\n":           "the second line of code is",
		"local sessions, due, records = unpack(KEYS)\nlocal records = {unpack(KEYS, 3)}\n":    "the first line of code is",
		"local records = {unpack(KEYS, 3)}\nlocal sessions, due = unpack(KEYS)\nreturn {}\n":  "the first line of code is",
		"local sessions, due = unpack(KEYS)\nlocal others = {unpack(KEYS, 3)}\nreturn {'OK'}": "the second line of code is",
	} {
		_, err := loadText(recordHeader + body)
		require.ErrorContains(t, err, want, body)
	}
	_, err = loadText("-- a: b\n-- KEYS: sessions records… due\n-- ARGV: none\n-- ANSWER: OK\nlocal sessions, records…, due = unpack(KEYS)\n")
	require.ErrorContains(t, err, `"records…"`, "only at the end")
	_, err = loadText("-- a: b\n-- KEYS: records…\n-- ARGV: none\n-- ANSWER: OK\nlocal  = unpack(KEYS)\nlocal records = {unpack(KEYS, 1)}\n")
	require.ErrorContains(t, err, "needs KEYS", "a script has fixed keys, too")
}

func TestRecordsFollowTheFixedKeys(t *testing.T) {
	t.Parallel()
	d := plainDesk(t)
	one, two := d.keys.Guard("one"), d.keys.Once("}two{")
	c := mark(one, two, one)
	require.NoError(t, d.Do(t.Context(), c))
	require.NoError(t, c.Err)
	assert.Equal(t, "4", c.Rest, "1 + 1 + 2: the same record may be named twice")
	assert.Equal(t, "2", d.marks(t, one))
	assert.Equal(t, "1", d.marks(t, two))

	none := mark()
	require.NoError(t, d.Do(t.Context(), none))
	require.NoError(t, none.Err, "none is fine, too")
	many := make([]string, MaxRecords)
	for i := range many {
		many[i] = d.keys.Once(strconv.Itoa(i))
	}
	most := mark(many...)
	require.NoError(t, d.Do(t.Context(), most))
	require.NoError(t, most.Err)
	assert.Equal(t, "1000", most.Rest)
	assert.Equal(t, 1003, d.stat(t, "marked"))
}

func TestRecordsOfUnnumberedCallsAreSentToo(t *testing.T) {
	t.Parallel()
	d := plainDesk(t)
	s, err := loadText("-- a: b\n-- KEYS: sessions records…\n-- ARGV: none\n-- ANSWER: OK\nlocal sessions = unpack(KEYS)\n" +
		"local records = {unpack(KEYS, 2)}\nreturn {'OK', unpack(records)}\n")
	require.NoError(t, err)
	req := &Request{Script: s, Records: []string{d.keys.Once("a"), d.keys.Guard("b")}}
	require.NoError(t, d.runner.Repeat(t.Context(), req))
	assert.Equal(t, []any{"OK", d.keys.Once("a"), d.keys.Guard("b")}, req.Reply)
}

func TestRecordsThatAreNotAllowedAreRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	d, proxy := faultyDesk(t, nil)
	first := count("x")
	require.NoError(t, d.Do(t.Context(), first)) // opens the session
	sent := proxy.Commands()
	stray := count("x")
	stray.Records = []string{d.keys.Once("a")}
	for name, c := range map[string]*Call{
		"a script without": stray,
		"another queue":    mark(d.keys.Once("a"), "leaseq:v1:{other}:once:a"),
		"a fixed key":      mark(d.key("jobs")),
		"an empty name":    mark(d.keys.Guard("")),
		"too many":         mark(slices.Repeat([]string{d.keys.Once("a")}, MaxRecords+1)...),
	} {
		require.NoError(t, d.Do(t.Context(), c), name)
		var refused *RecordError
		require.ErrorAs(t, c.Err, &refused, name)
		assert.Equal(t, c.Script.Name, refused.Script)
		require.Error(t, d.runner.CheckRecords(c.Script, c.Records), name)
	}
	beside := []*Call{count("x"), mark("elsewhere")}
	require.NoError(t, d.Do(t.Context(), beside[0]), "a second session for the pipeline")
	sent++
	require.NoError(t, d.Do(t.Context(), beside[1]))
	require.Error(t, beside[1].Err)
	assert.Equal(t, sent, proxy.Commands(), "nothing went out")
	assert.Equal(t, 2, d.stat(t, "x"))
	after := mark(d.keys.Once("a"))
	require.NoError(t, d.Do(t.Context(), after))
	require.NoError(t, after.Err, "the session is as good as before")
}

func TestARefusedRecordRefusesTheCallsOfTheSameRoundTrip(t *testing.T) {
	t.Parallel()
	d := plainDesk(t)
	calls := []*Call{count("x"), mark("elsewhere"), grab(2)}
	require.NoError(t, d.Do(t.Context(), calls...))
	for _, c := range calls {
		var refused *RecordError
		require.ErrorAs(t, c.Err, &refused)
	}
	assert.Zero(t, d.stat(t, "x"))
	assert.Zero(t, d.stat(t, "grabbed"))
}

func TestARepeatWithRecordsIsByteForByteTheSameAndDoesNothingTwice(t *testing.T) {
	t.Parallel()
	d, proxy := faultyDesk(t, withRepeats)
	require.NoError(t, d.direct.ScriptLoad(t.Context(), markScript.Source()).Err())
	one, two := d.keys.Guard("one"), d.keys.Once("two")
	var mu sync.Mutex
	var seen [][]string
	proxy.Decide(func(cmd []string) netfault.Action {
		if cmd[0] != "evalsha" || cmd[1] != markScript.SHA() {
			return netfault.Pass
		}
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, slices.Clone(cmd))
		if len(seen) <= 3 {
			return netfault.DropReply
		}
		return netfault.Pass
	})
	c := mark(one, two)
	require.NoError(t, d.Do(t.Context(), c))
	require.NoError(t, c.Err)
	assert.Equal(t, "2", c.Rest)
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, seen, 4)
	want := []string{
		"evalsha", markScript.SHA(), "4", d.key("sessions"), d.key("stats"), one, two,
		c.Session, strconv.FormatUint(c.Number, 10), "1", "2",
	}
	for _, cmd := range seen {
		assert.Equal(t, want, cmd)
	}
	assert.Equal(t, "1", d.marks(t, one))
	assert.Equal(t, "1", d.marks(t, two))
	assert.Equal(t, 2, d.stat(t, "marked"))
}

func TestForgottenScriptsWithRecordsAreSentWhole(t *testing.T) {
	t.Parallel()
	d := ownDesk(t, redistest.Server(t, nil), "", "")
	one := d.keys.Once("one")
	for want := 1; want <= 3; want++ {
		require.NoError(t, d.direct.ScriptFlush(t.Context()).Err())
		single := mark(one)
		require.NoError(t, d.Do(t.Context(), single))
		require.NoError(t, single.Err)
		require.NoError(t, d.direct.ScriptFlush(t.Context()).Err())
		two := []*Call{mark(one), grab(3)}
		require.NoError(t, d.Do(t.Context(), two...))
		require.NoError(t, two[0].Err)
		require.NoError(t, two[1].Err)
		assert.Equal(t, strconv.Itoa(2*want), d.marks(t, one))
	}
	require.NoError(t, d.Close(t.Context()))
}

func TestTheSealOfACallWithRecordsTellsItsOutcome(t *testing.T) {
	t.Parallel()
	d, proxy := faultyDesk(t, nil)
	require.NoError(t, d.direct.ScriptLoad(t.Context(), markScript.Source()).Err())
	first := count("x")
	require.NoError(t, d.Do(t.Context(), first))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	proxy.Decide(func(cmd []string) netfault.Action {
		if cmd[0] == "evalsha" && cmd[1] == markScript.SHA() {
			cancel()
			return netfault.DropReply
		}
		return netfault.Pass
	})
	one := d.keys.Once("one")
	c := mark(one)
	err := d.Do(ctx, c)
	require.NoError(t, truthOf(t, err, c))
	assert.Equal(t, "1", c.Rest)
	assert.Equal(t, "1", d.marks(t, one))
}
