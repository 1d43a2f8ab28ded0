package cases

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/internal/wire"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

// A claimed job's fence is Redis' clock in microseconds at the claim, plus its place in the batch.
type claimLog struct {
	mu    sync.Mutex
	fence map[string]int64
	twice []string
}

func (c *claimLog) note(job *reliable.Job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, again := c.fence[job.ID]; again {
		c.twice = append(c.twice, job.ID)
	}
	c.fence[job.ID] = job.Fence()
}

// clocks gives, of each job, what Redis' clock showed when it was claimed: the first fence of its batch. The fences of
// one batch follow each other without a gap, and a claim takes longer than the microseconds that its fences number.
func (c *claimLog) clocks() map[string]time.Time {
	ids := make([]string, 0, len(c.fence))
	for id := range c.fence {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b string) int { return int(c.fence[a] - c.fence[b]) })
	out := make(map[string]time.Time, len(ids))
	first, last := int64(0), int64(-1)
	for _, id := range ids {
		if c.fence[id] != last+1 {
			first = c.fence[id]
		}
		last = c.fence[id]
		out[id] = time.UnixMicro(first)
	}
	return out
}

// Thousands of jobs fall due at microseconds all over a few seconds. How late they start is logged and not judged: at
// full numbers it is a matter of how many jobs a second the machine gets through.
func TestS64_NothingStartsBeforeTheInstantItWasAskedFor(t *testing.T) {
	t.Parallel()
	n, spread := shape(1000, 10_000), shape(800*time.Millisecond, 3*time.Second)
	l := newLane(t, nil)
	base := l.serverTime().Add(shape(1500*time.Millisecond, 5*time.Second))
	items := numberedItems("j", n)
	asked := make(map[string]time.Time, n)
	for i := range items {
		items[i].At = base.Add(time.Duration(rand.Int64N(int64(spread)))) // with nanoseconds
		asked[items[i].ID] = items[i].At
	}
	l.enqueue(items...)
	l.dueAt(asked)

	log := &claimLog{fence: map[string]int64{}}
	stop := l.consume(func(_ context.Context, job *reliable.Job) error {
		log.note(job)
		return nil
	}, &reliable.ConsumerOptions{WakeFallback: 50 * time.Millisecond})
	require.Less(t, l.serverTime(), base, "the case was not met: enqueueing took too long")
	require.Eventually(t, func() bool { return l.stats().Counters["acked"] == int64(n) }, time.Minute, 20*time.Millisecond)
	stop()
	require.Empty(t, log.twice)
	require.Len(t, log.fence, n)
	log.lateness(t, asked)
	l.balanced(n)
}

// lateness asserts that nothing was claimed before its instant, and returns how long after it, the shortest first.
func (c *claimLog) lateness(t testing.TB, asked map[string]time.Time) []time.Duration {
	t.Helper()
	var all []time.Duration
	for id, at := range c.clocks() {
		late := at.Sub(asked[id])
		require.GreaterOrEqual(t, late, time.Duration(0), "%s was claimed too early", id)
		all = append(all, late)
	}
	slices.Sort(all)
	n := len(all)
	t.Logf("late by p50 %v, p99 %v, at most %v", all[n/2], all[n*99/100], all[n-1])
	return all
}

// An idle Consumer is there at the instant, and not at its next look around, which is a minute away. The median is
// judged, by the contract's bound for a free slot: single starts can be late by what else the machine does.
func TestS64_AnIdleConsumerStartsAJobAtItsInstant(t *testing.T) {
	t.Parallel()
	const n = 30
	l := newLane(t, nil)
	log := &claimLog{fence: map[string]int64{}}
	stop := l.consume(func(_ context.Context, job *reliable.Job) error {
		log.note(job)
		return nil
	}, &reliable.ConsumerOptions{WakeFallback: time.Minute})
	base := l.serverTime().Add(500 * time.Millisecond)
	items := numberedItems("j", n)
	asked := map[string]time.Time{}
	for i := range items {
		items[i].At = base.Add(time.Duration(i)*40*time.Millisecond + time.Duration(rand.Int64N(int64(time.Millisecond))))
		asked[items[i].ID] = items[i].At
	}
	l.enqueue(items...)
	require.Eventually(t, func() bool { return l.stats().Counters["acked"] == n }, 30*time.Second, 20*time.Millisecond)
	stop()
	require.Less(t, log.lateness(t, asked)[n/2], 250*time.Millisecond)
}

// dueAt asserts that the stored due times are the instants asked for, rounded up to milliseconds.
func (l *lane) dueAt(asked map[string]time.Time) {
	l.t.Helper()
	all, err := l.rdb.ZRangeWithScores(l.t.Context(), l.keys.Key("due"), 0, -1).Result()
	require.NoError(l.t, err)
	require.Len(l.t, all, len(asked))
	for _, z := range all {
		wait := time.UnixMilli(int64(z.Score)).Sub(asked[z.Member.(string)])
		require.True(l.t, wait >= 0 && wait < time.Millisecond, "%s is due %v after the instant asked for", z.Member, wait)
	}
}

// within asserts that a stored time is now + d, rounded up: not before the first reading of the clock around the call
// + d, and not more than two milliseconds after the second + d (one for each of the two that are rounded up).
func (l *lane) within(what string, b *bracket, place lease.Place, id string, d time.Duration) {
	l.t.Helper()
	score, err := l.rdb.ZScore(l.t.Context(), l.keys.Key(string(place)), id).Result()
	require.NoError(l.t, err, what)
	from, to := b.last()
	at := time.UnixMilli(int64(score))
	require.False(l.t, at.Before(from.Add(d)), "%s: %v early", what, from.Add(d).Sub(at))
	require.False(l.t, at.After(to.Add(d).Add(2*time.Millisecond)), "%s: %v late", what, at.Sub(to.Add(d)))
}

// Each call runs in a MULTI between two readings of the clock, so that what it stored can be judged to the millisecond.
func TestS64_StoredTimesAreRoundedUpNeverDown(t *testing.T) {
	t.Parallel()
	rdb, hook := bracketed(t)
	name := redistest.Queue(t)
	l := laneOn(t, name, rdb, nil)
	ctx := t.Context()
	for round := range shape(30, 500) {
		d := time.Duration(1 + rand.Int64N(int64(5*time.Second)))
		if round == 0 {
			d = 1 // a nanosecond is not at once
		}
		id := strconv.Itoa(round)
		what := func(call string) string { return fmt.Sprintf("%s by %v", call, d) }
		_, err := l.store.Enqueue(ctx, []lease.Item{{ID: id, Record: []byte("r"), Delay: d}})
		require.NoError(t, err)
		l.within(what("enqueue delayed"), hook, lease.Due, id, d)

		held := l.claimStored(id, lease.DefaultLease+d)
		l.within(what("lease longer"), hook, lease.Processing, id, lease.DefaultLease+d)
		_, err = l.store.Extend(ctx, lease.DefaultLease+2*d, []lease.Held{{ID: id, Token: held.Token}})
		require.NoError(t, err)
		l.within(what("extend"), hook, lease.Processing, id, lease.DefaultLease+2*d)
		for _, op := range []lease.Op{lease.Nack, lease.Release} {
			require.NoError(t, l.settleOne(lease.Verdict{Op: op, ID: id, Token: held.Token, Delay: d, Reason: "r"}))
			l.within(what("settle "+string(op)), hook, lease.Due, id, d)
			held = l.claimStored(id, 0)
			l.within("the published lease", hook, lease.Processing, id, lease.DefaultLease)
		}
		require.NoError(t, l.settleOne(lease.Verdict{Op: lease.Ack, ID: id, Token: held.Token}))
	}
}

// A sweep puts a job off by the queue's expiry back-off: that too is rounded up.
func TestS64_AnExpiryBackoffIsRoundedUpNeverDown(t *testing.T) {
	t.Parallel()
	rdb, hook := bracketed(t)
	backoff := 100 * time.Millisecond
	l := laneOn(t, redistest.Queue(t), rdb, &reliable.QueueOptions{ExpiryBackoff: reliable.Backoff{Base: backoff, Cap: time.Second}})
	l.enqueue(numberedItems("j", 1)...)
	for round := range 4 {
		l.setScores(lease.Due, "1", "j0")
		l.claimExactly(1)
		l.setScores(lease.Processing, "1", "j0")
		got := l.sweep(1)
		require.Equal(t, 1, got.ToDue)
		l.within("expiry back-off", hook, lease.Due, "j0", backoff<<round)
	}
}

// Whoever asks for the longest time there is gets it or is refused, and never a time that is over.
func TestS64_TheLongestDelayIsNotOver(t *testing.T) {
	t.Parallel()
	const forever, years = time.Duration(math.MaxInt64), 365 * 24 * time.Hour
	l := newLane(t, &reliable.QueueOptions{MaxDelay: 100 * years})
	for _, item := range []reliable.Item{{Kind: "case", Delay: forever}, {Kind: "case", At: time.Now().Add(forever)}} {
		_, err := l.queue.Enqueue(t.Context(), item)
		require.ErrorContains(t, err, "at most 100 years")
	}
	l.enqueue(reliable.Item{Kind: "case", ID: "nacked"}, reliable.Item{Kind: "case", ID: "released"})
	held := l.claimExactly(2)
	require.Contains(t, held, "nacked")
	require.Contains(t, held, "released")
	require.NoError(t, held["nacked"].Extend(t.Context(), forever))
	require.NoError(t, held["nacked"].Nack(t.Context(), reliable.RetryAfter(forever, errors.New("not in this life"))))
	require.NoError(t, held["released"].Nack(t.Context(), reliable.ReleaseAfter(forever, nil)))
	l.enqueue(reliable.Item{Kind: "case", ID: "delayed", Delay: 99 * years})
	results, err := l.store.Enqueue(t.Context(), []lease.Item{{ID: "stored", Record: wire.Stub(), Delay: 100 * years}})
	require.NoError(t, errors.Join(err, results[0]))
	require.Empty(t, l.claim(10))
	at := l.serverTime().Add(98 * years)
	for _, id := range []string{"delayed", "nacked", "released", "stored"} {
		require.True(t, l.inspect(id).At.After(at), "%s is due at %v", id, l.inspect(id).At)
	}
}

// claimStored makes the lane's only job due, and claims it.
func (l *lane) claimStored(id string, length time.Duration) lease.Lease {
	l.t.Helper()
	l.setScores(lease.Due, "1", id)
	got, err := l.store.Claim(l.t.Context(), 1, &lease.ClaimOptions{Lease: length})
	require.NoError(l.t, err)
	require.Len(l.t, got.Jobs, 1)
	return got.Jobs[0]
}

func (l *lane) settleOne(v lease.Verdict) error {
	l.t.Helper()
	got, err := l.store.Settle(l.t.Context(), []lease.Verdict{v})
	return errors.Join(err, got[0].Err)
}

// Sweepers run all the time while leases run out at milliseconds all over a second. An ended lease's job is due at the
// very millisecond at which the sweep ran, so that the two can be compared exactly. The late side is logged: here it says
// how long the sweepers got no processor time, and the reclaim bound has cases of its own.
func TestS64_NoLeaseEndsBeforeItsStoredExpiry(t *testing.T) {
	t.Parallel()
	n := shape(1000, 10_000)
	l := newLane(t, &reliable.QueueOptions{Lease: shape(500*time.Millisecond, 2*time.Second)})
	l.sweep(1) // so that the sweepers' first call is no gap
	l.sweepOn(nil)
	l.sweepOn(&lease.SweeperOptions{Batch: lease.MaxBatch})
	l.enqueue(numberedItems("j", n)...)
	expiry := map[string]int64{}
	for len(expiry) < n {
		got, err := l.store.Claim(t.Context(), 1+rand.IntN(50), nil)
		require.NoError(t, err)
		if len(got.Jobs) == 0 {
			continue
		}
		var held []lease.Held
		for _, job := range got.Jobs {
			held = append(held, lease.Held{ID: job.ID, Token: job.Token})
		}
		_, err = l.store.Extend(t.Context(), l.lease+time.Duration(rand.Int64N(int64(l.lease))), held)
		require.NoError(t, err)
		for _, one := range held {
			score, err := l.rdb.ZScore(t.Context(), l.keys.Key("processing"), one.ID).Result()
			if errors.Is(err, redis.Nil) {
				delete(expiry, one.ID) // it has run out already, and is claimed once more
				continue
			}
			require.NoError(t, err)
			expiry[one.ID] = int64(score)
		}
	}
	require.Eventually(t, func() bool { return l.stats().Processing == 0 }, 30*time.Second, 10*time.Millisecond)
	all, err := l.rdb.ZRangeWithScores(t.Context(), l.keys.Key("due"), 0, -1).Result()
	require.NoError(t, err)
	require.Len(t, all, n)
	worst := int64(0)
	for _, z := range all {
		late := int64(z.Score) - expiry[z.Member.(string)]
		require.GreaterOrEqual(t, late, int64(0), "%s: its lease ended early", z.Member)
		worst = max(worst, late)
	}
	t.Logf("at most %d ms after the stored expiry, %d graces", worst, l.stats().Counters["graces"])
}
