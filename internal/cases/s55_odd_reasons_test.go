package cases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/reliable"
)

// longestReason is the documented length of a kept reason, in bytes.
const longestReason = 512

type panickingError struct{}

func (panickingError) Error() string { panic("no text to be had") }

// oddReasons are errors whose text is not what a line of text should be; want is a part of what is kept of it.
func oddReasons() map[string]struct {
	err  error
	want string
} {
	type reason = struct {
		err  error
		want string
	}
	text := func(s string) error { return errors.New(s) }
	all := map[string]reason{
		"a lone 0xE8":                 {text("bad \xe8 byte"), "bad \ufffd byte"},
		"only bytes that are no text": {text("\xff\xfe\xc0\x80"), "\ufffd"},
		"NUL":                         {text("before\x00after"), "before\u2400after"},
		"NUL alone":                   {text("\x00"), "\u2400"},
		"10 MB":                       {text(strings.Repeat("0123456789", 1<<20)), "0123456789"},
		"10 MB of characters":         {text(strings.Repeat("\u20ac", 10<<20/3)), "\u20ac\u20ac"},
		"line ends and ANSI escapes":  {text("first\n\n\x1b[31mred\x1b[0m\r\nlast"), "first \u241b[31mred\u241b[0m last"},
		"tabs":                        {text("a\tb\t\tc"), "a b c"},
		"a separator of lines":        {text("a\u2028b\u2029c\u0085d"), "a"},
		"text turned round":           {text("a\u202eb\u2066c"), "a"},
		"no text":                     {text(""), "(no text)"},
		"only blanks":                 {text(" \n\t "), "(no text)"},
		"quotes and backslashes":      {text(`a "b" \ 'c' {"d":1}`), `a "b" \ 'c' {"d":1}`},
		"no error to be had":          {panickingError{}, "panicked"},
		"wrapped and joined":          {fmt.Errorf("outer: %w", errors.Join(text("one"), text("two"))), "outer: one two"},
	}
	for at := longestReason - 4; at <= longestReason+1; at++ { // a character of three bytes over every place of the cut
		all[fmt.Sprintf("a character from byte %d on", at)] = reason{text(strings.Repeat("x", at) + "\u20ac\u20ac"), "xxx"}
		all[fmt.Sprintf("four bytes from byte %d on", at)] = reason{text(strings.Repeat("x", at) + "\U0001f600"), "xxx"}
	}
	return all
}

// oneCleanLine asserts what every kept reason must be.
func oneCleanLine(t testing.TB, what, reason, want string) {
	t.Helper()
	require.NotEmpty(t, reason, what)
	require.LessOrEqual(t, len(reason), longestReason, what)
	require.True(t, utf8.ValidString(reason), "%s: %q", what, reason)
	require.Contains(t, reason, want, what)
	for _, r := range reason {
		require.False(t, unicode.IsControl(r) || r == '\u2028' || r == '\u2029', "%s: %q holds %U", what, reason, r)
	}
}

// deadAtOnce asserts about a job after its only attempt.
func (l *lane) deadAtOnce(id, want string) {
	l.t.Helper()
	info := l.inspect(id)
	require.Equal(l.t, reliable.Dead, info.Place, id)
	require.Equal(l.t, 1, info.Failures+info.Expiries, id)
	require.Len(l.t, info.Errors, 1, id)
	require.Equal(l.t, 1, info.Errors[0].Attempt, id)
	require.NotEmpty(l.t, info.Errors[0].Holder, id)
	oneCleanLine(l.t, id, info.Errors[0].Reason, want)
	raw, err := l.rdb.HGet(l.t.Context(), l.keys.Key("errors"), id).Result()
	require.NoError(l.t, err)
	require.True(l.t, utf8.ValidString(raw), "%s: %q", id, raw)

	out, err := json.Marshal(info)
	require.NoError(l.t, err, id)
	var back struct{ Errors []reliable.Failure }
	require.NoError(l.t, json.Unmarshal(out, &back), id)
	require.Equal(l.t, info.Errors[0].Reason, back.Errors[0].Reason, id)
}

// nothingPending asserts that nothing of n nacked jobs is left to be tried again.
func (l *lane) nothingPending(n int) {
	l.t.Helper()
	s := l.stats()
	require.Zero(l.t, s.Due+s.Processing)
	require.EqualValues(l.t, n, s.Dead)
	require.EqualValues(l.t, n, s.Counters["claimed"])
	require.EqualValues(l.t, n, s.Counters["nacked"], "one nack a job")
	require.Zero(l.t, s.Counters["refused"])
}

func TestS55_AnyReasonGetsAJobIntoDeadWithinOneCall(t *testing.T) {
	t.Parallel()
	l := newLane(t, &reliable.QueueOptions{MaxRetries: limitOf(0)})
	reasons := oddReasons()
	for id := range reasons {
		l.enqueue(reliable.Item{Kind: "case", ID: id})
	}
	for id, job := range l.claimExactly(len(reasons)) {
		require.NoError(t, job.Nack(t.Context(), reasons[id].err), id)
		require.ErrorIs(t, job.Nack(t.Context(), errors.New("again")), reliable.ErrSettled)
		l.deadAtOnce(id, reasons[id].want)
	}
	l.nothingPending(len(reasons))
	page, err := l.queue.List(t.Context(), reliable.Dead, 1000, nil)
	require.NoError(t, err)
	infos := page.Jobs
	require.Len(t, infos, len(reasons))
	out, err := json.Marshal(infos)
	require.NoError(t, err)
	require.True(t, json.Valid(out) && utf8.Valid(out))
	l.balanced(len(reasons))
}

// The same out of handlers: what a Consumer logs of it is one line each.
func TestS55_AnyReasonIsOneLineOfTheConsumersLog(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]func(w *lineLog) slog.Handler{
		"text": func(w *lineLog) slog.Handler { return slog.NewTextHandler(w, nil) },
		"JSON": func(w *lineLog) slog.Handler { return slog.NewJSONHandler(w, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLane(t, &reliable.QueueOptions{MaxRetries: limitOf(0)})
			reasons := oddReasons()
			for id := range reasons {
				l.enqueue(reliable.Item{Kind: "case", ID: id})
			}
			var log lineLog
			var mu sync.Mutex
			dead, failed := map[string]int{}, 0
			stop := l.consume(func(_ context.Context, job *reliable.Job) error {
				return reasons[job.ID].err
			}, &reliable.ConsumerOptions{Logger: slog.New(handler(&log)), Hooks: &reliable.Hooks{
				OnDead:  func(_ context.Context, e reliable.Event) { mu.Lock(); dead[e.ID]++; mu.Unlock() },
				OnError: func(context.Context, reliable.Event) { mu.Lock(); failed++; mu.Unlock() },
			}})
			require.Eventually(t, func() bool { return l.stats().Dead == int64(len(reasons)) }, 30*time.Second, 10*time.Millisecond)
			stop()
			require.Zero(t, failed)
			require.Len(t, dead, len(reasons))
			for id, reason := range reasons {
				require.Equal(t, 1, dead[id], id)
				l.deadAtOnce(id, reason.want)
			}
			l.nothingPending(len(reasons))
			told := 0
			for _, line := range log.lines() {
				require.True(t, utf8.ValidString(line) && !strings.ContainsFunc(line, unicode.IsControl), "%q", line)
				require.True(t, name != "JSON" || json.Valid([]byte(line)), "%q", line)
				if strings.Contains(line, "job dead") {
					told++
				}
			}
			require.Equal(t, len(reasons), told, "lines about dead jobs: one each")
			l.balanced(len(reasons))
		})
	}
}
