package reliable_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/reliable"
)

// around makes a middleware of a function that sees the job and what next returned.
func around(see func(ctx context.Context, job *reliable.Job, next func() error) error) reliable.Middleware {
	return func(next reliable.Handler) reliable.Handler {
		return reliable.HandlerFunc(func(ctx context.Context, job *reliable.Job) error {
			return see(ctx, job, func() error { return next.Handle(ctx, job) })
		})
	}
}

func TestMiddlewareIsMadeOnceAndCalledForEveryJobInItsOrder(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	const n = 20
	var mu sync.Mutex
	made, calls := 0, map[string][]string{}
	noted := func(name string) reliable.Middleware {
		m := around(func(_ context.Context, job *reliable.Job, next func() error) error {
			mu.Lock()
			calls[job.ID] = append(calls[job.ID], name)
			mu.Unlock()
			return next()
		})
		return func(next reliable.Handler) reliable.Handler {
			made++
			return m(next)
		}
	}
	runConsumer(t, q, reliable.HandlerFunc(func(_ context.Context, job *reliable.Job) error {
		mu.Lock()
		defer mu.Unlock()
		calls[job.ID] = append(calls[job.ID], "handler")
		return nil
	}), &reliable.ConsumerOptions{Middleware: []reliable.Middleware{noted("outer"), noted("inner")}})
	ids := put(t, q, jobs("k", n)...)
	await(t, q, "all acked", func(s reliable.Stats) bool { return s.Counters["acked"] == n })
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, 2, made)
	require.Len(t, calls, n)
	for _, id := range ids {
		require.Equal(t, []string{"outer", "inner", "handler"}, calls[id])
	}
}

func TestWhatTheOutermostMiddlewareReturnsSettlesTheJob(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	wrong := errors.New("wrong")
	verdicts := map[string]func(error) error{
		"discard": reliable.Discard,
		"ack":     func(error) error { return nil },
		"retry":   func(err error) error { return reliable.RetryAfter(time.Hour, err) },
		"release": func(err error) error { return reliable.ReleaseAfter(time.Hour, err) },
		"skip":    func(err error) error { return err },
	}
	runConsumer(t, q, reliable.HandlerFunc(func(_ context.Context, job *reliable.Job) error {
		require.NotEqual(t, "skip", job.Kind, "next was not called")
		return reliable.RetryAfter(time.Minute, wrong)
	}), &reliable.ConsumerOptions{Middleware: []reliable.Middleware{
		around(func(_ context.Context, job *reliable.Job, next func() error) error {
			if job.Kind == "skip" {
				return verdicts[job.Kind](reliable.Discard(errors.New("skipped")))
			}
			err := next()
			if !errors.Is(err, wrong) {
				return reliable.Discard(fmt.Errorf("the handler's error was lost: %w", err))
			}
			return verdicts[job.Kind](err)
		}),
	}})
	id := map[string]string{}
	for kind := range verdicts {
		id[kind] = put(t, q, job(kind))[0]
	}
	s := await(t, q, "all settled", func(s reliable.Stats) bool {
		c := s.Counters
		return c["acked"]+c["nacked"]+c["released"]+c["buried"] == 5
	})
	require.EqualValues(t, 2, s.Counters["buried"])
	for kind, want := range map[string]reliable.Info{
		"discard": {Place: reliable.Dead, Failures: 1},
		"ack":     {Place: reliable.Nowhere},
		"retry":   {Place: reliable.Due, Failures: 1},
		"release": {Place: reliable.Due},
		"skip":    {Place: reliable.Dead, Failures: 1},
	} {
		infos, err := q.Inspect(t.Context(), id[kind])
		require.NoError(t, err)
		require.Equal(t, want.Place, infos[0].Place, kind)
		require.Equal(t, want.Failures, infos[0].Failures, kind)
		if want.Place == reliable.Due {
			require.Greater(t, infos[0].In, 50*time.Minute, kind)
		}
	}
	infos, err := q.Inspect(t.Context(), id["skip"])
	require.NoError(t, err)
	require.Equal(t, "skipped", infos[0].Errors[0].Reason)
}

func TestTheTimeoutOfAKindHoldsForAMuxInMiddleware(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	mux := reliable.NewMux()
	cause := make(chan error, 2)
	require.NoError(t, mux.HandleFunc("short", func(ctx context.Context, _ *reliable.Job) error {
		<-ctx.Done()
		return nil
	}, &reliable.HandleOptions{Timeout: 50 * time.Millisecond}))
	overdue := make(chan reliable.Event, 1)
	runConsumer(t, q, mux, &reliable.ConsumerOptions{
		Hooks: &reliable.Hooks{OnOverdue: func(_ context.Context, e reliable.Event) { overdue <- e }},
		Middleware: []reliable.Middleware{around(func(ctx context.Context, _ *reliable.Job, next func() error) error {
			deadline, ok := ctx.Deadline()
			require.True(t, ok)
			require.Less(t, time.Until(deadline), time.Second, "the kind's timeout, and not the Consumer's hour")
			err := next()
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return err
		})},
	})
	put(t, q, job("short"))
	require.Equal(t, reliable.ErrJobTimeout, receive(t, cause))
	require.Equal(t, reliable.ErrJobTimeout, receive(t, overdue).Err, "the Consumer knows of it, and stops extending")
	await(t, q, "acked", func(s reliable.Stats) bool { return s.Counters["acked"] == 1 })
}

func TestAKindWithoutAHandlerIsReleasedThroughMiddleware(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	seen := make(chan error, 1)
	runConsumer(t, q, reliable.NewMux(), &reliable.ConsumerOptions{Middleware: []reliable.Middleware{
		around(func(_ context.Context, _ *reliable.Job, next func() error) error {
			err := fmt.Errorf("middleware: %w", next())
			seen <- err
			return err
		}),
	}})
	ids := put(t, q, job("unheard.of"))
	require.ErrorIs(t, receive(t, seen), reliable.ErrNoHandler)
	await(t, q, "released", func(s reliable.Stats) bool { return s.Counters["released"] >= 1 })
	infos, err := q.Inspect(t.Context(), ids[0])
	require.NoError(t, err)
	require.Zero(t, infos[0].Failures)
	require.Positive(t, infos[0].In, "with a delay")
}

func TestAfterAPanicAndAGoexitThroughMiddlewareTheConsumerGoesOn(t *testing.T) {
	t.Parallel()
	q := newQueue(t, quick())
	var mu sync.Mutex
	deferred := map[string]int{}
	runConsumer(t, q, reliable.HandlerFunc(func(_ context.Context, job *reliable.Job) error {
		switch {
		case job.Attempt > 1:
		case job.Kind == "panic":
			panic("boom")
		case job.Kind == "exit":
			runtime.Goexit()
		}
		return nil
	}), &reliable.ConsumerOptions{Concurrency: 2, Middleware: []reliable.Middleware{
		around(func(_ context.Context, job *reliable.Job, next func() error) error {
			defer func() {
				mu.Lock()
				deferred[job.Kind]++
				mu.Unlock()
			}()
			return next()
		}),
	}})
	put(t, q, append(jobs("panic", 10), jobs("exit", 10)...)...)
	s := await(t, q, "all acked", func(s reliable.Stats) bool { return s.Counters["acked"] == 20 })
	require.EqualValues(t, 20, s.Counters["nacked"])
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, map[string]int{"panic": 20, "exit": 20}, deferred)
}

func TestMiddlewareThatIsNoneIsRefusedWithAllElseThatIsWrong(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	mux := reliable.NewMux()
	require.NoError(t, mux.HandleFunc("long", func(context.Context, *reliable.Job) error { return nil }, &reliable.HandleOptions{Timeout: time.Hour}))
	_, err := reliable.NewConsumer(q, mux, &reliable.ConsumerOptions{
		Concurrency: -1, NoExtend: true, Middleware: []reliable.Middleware{nil},
	})
	for _, want := range []string{"Concurrency is -1", `for kind "long"`, "Middleware[0] is nil"} {
		require.ErrorContains(t, err, want)
	}
	_, err = reliable.NewConsumer(q, mux, &reliable.ConsumerOptions{
		Middleware: []reliable.Middleware{func(reliable.Handler) reliable.Handler { panic("no key") }},
	})
	require.ErrorContains(t, err, "Middleware[0] has panicked: no key")
}
