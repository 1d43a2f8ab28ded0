package reliable_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

// quick are options with a short lease and hardly any back-off.
func quick() *reliable.QueueOptions {
	return &reliable.QueueOptions{
		Lease:   300 * time.Millisecond,
		Backoff: reliable.Backoff{Base: time.Millisecond, Cap: 2 * time.Millisecond},
	}
}

func intp(n int) *int { return &n }

// newQueue makes a queue on the shared server, closed and checked when the test ends.
func newQueue(t *testing.T, o *reliable.QueueOptions) *reliable.Queue {
	t.Helper()
	name := redistest.Queue(t)
	return queueOn(t, redistest.Client(t), name, o)
}

func queueOn(t *testing.T, rdb redis.UniversalClient, name string, o *reliable.QueueOptions) *reliable.Queue {
	t.Helper()
	q, err := reliable.New(rdb, name, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, q.Close(ctx))
	})
	return q
}

// runConsumer runs a consumer until the test ends, or stop is called, which returns Run's error.
func runConsumer(t *testing.T, q *reliable.Queue, h reliable.Handler, o *reliable.ConsumerOptions) (stop func() error) {
	t.Helper()
	c, err := reliable.NewConsumer(q, h, o)
	require.NoError(t, err)
	return runUntilStopped(t, c.Run)
}

// runUntilStopped calls run, and ends its context when the test ends, or stop is called, which returns its error.
func runUntilStopped(t *testing.T, run func(context.Context) error) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	var result error
	go func() {
		defer close(ended)
		result = run(ctx)
	}()
	stop = func() error {
		cancel()
		<-ended
		return result
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

func put(t *testing.T, q *reliable.Queue, items ...reliable.Item) []string {
	t.Helper()
	results, err := q.EnqueueMany(t.Context(), items)
	require.NoError(t, err)
	ids := make([]string, len(results))
	for i, r := range results {
		require.NoError(t, r.Err)
		ids[i] = r.ID
	}
	return ids
}

func job(kind string) reliable.Item {
	return reliable.Item{Kind: kind, Payload: []byte("payload of " + kind)}
}

func jobs(kind string, n int) []reliable.Item {
	out := make([]reliable.Item, n)
	for i := range out {
		out[i] = job(kind)
	}
	return out
}

// await polls the queue's stats until they are as wanted.
func await(t *testing.T, q *reliable.Queue, what string, wanted func(s reliable.Stats) bool) reliable.Stats {
	t.Helper()
	var last reliable.Stats
	require.Eventually(t, func() bool {
		s, err := q.Stats(context.Background())
		last = s
		return err == nil && wanted(s)
	}, time.Minute, 5*time.Millisecond, "%s: %+v", what, &last)
	return last
}

// receive waits for a value with a bound.
func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(20 * time.Second):
		require.FailNow(t, "nothing was received")
		panic("unreachable")
	}
}
