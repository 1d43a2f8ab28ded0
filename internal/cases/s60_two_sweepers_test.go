package cases

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

// Ten sweepers end the same leases at the same time: five as a sidecar runs them, with stores and connections of their
// own and a sweep every 5 ms, five as consumers run them. Every expiry is counted once, on the job and by one sweeper.
//
// The case also asks for concurrency counters that end at 0: there are none; what a queue holds is told by membership
// alone, and the check at the end of the test finds no lease outside of processing.
func TestS60_ManySweepersCountEveryExpiryOnce(t *testing.T) {
	t.Parallel()
	redistest.NeedServer(t)
	const limit = 99 // MAX = 100
	jobs, passes := shape(1000, 10_000), shape(4, 20)
	l := newLane(t, &reliable.QueueOptions{
		Lease: shape(300*time.Millisecond, 3*time.Second), MaxExpiries: limitOf(limit), MaxRetries: limitOf(limit),
	})
	require.Empty(t, l.claim(1)) // publishes the limits
	l.enqueue(numberedItems("J", jobs)...)
	var reaped []*atomic.Int64
	for range 5 {
		reaped = append(reaped, l.sweepEvery(5*time.Millisecond), l.sweepAsConsumersDo())
	}

	for pass := 1; pass <= passes; pass++ {
		held := map[string]bool{}
		for len(held) < jobs {
			got, err := l.store.Claim(t.Context(), min(lease.MaxBatch, jobs-len(held)), nil)
			require.NoError(t, err)
			require.NotEmpty(t, got.Jobs, "due in pass %d after %d jobs", pass, len(held))
			for _, job := range got.Jobs {
				require.False(t, held[job.ID], "%s was claimed twice in pass %d: it expired before all were claimed", job.ID, pass)
				require.Equal(t, pass-1, job.Expiries, "expiries of %s in pass %d", job.ID, pass)
				held[job.ID] = true
			}
		}
		require.Eventually(t, func() bool { return l.stats().Counters["expired"] >= int64(pass*jobs) },
			30*time.Second, 10*time.Millisecond, "pass %d", pass)
		require.EqualValues(t, pass*jobs, l.stats().Counters["expired"], "pass %d", pass)
	}

	due := l.members(lease.Due)
	assert.Len(t, due, jobs)
	assert.Empty(t, l.members(lease.Dead))
	assert.Empty(t, l.members(lease.Processing))
	l.balanced(jobs)
	for len(due) > 0 {
		page := due[:min(len(due), 1000)]
		due = due[len(page):]
		infos, err := l.queue.Inspect(t.Context(), page...)
		require.NoError(t, err)
		for _, info := range infos {
			require.Equal(t, [2]int{0, passes}, [2]int{info.Failures, info.Expiries}, "failures and expiries of %s", info.ID)
		}
	}
	want := int64(jobs * passes)
	sum, busy := int64(0), 0
	require.Eventually(t, func() bool { // a sweeper counts once it has its answer
		sum, busy = 0, 0
		for _, one := range reaped {
			sum += one.Load()
			if one.Load() > 0 {
				busy++
			}
		}
		return sum >= want
	}, 10*time.Second, 10*time.Millisecond)
	assert.Equal(t, want, sum, "what the sweepers say that they moved")
	assert.Greater(t, busy, 1, "sweepers that moved something")
	t.Logf("%d of %d sweepers moved %d leases", busy, len(reaped), sum)
}

// sweepAsConsumersDo runs a Sweeper on the lane's own store until the test ends. It returns what counts the leases it
// has ended.
func (l *lane) sweepAsConsumersDo() *atomic.Int64 {
	l.t.Helper()
	var reaped atomic.Int64
	l.sweepOn(&lease.SweeperOptions{OnSweep: func(e lease.Expired) { reaped.Add(int64(e.Moved())) }})
	return &reaped
}
