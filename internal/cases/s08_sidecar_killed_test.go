//go:build unix

package cases

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redisproc"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

// A churn is a queue of which leases run out all the time: whatever is due is claimed, and nobody ever settles. It
// counts the claims of each job, and holds the queue to them.
type churn struct {
	*lane
	server *redisproc.Server

	quit, ended chan struct{}
	claims      map[string]int           // by ID
	expiry      map[string]time.Time     // of the last lease, as stored
	late        map[string]time.Duration // the most that a job came back after that
	problems    []string
}

func newChurn(t *testing.T, jobs int) *churn {
	t.Helper()
	c := &churn{
		server: redistest.Server(t, nil), quit: make(chan struct{}), ended: make(chan struct{}),
		claims: map[string]int{}, expiry: map[string]time.Time{}, late: map[string]time.Duration{},
	}
	rdb := redis.NewClient(&redis.Options{Addr: c.server.Addr()})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	t.Cleanup(func() { redistest.CheckQueue(t, rdb, keys.DefaultPrefix, "orders") })
	c.lane = laneOn(t, "orders", rdb, &reliable.QueueOptions{
		Lease: shape(time.Second, 2*time.Second), MaxExpiries: limitOf(1_000_000),
	})
	require.Empty(t, c.claim(1)) // publishes the limits
	c.enqueue(numberedItems("J", jobs)...)
	return c
}

// run claims until stop is called.
func (c *churn) run() (stop func()) {
	go func() {
		defer close(c.ended)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-c.quit:
				return
			case <-tick.C:
				if err := c.claimDue(context.Background()); err != nil {
					c.problems = append(c.problems, err.Error())
				}
			}
		}
	}()
	var stopped bool
	stop = func() {
		if !stopped {
			stopped = true
			close(c.quit)
			<-c.ended
		}
	}
	c.t.Cleanup(stop)
	return stop
}

// claimDue claims some jobs. When a job was put back is its due time, by Redis' clock.
func (c *churn) claimDue(ctx context.Context) error {
	got, err := c.store.Claim(ctx, 32, nil)
	if err != nil || len(got.Jobs) == 0 {
		return err
	}
	ids := make([]string, len(got.Jobs))
	for i, job := range got.Jobs {
		ids[i] = job.ID
		if job.Expiries != c.claims[job.ID] || job.Failures != 0 {
			c.problem(job.ID, "was claimed %d times before, and has %d expiries and %d failures", c.claims[job.ID], job.Expiries, job.Failures)
		}
		c.claims[job.ID]++
		if was, ok := c.expiry[job.ID]; ok {
			late := job.Due.Sub(was)
			if late < 0 {
				c.problem(job.ID, "was put back %v before its lease ran out", -late)
			}
			c.late[job.ID] = max(c.late[job.ID], late)
		}
		delete(c.expiry, job.ID)
	}
	scores, err := c.rdb.ZMScore(ctx, c.keys.Key("processing"), ids...).Result()
	for i, score := range scores {
		if score > 0 { // else it has run out meanwhile
			c.expiry[ids[i]] = time.UnixMilli(int64(score))
		}
	}
	return err
}

func (c *churn) problem(id, format string, args ...any) {
	c.problems = append(c.problems, id+" "+fmt.Sprintf(format, args...))
}

// checkKeys requires that the server holds no key but the fixed ones, and that none of them has a time to live: nothing
// that a killed sidecar could have taken and not given back.
func (c *churn) checkKeys() {
	c.t.Helper()
	ctx := c.t.Context()
	all, err := c.rdb.Keys(ctx, "*").Result()
	require.NoError(c.t, err)
	require.NotEmpty(c.t, all)
	pipe := c.rdb.Pipeline()
	for _, key := range all {
		name, ours := strings.CutPrefix(key, strings.TrimSuffix(c.keys.Key("due"), "due"))
		require.True(c.t, ours && slices.Contains(keys.Names, name) || key == keys.Registry(keys.DefaultPrefix), "key %q is not documented", key)
		pipe.PTTL(ctx, key)
	}
	ttls, err := pipe.Exec(ctx)
	require.NoError(c.t, err)
	for i, ttl := range ttls {
		require.Contains(c.t, []time.Duration{-1, -2}, ttl.(*redis.DurationCmd).Val(), "key %q has a time to live", all[i]) // -2: it is gone
	}
}

// There is no leader, no lock and no key that says that somebody sweeps: two sidecars sweep the same queue, and one of
// them is killed at any moment of its sweeps, again and again; now and then it is frozen first, so that it stays in the
// middle of one. The other goes on, leases are ended on time, each once, and no key is left behind.
func TestS08_KilledSidecarHoldsUpNobody(t *testing.T) {
	t.Parallel()
	jobs, kills := shape(300, 2000), shape(12, 200)
	c := newChurn(t, jobs)
	survivor := startChild(t, "counting-sidecar", serverAt{Addr: c.server.Addr()})
	require.Eventually(t, func() bool { // it has swept once, and spares nobody any more
		sweep, err := c.rdb.HMGet(t.Context(), c.keys.Key("sweep"), "swept", "grace").Result()
		return err == nil && sweep[0] != nil && sweep[0].(string) >= sweep[1].(string)
	}, time.Minute, 5*time.Millisecond)
	graces, waited := c.stats().Counters["graces"], waitedForProcessor(survivor.Process.Pid)
	stop := c.run()

	moved, byVictims := 0, 0
	for kill := range kills {
		victim := startChild(t, "counting-sidecar", serverAt{Addr: c.server.Addr()})
		byVictims += readSwept(t, awaitFrom(t, victim.Lines, "a first sweep of the other sidecar")).moved
		<-time.After(rand.N(40 * time.Millisecond))
		if kill%4 == 3 {
			require.NoError(t, victim.Process.Signal(syscall.SIGSTOP))
		} else {
			victim.Kill()
		}
		c.checkKeys()
		for after := time.Now().UnixMicro(); ; {
			one := readSwept(t, awaitFrom(t, survivor.Lines, "a sweep of the survivor"))
			if moved += one.moved; one.at > after {
				break
			}
		}
		victim.Kill()
		for _, one := range victim.sweptSoFar(t) {
			byVictims += one.moved
		}
	}

	stop()
	require.Empty(t, c.problems)
	require.Eventually(t, func() bool { return c.stats().Processing == 0 }, time.Minute, 5*time.Millisecond, "the last leases are ended")
	waited = waitedForProcessor(survivor.Process.Pid) - waited
	require.NoError(t, survivor.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 0, survivor.Wait(), "the survivor's exit code")
	for _, one := range survivor.sweptSoFar(t) {
		moved += one.moved
	}
	c.check(jobs, moved, byVictims)
	// A sweeper that this machine does not let run is late by that, and may begin a grace.
	worst := time.Duration(0)
	for _, late := range c.late {
		worst = max(worst, late)
	}
	graces = c.stats().Counters["graces"] - graces
	assert.LessOrEqual(t, worst, reclaimBound+sweepBound+waited+time.Duration(graces)*c.lane.lease, "a job came back late")
	t.Logf("%d kills, %d leases ended: %d by the survivor, %d told by the killed; at most %v late, %d graces, the survivor waited %v for a processor",
		kills, c.stats().Counters["expired"], moved, byVictims, worst, graces, waited)
}

// sweptSoFar takes what a counting sidecar has said since the last call.
func (p *process) sweptSoFar(t testing.TB) (all []swept) {
	t.Helper()
	for {
		select {
		case line, ok := <-p.Lines:
			if !ok {
				return all
			}
			all = append(all, readSwept(t, line))
		default:
			return all
		}
	}
}

// check requires that each expiry was counted once: on the job, in the queue's counter, and by one sweeper, but for
// what a killed one had no time to say.
func (c *churn) check(jobs, bySurvivor, byVictims int) {
	c.t.Helper()
	claims := 0
	infos := map[string]reliable.Info{}
	due := c.members(lease.Due)
	require.Len(c.t, due, jobs)
	for page := range slices.Chunk(due, 500) {
		some, err := c.queue.Inspect(c.t.Context(), page...)
		require.NoError(c.t, err)
		for _, info := range some {
			infos[info.ID] = info
		}
	}
	for id, n := range c.claims {
		claims += n
		require.Equal(c.t, [2]int{0, n}, [2]int{infos[id].Failures, infos[id].Expiries}, "failures and expiries of %s", id)
	}
	counters := c.stats().Counters
	require.EqualValues(c.t, claims, counters["expired"])
	require.Zero(c.t, counters["died"])
	require.LessOrEqual(c.t, bySurvivor+byVictims, claims, "what the sweepers say that they moved")
	require.Positive(c.t, bySurvivor)
	c.balanced(jobs)
}
