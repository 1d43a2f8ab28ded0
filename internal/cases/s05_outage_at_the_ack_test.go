package cases

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/reliable"
)

// A networkLoss is a way in which a worker loses its network.
type networkLoss struct {
	Name       string
	Begin, End func(p *netfault.Proxy)
}

var networkLosses = []networkLoss{
	{"cut", (*netfault.Proxy).Cut, (*netfault.Proxy).Restore},
	{"black hole",
		func(p *netfault.Proxy) { p.BlackHole(true) },
		func(p *netfault.Proxy) { p.BlackHole(false) }},
}

// ackCrowd is the situation of S05: a worker behind a proxy holds so many jobs, whose handlers are about to return nil;
// a sidecar sweeps on a direct connection. The worker is never restarted.
type ackCrowd struct {
	*lane
	networkLoss
	d        *detour
	n        int
	starts   *tally
	extended chan struct{} // an extend was let through

	mu   sync.Mutex
	done int
	lost []error // the lease was lost, as a hook or an Ack said
	errs []error // every other error, as a hook or an Ack said
}

func newAckCrowd(t *testing.T, o networkLoss, lease time.Duration, n int) (*ackCrowd, *reliable.Queue) {
	t.Helper()
	s := &ackCrowd{networkLoss: o, n: n, extended: make(chan struct{}, 1)}
	options := &reliable.QueueOptions{Lease: lease}
	s.lane = newLane(t, options)
	s.claim(1) // publishes the policy
	sidecar(t, s.name)
	s.starts = newTally(t, s.name)
	s.d = detourTo(t, func(o *redis.Options) { o.ReadTimeout, o.DialTimeout = 500*time.Millisecond, 500*time.Millisecond })
	s.d.Decide(func(cmd []string) netfault.Action {
		if call, ok := scriptIn(cmd); ok && call.Name == "extend" {
			select {
			case s.extended <- struct{}{}:
			default:
			}
		}
		return netfault.Pass
	})
	s.enqueue(numberedItems("j", n)...)
	return s, newQueueOn(t, s.d.rdb, s.name, options)
}

func (s *ackCrowd) note(list *[]error, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*list = append(*list, err)
}

// ended is the outcome of an Ack.
func (s *ackCrowd) ended(err error) {
	switch {
	case err == nil:
		s.mu.Lock()
		s.done++
		s.mu.Unlock()
	case errors.Is(err, reliable.ErrLost):
		s.note(&s.lost, err)
	default:
		s.note(&s.errs, err)
	}
}

// told is how many jobs are done, and how many errors of each sort there were.
func (s *ackCrowd) told() (done, lost, errs int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done, len(s.lost), len(s.errs)
}

// consumed has the jobs held by a Consumer. Its handlers return when goOn is closed, and at once when they are started
// later.
func consumed(t *testing.T, s *ackCrowd, q *reliable.Queue, goOn <-chan struct{}) {
	t.Helper()
	running := newCountdown(s.n)
	consumeWith(t, q, reliable.HandlerFunc(func(_ context.Context, job *reliable.Job) error {
		s.starts.start(job.ID)
		running.done()
		<-goOn
		return nil
	}), &reliable.ConsumerOptions{
		Concurrency: s.n, NoSweep: true, WakeFallback: 50 * time.Millisecond,
		Hooks: &reliable.Hooks{
			OnDone:  func(context.Context, reliable.Event) { s.ended(nil) },
			OnLost:  func(_ context.Context, e reliable.Event) { s.ended(e.Err) },
			OnError: func(_ context.Context, e reliable.Event) { s.note(&s.errs, e.Err) },
		},
	})
	awaitFrom(t, running.all, "all jobs are in flight")
}

// claimedByHand has the jobs held by claims by hand, kept alive. When goOn is closed each is acked by a goroutine of its
// own; ones whose lease is lost come back to further claims of the same Queue.
func claimedByHand(t *testing.T, s *ackCrowd, q *reliable.Queue, goOn <-chan struct{}) {
	t.Helper()
	var acks sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(acks.Wait)
	t.Cleanup(stop)
	work := func(jobs []*reliable.Job) {
		for _, job := range jobs {
			s.starts.start(job.ID)
			acks.Go(func() {
				<-goOn
				s.ended(job.Ack(ctx))
			})
		}
	}
	batch, err := q.Claim(t.Context(), s.n, &reliable.ClaimOptions{KeepAlive: true})
	require.NoError(t, err)
	require.Len(t, batch.Jobs, s.n)
	work(batch.Jobs)
	acks.Go(func() {
		<-goOn
		for ctx.Err() == nil {
			batch, err := q.Claim(ctx, s.n, &reliable.ClaimOptions{KeepAlive: true, Wait: time.Minute})
			if err == nil {
				work(batch.Jobs)
			} else if ctx.Err() == nil {
				s.note(&s.errs, err)
			}
		}
	})
}

// ackHolders are the two ways in which a program holds jobs.
var ackHolders = map[string]func(t *testing.T, s *ackCrowd, q *reliable.Queue, goOn <-chan struct{}){
	"a consumer": consumed, "claims by hand": claimedByHand,
}

// cutAtTheAck puts every holder behind every loss of the network, all at one time: 50 jobs are in flight, the network
// goes just before their handlers return, right after the leases were extended, and comes back some time later; if so
// asked not before the sidecar has ended all leases, for which a busy machine may take longer.
func cutAtTheAck(t *testing.T, lease, lasts time.Duration, expired bool) map[string]*ackCrowd {
	t.Helper()
	sites := map[string]*ackCrowd{}
	goOn := map[string]chan struct{}{}
	for _, o := range networkLosses {
		for holder, hold := range ackHolders {
			name := holder + ", " + o.Name
			s, q := newAckCrowd(t, o, lease, 50)
			goOn[name] = make(chan struct{})
			sites[name] = s
			hold(t, s, q, goOn[name])
		}
	}
	var back sync.WaitGroup
	for name, s := range sites {
		select { // one that was extended before is of no use
		case <-s.extended:
		default:
		}
		awaitFrom(t, s.extended, "an extend")
		require.Eventually(t, func() bool { return s.leaseLeft() > lease*3/4 }, 20*time.Second, time.Millisecond, "the extend has run")
		s.Begin(s.d.Proxy)
		close(goOn[name])
		back.Add(1)
		time.AfterFunc(lasts, func() {
			defer back.Done()
			if expired {
				assert.Eventually(t, s.allExpired, 30*time.Second, 5*time.Millisecond, name)
			}
			s.End(s.d.Proxy)
		})
	}
	back.Wait()
	return sites
}

// leaseLeft is how long the lease lasts that runs out first.
func (s *ackCrowd) leaseLeft() time.Duration {
	now := s.serverTime()
	first, err := s.rdb.ZRangeWithScores(s.t.Context(), s.keys.Key("processing"), 0, 0).Result()
	if err != nil || len(first) == 0 {
		return 0
	}
	return time.UnixMilli(int64(first[0].Score)).Sub(now)
}

// allExpired says whether the sidecar has ended every lease.
func (s *ackCrowd) allExpired() bool {
	n, err := s.rdb.HGet(context.Background(), s.keys.Key("stats"), "expired").Int()
	return err == nil && n == s.n
}

// finished waits until every job is done, and requires that nothing is left in processing.
func (s *ackCrowd) finished(t *testing.T, name string) {
	t.Helper()
	require.Eventually(t, func() bool { done, _, _ := s.told(); return done == s.n }, 30*time.Second, 2*time.Millisecond, name)
	stats := s.stats()
	assert.Zero(t, stats.Processing+stats.Due+stats.Dead, name)
	assert.EqualValues(t, s.n, stats.Counters["acked"], name)
	assert.Zero(t, stats.Counters["nacked"]+stats.Counters["buried"]+stats.Counters["died"], name)
}

// startsAre requires the same number of starts for every job.
func (s *ackCrowd) startsAre(t *testing.T, name string, each int) {
	t.Helper()
	counts := s.starts.counts(t)
	require.Len(t, counts, s.n, name)
	for id, n := range counts {
		assert.Equal(t, each, n, "%s: starts of %s", name, id)
	}
}

// Run 1: the network is back before the leases have run out. The acks are repeated until they are answered, and nothing
// else ever happens to the jobs.
func TestS05_AcksOutliveAnOutageThatIsShorterThanTheLease(t *testing.T) {
	t.Parallel()
	lease := shape(4*time.Second, 2*time.Second)
	for name, s := range cutAtTheAck(t, lease, lease/2, false) {
		s.finished(t, name)
		s.startsAre(t, name, 1)
		_, lost, _ := s.told()
		assert.Zero(t, lost, name)
		stats := s.stats()
		assert.Zero(t, stats.Counters["expired"]+stats.Counters["refused"]+stats.Counters["released"], name)
	}
}

// Run 2: the network is back when the leases have run out and the sidecar has put the jobs back. Every single ack is
// refused and told, every job is given once more to the worker, which was not restarted, and then acked.
func TestS05_AcksOfAnOutageThatIsLongerThanTheLeaseAreAllToldAsLost(t *testing.T) {
	t.Parallel()
	lease := shape(1500*time.Millisecond, 2*time.Second)
	for name, s := range cutAtTheAck(t, lease, 3*lease, true) {
		// An ack that waits for its next try may be told later than the second run is over.
		require.Eventually(t, func() bool { _, lost, _ := s.told(); return lost >= s.n }, 30*time.Second, 2*time.Millisecond, name)
		s.finished(t, name)
		s.startsAre(t, name, 2)
		_, lost, errs := s.told()
		assert.Equal(t, s.n, lost, "%s: acks that were refused and told", name)
		if name == "a consumer, "+s.Name {
			assert.Positive(t, errs, "%s: errors told while there was no answer", name)
		}
		stats := s.stats()
		assert.EqualValues(t, s.n, stats.Counters["expired"], name)
		assert.EqualValues(t, s.n, stats.Counters["refused"], name)
	}
}

// An ack by hand whose caller does not wait for the network's return is told that nobody knows, 50 times, and each can
// be resolved when it is back.
func TestS05_AcksWhoseCallersDoNotWaitAreAllToldAsUnknown(t *testing.T) {
	t.Parallel()
	lease := shape(1500*time.Millisecond, 2*time.Second)
	s, q := newAckCrowd(t, networkLosses[0], lease, 50)
	batch, err := q.Claim(t.Context(), s.n, &reliable.ClaimOptions{KeepAlive: true})
	require.NoError(t, err)
	require.Len(t, batch.Jobs, s.n)
	s.Begin(s.d.Proxy)
	ctx, leave := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer leave()
	var acks sync.WaitGroup
	for _, job := range batch.Jobs {
		acks.Go(func() { s.ended(job.Ack(ctx)) })
	}
	acks.Wait()
	_, lost, _ := s.told()
	require.Zero(t, lost)
	require.Len(t, s.errs, s.n)
	require.Eventually(t, func() bool { return s.stats().Counters["expired"] == int64(s.n) }, 30*time.Second, 5*time.Millisecond)
	s.End(s.d.Proxy)
	for _, err := range s.errs {
		var unknown *reliable.UnknownError
		require.ErrorAs(t, err, &unknown)
		require.ErrorIs(t, unknown.Resolve(t.Context()), reliable.ErrNeverRan)
	}
	for _, job := range batch.Jobs {
		require.ErrorIs(t, job.Ack(t.Context()), reliable.ErrLost, fmt.Sprintf("%s, given again", job.ID))
	}
	again, err := q.Claim(t.Context(), s.n, &reliable.ClaimOptions{KeepAlive: true})
	require.NoError(t, err)
	require.Len(t, again.Jobs, s.n)
	for _, job := range again.Jobs {
		require.Equal(t, [2]int{0, 1}, [2]int{job.Failures, job.Expiries})
		s.ended(job.Ack(t.Context()))
	}
	s.finished(t, s.Name)
}
