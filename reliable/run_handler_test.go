package reliable

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ended is what runHandler told.
type ended struct {
	err      error
	survives bool
}

// runOnOwnGoroutine runs a handler as a worker does. It returns what finished was told, and whether runHandler
// returned to the worker. Only once the goroutine is over does it look, so a second call would be counted.
func runOnOwnGoroutine(t *testing.T, h HandlerFunc) (got ended, returned bool) {
	t.Helper()
	var calls []ended
	over := make(chan struct{})
	go func() {
		defer close(over)
		runHandler(context.Background(), h, &Job{ID: "1"}, func(err error, survives bool) {
			calls = append(calls, ended{err, survives})
		})
		returned = true
	}()
	<-over
	require.Len(t, calls, 1, "finished is called exactly once")
	return calls[0], returned
}

func TestReturnedErrorReachesFinishedAsItIs(t *testing.T) {
	t.Parallel()
	for _, want := range []error{nil, errCard, Discard(errCard), &badError{with: "boom"}} {
		got, returned := runOnOwnGoroutine(t, func(context.Context, *Job) error { return want })
		require.True(t, returned)
		require.Equal(t, ended{want, true}, got)
	}
}

func TestHandlerGetsItsContextAndJob(t *testing.T) {
	t.Parallel()
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, "value")
	job := &Job{ID: "1"}
	var err error
	runHandler(ctx, HandlerFunc(func(ctx context.Context, got *Job) error {
		assert.Equal(t, "value", ctx.Value(key{}))
		assert.Same(t, job, got)
		return errCard
	}), job, func(e error, _ bool) { err = e })
	require.Equal(t, errCard, err)
}

//go:noinline
func deeplyPanicking(value any) { panic(value) }

func TestPanicsBecomeABoundedReasonAndStack(t *testing.T) {
	t.Parallel()
	var noMap map[string]int
	var noJob *Job
	for name, c := range map[string]struct {
		handler HandlerFunc
		reason  string
	}{
		"a string":            {func(context.Context, *Job) error { panic("x") }, "panic: x"},
		"an empty string":     {func(context.Context, *Job) error { panic("") }, "panic:"},
		"nil":                 {func(context.Context, *Job) error { panic(nil) }, "panic: panic called with nil argument"},
		"an error":            {func(context.Context, *Job) error { panic(errCard) }, "panic: card declined"},
		"a verdict":           {func(context.Context, *Job) error { panic(Discard(errCard)) }, "panic: card declined"},
		"nil map":             {func(context.Context, *Job) error { noMap["a"] = 1; return nil }, "panic: assignment to entry in nil map"},
		"nil pointer":         {func(context.Context, *Job) error { noJob.ID = ""; return nil }, "panic: runtime error: invalid memory address or nil pointer dereference"},
		"out of range":        {func(_ context.Context, j *Job) error { _ = j.ID[len(j.ID)]; return nil }, "panic: runtime error: index out of range [1] with length 1"},
		"bad error":           {func(context.Context, *Job) error { panic(&badError{with: "boom"}) }, "panic: (no text: Error of *reliable.badError has panicked: boom)"},
		"worse error":         {func(context.Context, *Job) error { panic(selfPanics{}) }, "panic: (no text: Error of reliable.selfPanics has panicked: a value of type reliable.selfPanics)"},
		"a struct":            {func(context.Context, *Job) error { panic(closeOrder{}) }, "panic: a value of type reliable.closeOrder"},
		"many lines":          {func(context.Context, *Job) error { panic("a\n\x1b[31mb\xff") }, "panic: a ␛[31mb\ufffd"},
		"in a deferred call":  {func(context.Context, *Job) error { defer func() { panic("second") }(); panic("first") }, "panic: second"},
		"from a nil function": {func(ctx context.Context, j *Job) error { var f HandlerFunc; return f(ctx, j) }, "panic: runtime error: invalid memory address or nil pointer dereference"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, returned := runOnOwnGoroutine(t, c.handler)
			require.True(t, returned)
			require.True(t, got.survives)
			var failed *panicError
			require.ErrorAs(t, got.err, &failed)
			require.True(t, strings.HasPrefix(failed.Reason, c.reason), failed.Reason) // Go's own texts may get longer
			require.Equal(t, failed.Reason, reasonOf(got.err))
			require.True(t, strings.HasPrefix(failed.Stack, "panic("), failed.Stack)
			require.Contains(t, failed.Stack, "run_handler_test.go")
			require.LessOrEqual(t, len(failed.Stack), maxStack)
			require.Equal(t, verdict{op: opNack, err: got.err}, verdictOf(got.err), "a panic is a failure, whatever the value")
		})
	}
}

func TestLongPanicsAndDeepStacksAreCut(t *testing.T) {
	t.Parallel()
	got, _ := runOnOwnGoroutine(t, func(context.Context, *Job) error {
		var down func(n int)
		down = func(n int) {
			if n == 0 {
				deeplyPanicking(strings.Repeat("€", 10<<20/3))
			}
			down(n - 1)
		}
		down(500)
		return nil
	})
	var failed *panicError
	require.ErrorAs(t, got.err, &failed)
	require.LessOrEqual(t, len(failed.Reason), maxReason)
	require.Greater(t, len(failed.Reason), maxReason-utf8.UTFMax-1)
	require.True(t, utf8.ValidString(failed.Reason))
	require.LessOrEqual(t, len(failed.Stack), maxStack)
	require.Greater(t, len(failed.Stack), maxStack/2)
	require.True(t, utf8.ValidString(failed.Stack))
	require.Contains(t, strings.Split(failed.Stack, "\n")[2], "deeplyPanicking", "the calls of ours on top are left out")
}

func TestGoexitIsToldBeforeTheGoroutineEnds(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]HandlerFunc{
		"plain":                   func(context.Context, *Job) error { runtime.Goexit(); return nil },
		"in a deferred call":      func(context.Context, *Job) error { defer runtime.Goexit(); return nil },
		"over a panic":            func(context.Context, *Job) error { defer runtime.Goexit(); panic("x") },
		"in the error's own text": func(context.Context, *Job) error { panic(exitingError{}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, returned := runOnOwnGoroutine(t, h)
			require.False(t, returned, "a Goexit cannot be stopped")
			require.False(t, got.survives)
			var failed *panicError
			require.ErrorAs(t, got.err, &failed)
			require.Equal(t, "handler ended its goroutine (runtime.Goexit)", reasonOf(got.err))
			require.True(t, strings.HasPrefix(failed.Stack, "runtime.Goexit("), failed.Stack)
			require.Contains(t, failed.Stack, "run_handler_test.go")
			require.LessOrEqual(t, len(failed.Stack), maxStack)
			require.Equal(t, opNack, verdictOf(got.err).op)
		})
	}
}

type exitingError struct{}

func (exitingError) Error() string { runtime.Goexit(); return "" }

func TestWithPanicnilAPanicOfNilIsStillAFailure(t *testing.T) {
	t.Setenv("GODEBUG", "panicnil=1")
	got, returned := runOnOwnGoroutine(t, func(context.Context, *Job) error { panic(nil) })
	require.True(t, returned)
	require.True(t, got.survives)
	require.Equal(t, "panic: nil", reasonOf(got.err))
}

func TestAPanicOfFinishedIsNotCaughtAndNotFollowedByASecondCall(t *testing.T) {
	t.Parallel()
	calls := 0
	require.PanicsWithValue(t, "finished", func() {
		runHandler(t.Context(), HandlerFunc(nothing), &Job{}, func(error, bool) { calls++; panic("finished") })
	})
	require.Equal(t, 1, calls)
}

func BenchmarkRunHandler(b *testing.B) {
	errNone := errors.New("none")
	h := HandlerFunc(func(context.Context, *Job) error { return errNone })
	job := &Job{}
	b.ReportAllocs()
	for b.Loop() {
		runHandler(b.Context(), h, job, func(error, bool) {})
	}
}
