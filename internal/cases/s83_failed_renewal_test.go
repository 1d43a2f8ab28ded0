package cases

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

// tenHeld is the situation of S83: a worker behind a proxy holds ten jobs of three leases each, renewed every third of
// one; a sidecar sweeps on a direct connection. Times are told as in the case, whose lease is 20 s.
type tenHeld struct {
	*lane
	d      *detour
	o      *reliable.QueueOptions
	starts *tally
	stop   func()
	back   chan struct{} // closed when the jobs of handlers that were cancelled may return

	mu      sync.Mutex
	failing bool        // renewals are not answered
	renewed []time.Time // when renewals were sent
	claimed time.Time   // when the claim of the ten was sent, at the earliest
	held    []*heldJob
	lost    []error
	done    map[string]int // the attempt that was acked
}

type heldJob struct {
	*reliable.Job
	deadline  time.Time // when it was started
	cancelled time.Time
	last      time.Time // the local deadline when it was cancelled
	cause     error
}

// at scales a time of the case.
func (s *tenHeld) at(inCase time.Duration) time.Duration {
	return time.Duration(float64(inCase) * float64(s.o.Lease) / float64(20*time.Second))
}

// newTenHeld starts the worker, behind go-redis' default read timeout as it is to the case's lease. failing says that
// its first renewals are not answered.
func newTenHeld(t *testing.T, failing bool) *tenHeld {
	t.Helper()
	s := &tenHeld{
		o: &reliable.QueueOptions{Lease: shape(2*time.Second, 20*time.Second)}, failing: failing,
		back: make(chan struct{}), done: map[string]int{},
	}
	s.lane = newLane(t, s.o)
	s.claim(1) // publishes the policy
	sidecar(t, s.name)
	s.starts = newTally(t, s.name)
	s.enqueue(numberedItems("j", 10)...)
	s.d = detourTo(t, func(o *redis.Options) { o.ReadTimeout = s.at(3 * time.Second) })
	s.d.Delay(10 * time.Millisecond)
	s.d.Decide(s.decide)
	s.stop = consumeWith(t, newQueueOn(t, s.d.rdb, s.name, s.o), reliable.HandlerFunc(s.handle), &reliable.ConsumerOptions{
		Concurrency: 10, NoSweep: true, WakeFallback: 50 * time.Millisecond,
		Hooks: &reliable.Hooks{
			OnLost: func(_ context.Context, e reliable.Event) {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.lost = append(s.lost, e.Err)
			},
			OnDone: func(_ context.Context, e reliable.Event) {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.done[e.ID] = e.Attempt
			},
		},
	})
	return s
}

// decide is asked by the proxy. A renewal that fails is kept and never answered: the client gives up after its read
// timeout.
func (s *tenHeld) decide(cmd []string) netfault.Action {
	call, ok := scriptIn(cmd)
	if !ok {
		return netfault.Pass
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case call.is("claim") && len(s.held) < 10:
		s.claimed = time.Now()
	case call.Name == "extend":
		s.renewed = append(s.renewed, time.Now())
		if s.failing {
			return netfault.Hold
		}
	}
	return netfault.Pass
}

// answerRenewals has renewals answered from now on.
func (s *tenHeld) answerRenewals() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing = false
}

// handle works for three leases, once; a redelivered job is done at once. A handler that is cancelled returns when its
// verdict is bound to come too late.
func (s *tenHeld) handle(ctx context.Context, job *reliable.Job) error {
	s.starts.start(job.ID)
	if job.Attempt > 1 {
		return nil
	}
	h := &heldJob{Job: job, deadline: job.Deadline()}
	s.mu.Lock()
	s.held = append(s.held, h)
	s.mu.Unlock()
	select {
	case <-ctx.Done():
		s.mu.Lock()
		h.cancelled, h.last, h.cause = time.Now(), job.Deadline(), context.Cause(ctx)
		s.mu.Unlock()
		<-s.back
		return context.Cause(ctx)
	case <-time.After(3 * s.o.Lease):
		return nil
	}
}

// await polls what the test sees under its lock.
func (s *tenHeld) await(t *testing.T, what string, is func() bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return is()
	}, 5*s.o.Lease+20*time.Second, 2*time.Millisecond, what)
}

// startsAre requires the same number of starts for each of the ten.
func (s *tenHeld) startsAre(t *testing.T, each int) {
	t.Helper()
	counts := s.starts.counts(t)
	require.Len(t, counts, 10)
	for id, n := range counts {
		assert.Equal(t, each, n, "starts of %s", id)
	}
}

// Run 1: a renewal is not answered in time, the network is fine soon after. The next try comes long before the end of
// the leases, and nothing is lost.
func TestS83_AFailedRenewalIsTriedAgainLongBeforeTheLeaseEnds(t *testing.T) {
	t.Parallel()
	s := newTenHeld(t, true)
	s.await(t, "the first renewal", func() bool { return len(s.renewed) > 0 })
	<-time.After(s.at(1300 * time.Millisecond)) // from 6.7 s to 8 s
	s.answerRenewals()
	s.await(t, "ten acks", func() bool { return len(s.done) == 10 })
	s.stop()

	s.mu.Lock()
	defer s.mu.Unlock()
	first, second := s.renewed[0].Sub(s.claimed), s.renewed[1].Sub(s.renewed[0])
	assert.Less(t, second, s.at(3*time.Second)+time.Second, "the client's timeout, and at most a second of back-off")
	assert.Less(t, first+second, s.o.Lease, "the next try is well before the end of the lease")
	t.Logf("renewals at %v and %v after the claim", first, first+second)
	s.startsAre(t, 1)
	for _, h := range s.held {
		assert.Zero(t, h.cancelled, "%s was cancelled", h.ID)
	}
	stats := s.stats()
	assert.EqualValues(t, 10, stats.Counters["acked"])
	assert.Zero(t, stats.Counters["expired"])
	assert.Zero(t, stats.Counters["refused"])
}

// Run 2: no renewal is answered until after the end of the leases. All ten contexts end one lease after the last success
// was sent, here the claim: every packet takes a while, so that an end measured from the answer would be later. The late
// verdicts are refused, since the sidecar has put the jobs back, and each is delivered once more.
func TestS83_WithoutAnyRenewalTheContextsEndWithTheLeasesAndLateVerdictsAreRefused(t *testing.T) {
	t.Parallel()
	s := newTenHeld(t, true)
	s.await(t, "ten contexts that ended", func() bool {
		n := 0
		for _, h := range s.held {
			if !h.cancelled.IsZero() {
				n++
			}
		}
		return n == 10
	})
	require.Eventually(t, func() bool { return s.stats().Counters["expired"] == 10 }, 20*time.Second, 2*time.Millisecond)
	s.answerRenewals()
	close(s.back)
	s.await(t, "ten acks", func() bool { return len(s.done) == 10 })
	s.stop()

	s.mu.Lock()
	defer s.mu.Unlock()
	require.Len(t, s.held, 10)
	for _, h := range s.held {
		assert.Equal(t, h.deadline, h.last, "nothing was extended")
		assert.LessOrEqual(t, h.deadline, s.claimed.Add(s.o.Lease), "one lease from when the claim was sent")
		assert.GreaterOrEqual(t, h.cancelled.Sub(h.deadline), time.Duration(0), h.ID)
		assert.LessOrEqual(t, h.cancelled.Sub(h.deadline), 250*time.Millisecond, h.ID)
		assert.ErrorIs(t, h.cause, reliable.ErrLost)
	}
	assert.Len(t, s.lost, 10, "late verdicts that were refused")
	s.startsAre(t, 2)
	for id, attempt := range s.done {
		assert.Equal(t, 2, attempt, id)
	}
	stats := s.stats()
	assert.EqualValues(t, 10, stats.Counters["acked"])
	assert.EqualValues(t, 10, stats.Counters["expired"])
	assert.EqualValues(t, 10, stats.Counters["refused"])
	assert.Zero(t, stats.Counters["released"]+stats.Counters["nacked"])
}

// Run 3: of the ten leases in one renewal one is answered as lost. Only that job's context ends.
func TestS83_OneLostAnswerInABatchCancelsThatJobAlone(t *testing.T) {
	t.Parallel()
	s := newTenHeld(t, false)
	s.await(t, "ten starts", func() bool { return len(s.held) == 10 })
	// Somebody ends the lease of j4 with its token, as a sweeper might; a second worker, direct, waits for work.
	elsewhere := make(chan *reliable.Job, 10)
	s.consume(func(_ context.Context, job *reliable.Job) error {
		s.starts.start(job.ID)
		elsewhere <- job
		return nil
	}, &reliable.ConsumerOptions{Concurrency: 1, NoSweep: true, WakeFallback: 20 * time.Millisecond})
	token := s.rdb.HGet(t.Context(), s.keys.Key("leases"), "j4").Val()
	ended, err := s.store.Settle(t.Context(), []lease.Verdict{{Op: lease.Release, ID: "j4", Token: token}})
	require.NoError(t, err)
	require.NoError(t, ended[0].Err)
	redelivered := awaitFrom(t, elsewhere, "the redelivery")
	close(s.back)
	s.await(t, "nine acks", func() bool { return len(s.done) == 9 })
	s.stop()

	s.mu.Lock()
	defer s.mu.Unlock()
	assert.Equal(t, "j4", redelivered.ID)
	assert.Empty(t, elsewhere)
	for _, h := range s.held {
		if h.ID != "j4" {
			assert.Zero(t, h.cancelled, "%s was cancelled", h.ID)
			continue
		}
		assert.ErrorIs(t, h.cause, reliable.ErrLost)
		assert.True(t, h.cancelled.Before(h.last), "it was told by the answer, before its local deadline")
	}
	assert.Len(t, s.lost, 1)
	assert.NotContains(t, s.done, "j4", "acked here")
	counts := s.starts.counts(t)
	require.Len(t, counts, 10)
	for id, n := range counts {
		want := 1
		if id == "j4" {
			want = 2
		}
		assert.Equal(t, want, n, "starts of %s", id)
	}
	stats := s.stats()
	assert.EqualValues(t, 10, stats.Counters["acked"])
	assert.Zero(t, stats.Counters["expired"])
}
