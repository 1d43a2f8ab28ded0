package cases

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

// newClockedSite has jobs claimed by hand, each for so long, and then a worker and a sidecar, at a server whose clock can
// be stepped.
func newClockedSite(t *testing.T, length time.Duration, held int, heldFor time.Duration) (*deploySite, *serverClock, []*reliable.Job) {
	t.Helper()
	redistest.NeedServer(t)
	server, clock := clockedServer(t)
	c := crashConfig{
		Server: serverAt{Addr: server.Addr()}, Queue: fmt.Sprintf("clocked-%x", rand.Uint64()), Marks: marksFile(t),
		Lease: length, MaxRetries: 2, MaxExpiries: 2, Concurrency: 16, Fallback: 250 * time.Millisecond,
	}
	s := &deploySite{crashSite: &crashSite{crashConfig: c, lane: laneOn(t, c.Queue, clock.rdb, c.queueOptions())}, Drain: 20 * time.Second}
	s.beside = s.Server.client(1)
	t.Cleanup(func() {
		require.NoError(t, s.beside.Close())
		redistest.CheckQueue(t, clock.rdb, keys.DefaultPrefix, c.Queue)
	})
	for i := range held {
		s.enqueue(deployJob{}.item(fmt.Sprintf("held-%d", i)))
	}
	batch, err := s.queue.Claim(t.Context(), held, &reliable.ClaimOptions{Lease: heldFor}) // which publishes the limits
	require.NoError(t, err)
	require.Len(t, batch.Jobs, held)
	startChild(t, "logging-sidecar", c)
	s.awaitSwept(t)
	s.deployWorker(t, "worker", nil)
	return s, clock, batch.Jobs
}

// Redis' clock steps back. What is due or runs out later is late by as much, at most, and that is all: running jobs go
// on, new ones are started at once, nothing is lost, and nothing is counted that did not happen.
func TestS67_AServerClockThatStepsBackDelaysAndLosesNothing(t *testing.T) {
	t.Parallel()
	length, back, later := shape(1500*time.Millisecond, 2*time.Second), shape(2*time.Second, 30*time.Second), 2*time.Second
	s, clock, held := newClockedSite(t, length, 1, 3*length+shape(5*time.Second, 0)) // a busy machine takes its time until the step
	for i := range 4 {
		s.enqueue(deployJob{Work: back + 2*length}.item(fmt.Sprintf("running-%d", i)))
	}
	s.awaitMarks(t, "start", 4)
	due := map[string]time.Time{}
	for i := range 10 {
		item := deployJob{}.item(fmt.Sprintf("later-%d", i))
		item.Delay = later
		s.enqueue(item)
		due[item.ID] = s.dueOf(t, item.ID)
	}
	expiry := time.UnixMilli(s.expiry(t, held[0].ID))
	left := time.Until(expiry) // the step is still to come: both clocks are one
	require.Zero(t, s.count(t, "acked"), "the case was not met: the step comes too late")

	stepped := time.Now()
	clock.step(t, -back)
	s.enqueue(deployJob{}.item("new"))
	s.awaitMarks(t, "start", 5)
	assert.Less(t, time.Since(stepped), back, "until a job that came after the step is started")
	s.awaitCount(t, "acked", 4+10+1+1)
	took := time.Since(stepped)

	marks := readMarks(t, s.Marks)
	require.Equal(t, "new", marksOf(marks, "start")[4].ID, "nothing else is due sooner")
	for id, at := range due {
		starts := startsOf(marks, id)
		require.Len(t, starts, 1, id)
		assert.False(t, time.UnixMicro(starts[0].Clock).Before(at), "%s was started before it was due", id)
		assert.Equal(t, 1, starts[0].Attempt)
	}
	for i := range 4 {
		require.Len(t, startsOf(marks, fmt.Sprintf("running-%d", i)), 1, "a running job was started again")
	}
	again := startsOf(marks, held[0].ID)
	require.Len(t, again, 1)
	assert.Equal(t, 2, again[0].Attempt, "one expiry is counted for the job that nobody held any more")
	assert.Greater(t, again[0].Fence, held[0].Fence(), "fences grow over the step")
	assert.False(t, time.UnixMicro(again[0].Clock).Before(expiry), "a lease was ended before its stored expiry")
	// What was left of the lease, the step, and a grace with its quarter if the sweeps had a gap as well.
	assert.Less(t, took, left+back+length+length/4+shape(10*time.Second, time.Second), "until all is done")
	assert.EqualValues(t, 1, s.count(t, "expired"))
	for _, counter := range []string{"nacked", "died", "released", "refused"} {
		assert.Zero(t, s.count(t, counter), counter)
	}
	s.balanced(4 + 10 + 1 + 1)
	t.Logf("all was done %v after a step back by %v", took, back)
}

// Redis' clock steps an hour forward. Leases run out early, each is counted once, and what their old holders say is
// refused. Who extends is spared by a grace, and loses nothing.
func TestS67_AServerClockThatStepsForwardEndsLeasesEarlyAndCountsEachOnce(t *testing.T) {
	t.Parallel()
	const early = 6
	length := shape(1500*time.Millisecond, 2*time.Second)
	s, clock, held := newClockedSite(t, length, early, 10*time.Minute)
	for i := range 4 {
		s.enqueue(deployJob{Work: 2 * length}.item(fmt.Sprintf("running-%d", i)))
	}
	s.awaitMarks(t, "start", 4)
	item := deployJob{}.item("later")
	item.Delay = 30 * time.Minute
	s.enqueue(item)
	due := s.dueOf(t, item.ID)
	require.Zero(t, s.count(t, "expired"))

	stepped := time.Now()
	clock.step(t, time.Hour)
	s.awaitCount(t, "acked", early+4+1)
	assert.Less(t, time.Since(stepped), 10*time.Minute, "the leases were to run out early")
	for _, job := range held {
		require.ErrorIs(t, job.Ack(t.Context()), reliable.ErrLost, "an ack of the old holder of %s", job.ID)
	}

	marks := readMarks(t, s.Marks)
	for _, job := range held {
		starts := startsOf(marks, job.ID)
		require.Len(t, starts, 1, job.ID)
		assert.Equal(t, 2, starts[0].Attempt, "attempt of %s, after one expiry", job.ID)
		assert.Greater(t, starts[0].Fence, job.Fence())
	}
	for i := range 4 {
		require.Len(t, startsOf(marks, fmt.Sprintf("running-%d", i)), 1, "a running job was started again")
	}
	starts := startsOf(marks, "later")
	require.Len(t, starts, 1)
	assert.False(t, time.UnixMicro(starts[0].Clock).Before(due), "a job was started before it was due by Redis' clock")
	assert.EqualValues(t, early, s.count(t, "expired"))
	assert.EqualValues(t, early+4+1, s.count(t, "acked"))
	assert.EqualValues(t, early, s.count(t, "refused"))
	for _, counter := range []string{"nacked", "died", "released"} {
		assert.Zero(t, s.count(t, counter), counter)
	}
	s.balanced(early + 4 + 1)
}

// dueOf is when a job is due, as Redis has stored it.
func (s *crashSite) dueOf(t testing.TB, id string) time.Time {
	t.Helper()
	ms, err := s.rdb.ZScore(t.Context(), s.keys.Key(string(lease.Due)), id).Result()
	require.NoError(t, err)
	return time.UnixMilli(int64(ms))
}
