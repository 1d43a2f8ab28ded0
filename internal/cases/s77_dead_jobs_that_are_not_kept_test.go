package cases

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

// A queue keeps 1,000 dead jobs, and 5,000 of 10 KB die at once. A sweeper forgets 4,000, records and all; one that is
// forgotten is not found any more; the memory is that of what is kept; and no call takes long.
func TestS77_OfDeadJobsThatAreTooManyNothingIsLeft(t *testing.T) {
	t.Parallel()
	redistest.NeedServer(t)
	die, keep, size := shape(1000, 5000), shape(200, 1000), 10_000
	server := redistest.Server(t, nil)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	l := laneOn(t, "kept", rdb, &reliable.QueueOptions{DeadKeep: &keep})
	_, err := l.queue.Claim(t.Context(), 1, nil) // which publishes it
	require.NoError(t, err)
	empty := memory(t, rdb)
	for n := 0; n < die; n += 500 {
		items := make([]reliable.Item, 500)
		for i := range items {
			items[i] = reliable.Item{ID: fmt.Sprintf("job-%d", n+i), Kind: "case", Payload: make([]byte, size)}
		}
		l.enqueue(items...)
		for left := 500; left > 0; { // the records of one claim are bounded
			claimed, err := l.store.Claim(t.Context(), left, nil)
			require.NoError(t, err)
			var verdicts []lease.Verdict
			for _, job := range claimed.Jobs {
				verdicts = append(verdicts, lease.Verdict{Op: lease.Bury, ID: job.ID, Token: job.Token, Reason: "dead"})
			}
			_, err = l.store.Settle(t.Context(), verdicts)
			require.NoError(t, err)
			left -= len(verdicts)
		}
	}
	require.EqualValues(t, die, l.stats().Dead)
	require.NoError(t, rdb.ConfigSet(t.Context(), "slowlog-log-slower-than", "50000").Err())
	require.NoError(t, rdb.Do(t.Context(), "slowlog", "reset").Err())

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = l.sweeper.Run(ctx) }()
	require.Eventually(t, func() bool { return l.stats().Dead == int64(keep) }, time.Minute, 10*time.Millisecond)
	cancel()
	<-ended
	stats := l.stats()
	assert.EqualValues(t, keep, stats.Records, "members without records, or records without members")
	assert.EqualValues(t, die-keep, stats.Counters["trimmed"])
	slow, err := rdb.SlowLogGet(t.Context(), 10).Result()
	require.NoError(t, err)
	assert.Empty(t, slow, "calls of over 50 ms")

	gone, err := l.queue.Purge(t.Context(), reliable.Dead, "job-0")
	require.NoError(t, err)
	require.ErrorIs(t, gone[0], reliable.ErrGone)
	_, err = l.queue.Get(t.Context(), "job-0")
	require.ErrorIs(t, err, reliable.ErrGone)
	var each float64
	require.Eventually(t, func() bool { // the server frees the buffers of quiet connections after some seconds
		each = float64(memory(t, rdb)-empty) / float64(keep)
		return math.Abs(each-float64(size+300)) < 0.2*float64(size+300)
	}, 20*time.Second, 100*time.Millisecond, "bytes a job that is kept: %v", &each)
	redistest.CheckQueue(t, rdb, "leaseq", "kept")
}

func memory(t *testing.T, rdb *redis.Client) int64 {
	t.Helper()
	require.NoError(t, rdb.Do(t.Context(), "memory", "purge").Err())
	info, err := rdb.InfoMap(t.Context(), "memory").Result()
	require.NoError(t, err)
	var n int64
	_, err = fmt.Sscan(info["Memory"]["used_memory_dataset"], &n)
	require.NoError(t, err)
	return n
}
