package reliable

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redistest"
)

// unruly is a handler that ends in every way there is, by the job's number.
func unruly(ctx context.Context, j *Job) error {
	var n int
	if _, err := fmt.Sscanf(j.ID, "job-%d", &n); err != nil {
		return err
	}
	switch n % 10 {
	case 0:
		return j.Ack(ctx)
	case 1:
		_ = j.Bury(ctx, errors.New("by hand"))
		panic("after a settle by hand")
	case 2:
		runtime.Goexit()
	case 3:
		panic(errors.New("panics"))
	case 4:
		_ = j.Nack(ctx, Discard(errors.New("by hand")))
		runtime.Goexit()
	case 5:
		if j.Attempt == 1 {
			return RetryAfter(time.Millisecond, nil)
		}
	case 6:
		<-ctx.Done() // its time
		return Discard(ctx.Err())
	case 7:
		return badChain{}
	}
	return nil
}

func TestNoSlotAndNoLeaseIsLostWhateverHandlersAndHooksDo(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t)
	name, zero := redistest.Queue(t), 0
	q, err := New(rdb, name, &QueueOptions{MaxRetries: &zero})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, q.Close(context.Background())) })
	broken := func(context.Context, Event) { panic("broken hook") }
	c, err := NewConsumer(q, HandlerFunc(unruly), &ConsumerOptions{
		Concurrency: 4, JobTimeout: 20 * time.Millisecond, Hooks: &Hooks{
			OnStart: broken, OnDone: broken, OnRetry: broken, OnRelease: broken, OnDead: broken, OnLost: broken, OnOverdue: broken, OnError: broken,
		},
	})
	require.NoError(t, err)
	const n = 300
	items := make([]Item, n)
	for i := range items {
		items[i] = Item{ID: fmt.Sprintf("job-%d", i), Kind: "k"}
	}
	_, err = q.EnqueueMany(t.Context(), items)
	require.NoError(t, err)
	part, err := keys.New(keys.DefaultPrefix, name, 0)
	require.NoError(t, err)
	for i := 9; i < n; i += 10 { // records that nobody can read
		require.NoError(t, rdb.HSet(t.Context(), part.Key("jobs"), items[i].ID, "\xffrubbish").Err())
	}
	r, err := newRun(c)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.work(ctx) }()
	require.Eventually(t, func() bool {
		s, err := q.Stats(context.Background())
		return err == nil && s.Due+s.Processing == 0
	}, 30*time.Second, 10*time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
	r.collect()
	require.Equal(t, 4, r.free, "slots")
	require.Empty(t, r.held)
	require.Zero(t, r.keeper.Holding())
}

func TestARefusingRedisCausesNoBusyLoopAndWorkGoesOnAfterwards(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t)
	name := redistest.Queue(t)
	q, err := New(rdb, name, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, q.Close(context.Background())) })
	var failures atomic.Int64
	done := make(chan struct{}, 10)
	c, err := NewConsumer(q, HandlerFunc(func(context.Context, *Job) error { return nil }), &ConsumerOptions{
		NoSweep: true, WakeFallback: 10 * time.Millisecond,
		Hooks: &Hooks{
			OnError: func(context.Context, Event) { failures.Add(1) },
			OnDone:  func(context.Context, Event) { done <- struct{}{} },
		},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-ended) })
	_, err = q.Enqueue(t.Context(), Item{Kind: "k"})
	require.NoError(t, err)
	<-done
	part, err := keys.New(keys.DefaultPrefix, name, 0)
	require.NoError(t, err)
	require.NoError(t, rdb.Set(t.Context(), part.Key("due"), "not a set", 0).Err())
	require.Eventually(t, func() bool { return failures.Load() > 1 }, 10*time.Second, 5*time.Millisecond)
	require.Never(t, func() bool { return failures.Load() > 25 }, 1500*time.Millisecond, 20*time.Millisecond, "errors in a second and a half")
	require.NoError(t, rdb.Del(t.Context(), part.Key("due")).Err())
	_, err = q.Enqueue(t.Context(), Item{Kind: "k"})
	require.NoError(t, err)
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		require.FailNow(t, "the consumer does not work again")
	}
}
