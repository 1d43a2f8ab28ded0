package reliable_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/reliable"
)

// Consumers that are held back by the queue's concurrency wait, and one of them is woken up when a place is free: long
// before they would look by themselves.
func TestConsumersOfAFullQueueWaitForAPlace(t *testing.T) {
	t.Parallel()
	o := quick()
	o.Lease, o.Concurrency = 10*time.Second, 1
	q := newQueue(t, o)
	starts, release := make(chan time.Time, 10), make(chan struct{})
	var consumers []*reliable.Consumer
	for range 3 {
		c, _ := watched(t, q, reliable.HandlerFunc(func(context.Context, *reliable.Job) error {
			starts <- time.Now()
			<-release
			return nil
		}), &reliable.ConsumerOptions{Concurrency: 4, WakeFallback: 10 * time.Second, NoSweep: true})
		consumers = append(consumers, c)
	}
	put(t, q, jobs("k", 5)...)
	receive(t, starts)
	before := callsOf(t, q)
	<-time.After(2 * time.Second)
	assert.Less(t, callsOf(t, q)-before, 10, "they do not spin")
	assert.Empty(t, starts, "one at a time")
	for _, c := range consumers {
		require.NoError(t, c.Health(t.Context()))
	}
	for range 4 {
		freed := time.Now()
		release <- struct{}{}
		assert.Less(t, receive(t, starts).Sub(freed), 5*time.Second, "not at the fallback only")
		require.Empty(t, starts)
	}
	batch, err := q.Claim(t.Context(), 1, nil)
	require.NoError(t, err)
	assert.Empty(t, batch.Jobs)
	release <- struct{}{}
	await(t, q, "all acked", func(s reliable.Stats) bool { return s.Counters["acked"] == 5 })
}

func TestAClaimByHandThatIsHeldBackSaysWhy(t *testing.T) {
	t.Parallel()
	q := newQueue(t, &reliable.QueueOptions{Concurrency: 2})
	put(t, q, jobs("k", 3)...)
	batch, err := q.Claim(t.Context(), 3, nil)
	require.NoError(t, err)
	assert.Equal(t, []any{2, reliable.HeldConcurrency, time.Duration(0)}, []any{len(batch.Jobs), batch.Held, batch.NextDue})
	claimed := make(chan *reliable.Batch, 1)
	go func() {
		batch, err := q.Claim(context.Background(), 3, &reliable.ClaimOptions{Wait: 20 * time.Second})
		assert.NoError(t, err)
		claimed <- batch
	}()
	require.NoError(t, batch.Jobs[0].Ack(t.Context()))
	last := receive(t, claimed)
	require.Len(t, last.Jobs, 1, "a wait ends with a place")
	for _, job := range []*reliable.Job{batch.Jobs[1], last.Jobs[0]} {
		require.NoError(t, job.Ack(t.Context()))
	}
}

// A consumer that is held back by the rate sleeps until the next start is allowed, and starts then.
func TestAConsumerComesWhenTheRateAllowsTheNextStart(t *testing.T) {
	t.Parallel()
	q := newQueue(t, &reliable.QueueOptions{Rate: 1, RatePer: 1500 * time.Millisecond})
	put(t, q, jobs("k", 3)...)
	fences := make(chan int64, 3)
	c, _ := watched(t, q, reliable.HandlerFunc(func(_ context.Context, job *reliable.Job) error {
		fences <- job.Fence()
		return nil
	}), &reliable.ConsumerOptions{WakeFallback: 20 * time.Second})
	last := receive(t, fences)
	before := callsOf(t, q)
	for range 2 {
		next := receive(t, fences)
		assert.GreaterOrEqual(t, next-last, int64(1_489_000), "not before its time")
		assert.Less(t, next-last, int64(6_500_000), "not at the fallback only")
		last = next
	}
	assert.Less(t, callsOf(t, q)-before, 15, "it does not spin")
	require.NoError(t, c.Health(t.Context()))
	put(t, q, job("k"))
	batch, err := q.Claim(t.Context(), 1, nil)
	require.NoError(t, err)
	assert.Equal(t, []any{0, reliable.HeldRate}, []any{len(batch.Jobs), batch.Held})
	assert.Positive(t, batch.NextDue)
	receive(t, fences)
}
