package reliable_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

func TestEveryJobIsHandedOverOnceAndAcked(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	const n = 2000
	var mu sync.Mutex
	starts := map[string]int{}
	ids := put(t, q, jobs("k", n)...)
	runConsumer(t, q, reliable.HandlerFunc(func(_ context.Context, j *reliable.Job) error {
		mu.Lock()
		defer mu.Unlock()
		starts[j.ID]++
		if string(j.Payload) != "payload of k" || j.Kind != "k" || j.Attempt != 1 {
			return fmt.Errorf("wrong job: %+v", j)
		}
		return nil
	}), &reliable.ConsumerOptions{Concurrency: 50})
	s := await(t, q, "all acked", func(s reliable.Stats) bool { return s.Counters["acked"] == n })
	require.Zero(t, s.Due+s.Processing+s.Dead+s.Records)
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, starts, n)
	for _, id := range ids {
		require.Equal(t, 1, starts[id])
	}
}

func TestAnIdleConsumerStartsANewJobWithoutPolling(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	started := make(chan time.Time, 1)
	runConsumer(t, q, reliable.HandlerFunc(func(context.Context, *reliable.Job) error {
		started <- time.Now()
		return nil
	}), &reliable.ConsumerOptions{WakeFallback: time.Minute})
	put(t, q, job("first"))
	receive(t, started) // from here on it waits, for a minute if nobody wakes it
	for range 20 {
		before := time.Now()
		put(t, q, job("k"))
		require.Less(t, receive(t, started).Sub(before), 250*time.Millisecond)
	}
}

func TestADelayedJobStartsAtItsTimeAndNeverBefore(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	rdb := redistest.Client(t)
	started := make(chan time.Time, 10)
	runConsumer(t, q, reliable.HandlerFunc(func(ctx context.Context, j *reliable.Job) error {
		now, err := rdb.Time(ctx).Result()
		if err != nil {
			return err
		}
		started <- now
		return nil
	}), &reliable.ConsumerOptions{WakeFallback: time.Minute})
	now, err := rdb.Time(t.Context()).Result()
	require.NoError(t, err)
	at := now.Add(150*time.Millisecond + 300*time.Microsecond)
	put(t, q, reliable.Item{Kind: "at", At: at})
	start := receive(t, started)
	require.False(t, start.Before(at), "started %v early", at.Sub(start))
	require.Less(t, start.Sub(at), 250*time.Millisecond)
	put(t, q, reliable.Item{Kind: "late", Delay: time.Hour}, reliable.Item{Kind: "soon", Delay: 50 * time.Millisecond})
	receive(t, started)
	_, err = q.PurgeNext(t.Context(), reliable.Due, &reliable.Cursor{}, 10)
	require.NoError(t, err)
	s := await(t, q, "the far job stays", func(s reliable.Stats) bool { return s.Processing == 0 })
	require.EqualValues(t, 1, s.Due)
}

func TestVerdictsOfAHandler(t *testing.T) {
	t.Parallel()
	o := quick()
	o.MaxRetries = intp(1)
	q := newQueue(t, o)
	wrong := errors.New("wrong")
	var snoozed atomic.Int64
	mux := reliable.NewMux()
	handle := func(kind string, f func(j *reliable.Job) error) {
		require.NoError(t, mux.HandleFunc(kind, func(_ context.Context, j *reliable.Job) error { return f(j) }, nil))
	}
	handle("ok", func(*reliable.Job) error { return nil })
	handle("fails", func(*reliable.Job) error { return wrong })
	handle("once", func(j *reliable.Job) error {
		if j.Attempt == 1 {
			return reliable.RetryAfter(40*time.Millisecond, wrong)
		}
		return nil
	})
	handle("discard", func(*reliable.Job) error { return fmt.Errorf("wrapped: %w", reliable.Discard(wrong)) })
	handle("snooze", func(j *reliable.Job) error {
		if j.Attempt != 1 {
			return reliable.Discard(errors.New("a release was counted"))
		}
		if snoozed.Add(1) < 5 {
			return reliable.ReleaseAfter(5*time.Millisecond, nil)
		}
		return nil
	})
	handle("panics", func(*reliable.Job) error { panic("oh\nno") })
	handle("goexit", func(*reliable.Job) error { runtime.Goexit(); return nil })
	ids := put(t, q, job("ok"), job("fails"), job("once"), job("discard"), job("snooze"), job("panics"), job("goexit"))
	stop := runConsumer(t, q, mux, &reliable.ConsumerOptions{Concurrency: 2})
	await(t, q, "three acked, four dead", func(s reliable.Stats) bool { return s.Counters["acked"] == 3 && s.Dead == 4 })
	require.NoError(t, stop())
	infos, err := q.Inspect(t.Context(), ids...)
	require.NoError(t, err)
	attempts := func(kind string) (int, string, string) {
		for _, info := range infos {
			if info.Kind == kind {
				require.Equal(t, reliable.Dead, info.Place)
				last := info.Errors[len(info.Errors)-1]
				require.NotEmpty(t, last.Holder)
				return info.Failures, last.Reason, info.Stack
			}
		}
		require.FailNow(t, "not dead: "+kind)
		return 0, "", ""
	}
	n, reason, stack := attempts("fails")
	require.Equal(t, 2, n)
	require.Equal(t, "wrong", reason)
	require.Empty(t, stack)
	n, reason, _ = attempts("discard")
	require.Equal(t, 1, n)
	require.Contains(t, reason, "wrong")
	n, reason, stack = attempts("panics")
	require.Equal(t, 2, n)
	require.Equal(t, "panic: oh no", reason)
	require.Contains(t, stack, "consumer_test.go")
	require.LessOrEqual(t, len(stack), 4096)
	n, _, _ = attempts("goexit")
	require.Equal(t, 2, n)
	require.EqualValues(t, 5, snoozed.Load())
}

func TestAnUnknownKindIsReleasedAndCostsNothing(t *testing.T) {
	t.Parallel()
	q := newQueue(t, quick())
	mux := reliable.NewMux()
	released := make(chan reliable.Event, 100)
	stop := runConsumer(t, q, mux, &reliable.ConsumerOptions{Hooks: &reliable.Hooks{
		OnRelease: func(_ context.Context, e reliable.Event) { released <- e },
	}})
	ids := put(t, q, job("tomorrow"))
	e := receive(t, released)
	require.ErrorIs(t, e.Err, reliable.ErrNoHandler)
	require.Greater(t, time.Until(e.NextRun), 100*time.Millisecond)
	require.NoError(t, stop())
	infos, err := q.Inspect(t.Context(), ids...)
	require.NoError(t, err)
	require.Equal(t, reliable.Due, infos[0].Place)
	require.Zero(t, infos[0].Failures)
}

type refund struct {
	Cents int `json:"cents"`
}

func (refund) Kind() string { return "refund" }

func TestABadPayloadIsBuriedWithItsBytes(t *testing.T) {
	t.Parallel()
	q := newQueue(t, quick())
	mux := reliable.NewMux()
	got := make(chan int, 1)
	require.NoError(t, reliable.Handle(mux, func(_ context.Context, _ *reliable.Job, r *refund) error {
		got <- r.Cents
		return nil
	}, nil))
	runConsumer(t, q, mux, nil)
	_, err := reliable.Enqueue(t.Context(), q, refund{Cents: 250}, nil)
	require.NoError(t, err)
	require.Equal(t, 250, receive(t, got))
	id := put(t, q, reliable.Item{Kind: "refund", Payload: []byte(`{"cents":"many"`)})
	await(t, q, "buried", func(s reliable.Stats) bool { return s.Dead == 1 })
	infos, err := q.Inspect(t.Context(), id...)
	require.NoError(t, err)
	require.Equal(t, `{"cents":"many"`, string(infos[0].Payload))
	require.Contains(t, infos[0].Errors[0].Reason, "bad payload")
}

func TestAJobTimeoutEndsTheContextAndTheReturnedValueStillCounts(t *testing.T) {
	t.Parallel()
	q := newQueue(t, quick())
	cause := make(chan error, 1)
	mux := reliable.NewMux()
	require.NoError(t, mux.HandleFunc("slow", func(ctx context.Context, _ *reliable.Job) error {
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return nil
	}, &reliable.HandleOptions{Timeout: 60 * time.Millisecond}))
	runConsumer(t, q, mux, nil)
	put(t, q, job("slow"))
	require.ErrorIs(t, receive(t, cause), reliable.ErrJobTimeout)
	await(t, q, "acked", func(s reliable.Stats) bool { return s.Counters["acked"] == 1 })
}

func TestASettleByHandInAHandlerCountsOnceAndTheReturnedValueSettlesNothing(t *testing.T) {
	t.Parallel()
	q := newQueue(t, quick())
	second := make(chan error, 1)
	runConsumer(t, q, reliable.HandlerFunc(func(ctx context.Context, j *reliable.Job) error {
		if err := j.Ack(ctx); err != nil {
			return err
		}
		second <- j.Nack(ctx, errors.New("too late"))
		return errors.New("does not count")
	}), nil)
	put(t, q, job("k"))
	require.ErrorIs(t, receive(t, second), reliable.ErrSettled)
	s := await(t, q, "acked", func(s reliable.Stats) bool { return s.Counters["acked"] == 1 })
	require.Zero(t, s.Counters["nacked"])
}

func TestACancelledJobsHandlerIsToldAndTheJobIsRemoved(t *testing.T) {
	t.Parallel()
	q := newQueue(t, quick())
	running, cause := make(chan struct{}), make(chan error, 1)
	runConsumer(t, q, reliable.HandlerFunc(func(ctx context.Context, _ *reliable.Job) error {
		close(running)
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return errors.New("stopped")
	}), nil)
	ids := put(t, q, job("k"))
	receive(t, running)
	removed, err := q.Cancel(t.Context(), ids...)
	require.NoError(t, err)
	require.True(t, removed[0].Cancelling)
	require.ErrorIs(t, receive(t, cause), reliable.ErrCancelled)
	s := await(t, q, "removed", func(s reliable.Stats) bool { return s.Records == 0 })
	require.EqualValues(t, 1, s.Counters["cancelled_processing"])
}

func TestRunMayNotRunTwiceAtATimeAndMayRunAgain(t *testing.T) {
	t.Parallel()
	q := newQueue(t, quick())
	done := make(chan struct{}, 10)
	c, err := reliable.NewConsumer(q, reliable.HandlerFunc(func(context.Context, *reliable.Job) error {
		done <- struct{}{}
		return nil
	}), nil)
	require.NoError(t, err)
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		put(t, q, job("k"))
		receive(t, done)
		require.ErrorIs(t, c.Run(t.Context()), reliable.ErrRunning)
		cancel()
		require.NoError(t, receive(t, ended))
	}
	s, err := q.Stats(t.Context())
	require.NoError(t, err)
	require.Zero(t, s.Processing)
	require.EqualValues(t, 3, s.Counters["acked"])
}
