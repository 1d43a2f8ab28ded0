package cases

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

// longestStack is the documented bound of a kept stack.
const longestStack = 4 << 10

type (
	badText     struct{ why string } // an error whose text cannot be had
	badString   struct{}             // a Stringer of that sort
	badUnwrap   struct{}             // an error that cannot be looked into
	roundUnwrap struct{}             // one that wraps itself
	badDecode   struct{}             // a payload whose decoding panics
)

func (e *badText) Error() string                { panic("no text: " + e.why) }
func (badString) String() string                { panic("no string") }
func (badUnwrap) Error() string                 { return "cannot be looked into" }
func (badUnwrap) Unwrap() error                 { panic("no look") }
func (roundUnwrap) Error() string               { return "round and round" }
func (e roundUnwrap) Unwrap() error             { return e }
func (badDecode) Kind() string                  { return "bad-decode" }
func (*badDecode) UnmarshalJSON(_ []byte) error { panic("no decoding") }

// A misbehaviour is a way in which a handler ends, and what must be kept of it.
type misbehaviour struct {
	end    func() error
	reason string // what its kept reason contains
	stack  bool   // whether a stack is kept
}

// misbehaviours are those of the case, and the ones like them.
func misbehaviours() map[string]misbehaviour {
	var noMap map[string]int
	var noJob *reliable.Job
	var noText *badText
	return map[string]misbehaviour{
		"panics":              {func() error { panic("x") }, "panic: x", true},
		"panics-nil":          {func() error { panic(nil) }, "panic: panic called with nil argument", true},
		"nil-map":             {func() error { noMap["a"] = 1; return nil }, "panic: assignment to entry in nil map", true},
		"goexit":              {func() error { runtime.Goexit(); return nil }, "runtime.Goexit", true},
		"panics-bad-text":     {func() error { panic(&badText{"why"}) }, "(no text: Error of *cases.badText has panicked: no text: why)", true},
		"nil-pointer":         {func() error { noJob.ID = "a"; return nil }, "panic: runtime error: invalid memory address", true},
		"panics-bad-string":   {func() error { panic(badString{}) }, "(no text: String of cases.badString has panicked: no string)", true},
		"panics-verdict":      {func() error { panic(reliable.Discard(errors.New("not returned"))) }, "panic: not returned", true},
		"panics-ack":          {func() error { panic(error(nil)) }, "panic: panic called with nil argument", true},
		"panics-10-MB":        {func() error { panic(strings.Repeat("€", 10<<20/3)) }, "panic: €€€", true},
		"panics-no-text":      {func() error { panic("a\xff\xfe\n\x1b[31m\x00b") }, "panic: a\ufffd\ufffd ␛[31m␀b", true},
		"panics-deep":         {func() error { return deep(2000) }, "panic: the bottom", true},
		"panics-deferred":     {func() error { defer func() { panic("second") }(); panic("first") }, "panic: second", true},
		"goexit-deferred":     {func() error { defer runtime.Goexit(); panic("first") }, "runtime.Goexit", true},
		"panics-after-result": {func() (err error) { defer func() { panic("late") }(); return nil }, "panic: late", true},
		"returns-bad-text":    {func() error { return &badText{"why"} }, "(no text: Error of *cases.badText has panicked: no text: why)", false},
		"returns-typed-nil":   {func() error { return noText }, "(no text: Error of *cases.badText has panicked", false},
		"returns-bad-unwrap":  {func() error { return badUnwrap{} }, "cannot be looked into", false},
		"returns-round":       {func() error { return roundUnwrap{} }, "round and round", false},
	}
}

func deep(n int) error {
	if n == 0 {
		panic("the bottom")
	}
	return errors.Join(deep(n - 1))
}

// A misconduct is the handlers of the test: starts by ID, and the handler itself.
type misconduct struct {
	mux *reliable.Mux

	mu     sync.Mutex
	starts map[string]int
	meet   chan struct{} // where four handlers meet
}

func newMisconduct(t *testing.T) *misconduct {
	m := &misconduct{mux: reliable.NewMux(), starts: map[string]int{}, meet: make(chan struct{})}
	for kind, one := range misbehaviours() {
		require.NoError(t, m.mux.HandleFunc(kind, m.counted(func(*reliable.Job) error { return one.end() }), nil))
	}
	require.NoError(t, m.mux.HandleFunc("good", m.counted(func(*reliable.Job) error { return nil }), nil))
	require.NoError(t, m.mux.HandleFunc("acks-and-panics", m.counted(func(job *reliable.Job) error {
		if err := job.Ack(context.Background()); err != nil {
			return err
		}
		panic("after the ack")
	}), nil))
	require.NoError(t, reliable.Handle(m.mux, func(context.Context, *reliable.Job, badDecode) error { return nil }, nil))
	require.NoError(t, m.mux.HandleFunc("meets", m.counted(m.meets), nil))
	return m
}

func (m *misconduct) counted(then func(job *reliable.Job) error) reliable.HandlerFunc {
	return func(_ context.Context, job *reliable.Job) error {
		m.mu.Lock()
		m.starts[job.ID]++
		m.mu.Unlock()
		return then(job)
	}
}

// meets returns when four handlers are in it at the same time.
func (m *misconduct) meets(job *reliable.Job) error {
	if job.ID == "meets0" {
		for range 3 {
			select {
			case m.meet <- struct{}{}:
			case <-time.After(30 * time.Second):
				return reliable.Discard(errors.New("the others did not come: slots are missing"))
			}
		}
		return nil
	}
	select {
	case <-m.meet:
		return nil
	case <-time.After(30 * time.Second):
		return reliable.Discard(errors.New("the first one did not come: slots are missing"))
	}
}

// The process lives, whatever a handler does on its own goroutine, and so does each slot: every misbehaviour is a
// failure that is counted as a returned error is. Once with hooks that panic themselves.
func TestS31_PanicsAndGoexitAreFailuresAndCostNoSlot(t *testing.T) {
	t.Parallel()
	for name, hookEnds := range map[string]func(){
		"quiet hooks":      func() {},
		"hooks that panic": func() { panic("a hook") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLane(t, &reliable.QueueOptions{
				MaxRetries: limitOf(1), MaxExpiries: limitOf(1), Backoff: reliable.Backoff{Base: time.Millisecond, Cap: time.Millisecond},
			})
			const good = 100
			var items []reliable.Item
			bad := misbehaviours()
			bad["bad-decode"] = misbehaviour{reason: "panic: no decoding", stack: true}
			for kind := range bad {
				items = append(items, reliable.Item{Kind: kind, ID: kind, Payload: []byte("{}")})
			}
			items = append(items, reliable.Item{Kind: "acks-and-panics", ID: "acks-and-panics"})
			for i := range good { // among the bad ones
				items = slices.Insert(items, (7*i)%len(items), reliable.Item{Kind: "good", ID: fmt.Sprint("good", i)})
			}
			l.enqueue(items...)
			m, told := newMisconduct(t), newHookBook()
			note := func(what string) func(context.Context, reliable.Event) {
				return func(_ context.Context, e reliable.Event) { told.note(what, e.ID); hookEnds() }
			}
			stop := l.consume(m.mux.Handle, &reliable.ConsumerOptions{Concurrency: 4, Hooks: &reliable.Hooks{
				OnStart: note("start"), OnRetry: note("retry"), OnDead: note("dead"), OnDone: note("done"),
				OnError: note("error"), OnLost: note("lost"), OnRelease: note("release"),
			}})
			require.Eventually(t, func() bool {
				s := l.stats()
				return s.Dead == int64(len(bad)) && s.Counters["acked"] == good+1
			}, time.Minute, 5*time.Millisecond, "all are dead or acked")
			assert.Empty(t, l.members(lease.Processing), "leases after the last return")

			l.enqueue(numberedKind("meets", 4)...)
			require.Eventually(t, func() bool { return l.stats().Counters["acked"] == good+1+4 }, time.Minute, 5*time.Millisecond,
				"four handlers run at the same time afterwards")
			stop()

			m.check(t, bad, good)
			for kind, want := range bad {
				checkMisbehaved(t, l, kind, want)
				assert.Equal(t, 1, told.count("retry", kind), kind)
				assert.Equal(t, 1, told.count("dead", kind), kind)
			}
			for _, none := range []string{"error", "lost", "release"} {
				assert.Zero(t, told.total(none), none)
			}
			counters := l.stats().Counters
			assert.EqualValues(t, 2*len(bad), counters["nacked"])
			for _, none := range []string{"expired", "released", "buried", "refused"} {
				assert.Zero(t, counters[none], none)
			}
			l.balanced(len(items) + 4)
		})
	}
}

func numberedKind(kind string, n int) []reliable.Item {
	items := numberedItems(kind, n)
	for i := range items {
		items[i].Kind = kind
	}
	return items
}

// check requires two starts of each bad job, and one of each good one.
func (m *misconduct) check(t *testing.T, bad map[string]misbehaviour, good int) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	want := map[string]int{"acks-and-panics": 1}
	for kind := range bad {
		if kind != "bad-decode" { // it ends before the handler
			want[kind] = 2
		}
	}
	for i := range good {
		want[fmt.Sprint("good", i)] = 1
	}
	for i := range 4 {
		want[fmt.Sprint("meets", i)] = 1
	}
	assert.Equal(t, want, m.starts, "starts")
}

// checkMisbehaved requires that a job is dead after two failures, and what is kept of it.
func checkMisbehaved(t *testing.T, l *lane, id string, want misbehaviour) {
	t.Helper()
	info := l.inspect(id)
	require.Equal(t, reliable.Dead, info.Place, id)
	assert.Equal(t, [2]int{2, 0}, [2]int{info.Failures, info.Expiries}, "failures and expiries of %s: dead with attempts = 2", id)
	require.Len(t, info.Errors, 2, id)
	for i, one := range info.Errors {
		oneCleanLine(t, id, one.Reason, want.reason)
		assert.Equal(t, i+1, one.Attempt, id)
	}
	assert.LessOrEqual(t, len(info.Stack), longestStack, id)
	assert.True(t, utf8.ValidString(info.Stack), id)
	assert.Equal(t, want.stack, info.Stack != "", "%s: a stack is kept: %q", id, info.Stack)
	raw, err := l.rdb.HGet(t.Context(), l.keys.Key("errors"), id).Result()
	require.NoError(t, err)
	assert.LessOrEqual(t, len(raw), 5*(longestReason+100)+longestStack, "all that is kept about %s", id)
}

// hookBook notes which hooks were called for which jobs.
type hookBook struct {
	mu    sync.Mutex
	calls map[string]map[string]int
}

func newHookBook() *hookBook { return &hookBook{calls: map[string]map[string]int{}} }

func (b *hookBook) note(what, id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.calls[what] == nil {
		b.calls[what] = map[string]int{}
	}
	b.calls[what][id]++
}

func (b *hookBook) count(what, id string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls[what][id]
}

func (b *hookBook) total(what string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range b.calls[what] {
		n += one
	}
	return n
}

var (
	_ = crashHandler("s31-goroutine", func(w *crashWorker) reliable.Handler {
		return w.fatal(func() { go func() { panic("in a goroutine of its own") }() })
	})
	_ = crashHandler("s31-runtime", func(w *crashWorker) reliable.Handler {
		return w.fatal(func() { new(sync.Mutex).Unlock() }) // an error of Go's runtime that no recover catches
	})
)

// fatal makes handlers that end their process where the job is not a good one.
func (w *crashWorker) fatal(end func()) reliable.Handler {
	return reliable.HandlerFunc(func(ctx context.Context, job *reliable.Job) error {
		w.mark("start", job, "")
		if job.Kind == "good" {
			return nil
		}
		end()
		select {}
	})
}

// A panic in a goroutine that the handler has started is nobody's to catch: it ends the process, with Go's exit code
// and report, and costs the job an expiry. The same goes for the fatal errors of Go's runtime.
func TestS31_PanicInTheHandlersOwnGoroutineIsFatalAndCostsAnExpiry(t *testing.T) {
	t.Parallel()
	redistest.NeedServer(t) // children reach it
	for handler, report := range map[string]string{
		"s31-goroutine": "panic: in a goroutine of its own",
		"s31-runtime":   "fatal error: sync: unlock of unlocked mutex",
	} {
		t.Run(handler, func(t *testing.T) {
			t.Parallel()
			s := newCrashSite(t, crashConfig{Handler: handler, Lease: shape(time.Second, 2*time.Second), MaxRetries: 1, MaxExpiries: 1})
			s.sidecar(t)
			s.enqueue(reliable.Item{Kind: "fatal", ID: "F"})
			for i := range 2 {
				code, stderr := s.doomed(t)
				assert.Equal(t, 2, code, "the exit code of Go's runtime")
				assert.Contains(t, stderr, report)
				s.awaitCount(t, "expired", int64(i+1))
			}
			info := s.inspect("F")
			assert.Equal(t, reliable.Dead, info.Place)
			assert.Equal(t, [2]int{0, 2}, [2]int{info.Failures, info.Expiries}, "failures and expiries")
			require.NotEmpty(t, info.Errors)
			assert.Contains(t, info.Errors[len(info.Errors)-1].Reason, "lease expired 2 times")
			assert.Empty(t, s.members(lease.Processing))
			assert.Len(t, marksOf(readMarks(t, s.Marks), "start"), 2)

			s.enqueue(numberedKind("good", 10)...)
			next := s.worker(t, nil)
			s.awaitCount(t, "acked", 10)
			next.finish(t)
		})
	}
}
