package cases

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

// Fifty handlers keep all ten connections of the client that they share with their Consumer in blocking reads, and wait
// for one another to get one. Whatever else of the Consumer waits behind them, its heartbeats do not: for three leases
// no lease comes near its end, and in the end each job is acked at its first attempt.
func TestBusyHandlersThatHoldEveryConnectionOfThePoolHoldUpNoHeartbeat(t *testing.T) {
	t.Parallel()
	const handlers, connections = 50, 10
	const block = 500 * time.Millisecond
	length := shape(1200*time.Millisecond, 5*time.Second)
	d := detourTo(t, func(o *redis.Options) {
		o.PoolSize, o.MaxActiveConns = connections, connections
		o.PoolTimeout = time.Minute
	})
	l := newLane(t, &reliable.QueueOptions{Lease: length})
	through, err := reliable.New(d.rdb, l.name, &reliable.QueueOptions{Lease: length})
	require.NoError(t, err)
	t.Cleanup(func() { closeBounded(t, through.Close) })

	never := "case:" + l.name + ":never"
	var began, reads, waited atomic.Int64
	over := make(chan struct{})
	lost := make(chan string, handlers)
	stop := consumeWith(t, through, reliable.HandlerFunc(func(ctx context.Context, job *reliable.Job) error {
		began.Add(1)
		for {
			select {
			case <-over:
				return nil
			default:
			}
			asked := time.Now()
			err := d.rdb.Do(ctx, "blpop", never, block.Seconds()).Err()
			switch {
			case errors.Is(err, redis.Nil):
				reads.Add(1)
				if time.Since(asked) > 3*block {
					waited.Add(1) // for a connection, twice as long as it then read
				}
			case err != nil:
				return err
			}
		}
	}), &reliable.ConsumerOptions{Concurrency: handlers, Hooks: &reliable.Hooks{
		OnLost: func(_ context.Context, e reliable.Event) { lost <- e.ID },
	}})
	l.enqueue(numberedItems("j", handlers)...)
	require.Eventually(t, func() bool { return began.Load() == handlers }, time.Minute, 5*time.Millisecond, "not all handlers run")

	least := l.leastLeft(handlers, 3*length)
	var full *redis.PoolStats // for an instant a connection is between two reads
	assert.Eventually(t, func() bool { full = d.rdb.PoolStats(); return full.IdleConns == 0 }, 5*block, time.Millisecond, "the pool was to be full")
	close(over)
	l.awaitAcked(handlers)
	stop()
	assert.EqualValues(t, connections, full.TotalConns, "connections of the pool")
	assert.NotZero(t, waited.Load(), "no handler had to wait for a connection: the case was not met")
	assert.Empty(t, lost, "leases lost")
	assert.Greater(t, least, length/3, "what was left of a lease at the least: a beat is due when two thirds are left")
	stats := l.stats()
	assert.EqualValues(t, handlers, stats.Counters["acked"])
	// Refused extends do not count: a heartbeat may still have been on its way when its job was acked.
	for _, counter := range []string{"expired", "nacked", "refused", "released"} {
		assert.Zero(t, stats.Counters[counter], counter)
	}
	assert.EqualValues(t, handlers, stats.Counters["claimed"], "each job was started once, at attempt 1")
	t.Logf("%d blocking reads, of which %d waited for a connection for a second and more; the least that was left of a lease of %v was %v",
		reads.Load(), waited.Load(), length, least)
}

// leastLeft watches the n leases of the queue for so long, by Redis' clock, and returns what was left of one at the
// least.
func (l *lane) leastLeft(n int, while time.Duration) (least time.Duration) {
	l.t.Helper()
	least = time.Hour
	for begun := time.Now(); time.Since(begun) < while; <-time.After(10 * time.Millisecond) {
		var lowest *redis.ZSliceCmd
		var size *redis.IntCmd
		var now *redis.TimeCmd
		_, err := l.rdb.TxPipelined(l.t.Context(), func(pipe redis.Pipeliner) error {
			now = pipe.Time(l.t.Context())
			lowest = pipe.ZRangeWithScores(l.t.Context(), l.keys.Key(string(lease.Processing)), 0, 0)
			size = pipe.ZCard(l.t.Context(), l.keys.Key(string(lease.Processing)))
			return nil
		})
		require.NoError(l.t, err)
		require.EqualValues(l.t, n, size.Val(), "leases")
		least = min(least, time.UnixMilli(int64(lowest.Val()[0].Score)).Sub(now.Val()))
	}
	return least
}

// awaitAcked waits until so many jobs were acked.
func (l *lane) awaitAcked(n int) {
	l.t.Helper()
	require.Eventually(l.t, func() bool { return l.stats().Counters["acked"] >= int64(n) }, time.Minute, 10*time.Millisecond)
}
