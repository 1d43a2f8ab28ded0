package cases

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/reliable"
)

// ackSite is the situation of S23: a worker behind a proxy that makes its settles fail, whose handlers return nil; a
// sidecar sweeps on a direct connection.
type ackSite struct {
	*lane
	d      *detour
	fail   *failer
	starts *tally
	o      *reliable.QueueOptions

	mu     sync.Mutex
	told   map[string][]string // hooks by job ID, but for OnStart
	errors int                 // OnError
	ended  chan string         // job IDs of OnDone and OnLost
}

func newAckSite(t *testing.T) *ackSite {
	t.Helper()
	s := &ackSite{
		o:    &reliable.QueueOptions{Lease: shape(3*time.Second, 2*time.Second)},
		told: map[string][]string{}, ended: make(chan string, 100),
	}
	s.lane = newLane(t, s.o)
	s.claim(1) // publishes the policy
	sidecar(t, s.name)
	s.starts = newTally(t, s.name)
	s.d = detourTo(t, func(o *redis.Options) { o.ReadTimeout, o.MaxRetries = 300*time.Millisecond, -1 })
	s.fail = newFailer(s.d.Proxy, scriptName)
	return s
}

// work runs a consumer behind the proxy; what it settles by the handler's return is told to the site.
func (s *ackSite) work(t *testing.T, h reliable.HandlerFunc, o *reliable.ConsumerOptions) (stop func()) {
	t.Helper()
	note := func(what string, end bool) func(context.Context, reliable.Event) {
		return func(_ context.Context, e reliable.Event) {
			s.mu.Lock()
			s.told[e.ID] = append(s.told[e.ID], what)
			s.mu.Unlock()
			if end {
				s.ended <- e.ID
			}
		}
	}
	o.NoSweep, o.WakeFallback = true, 50*time.Millisecond
	o.Hooks = &reliable.Hooks{
		OnDone: note("done", true), OnLost: note("lost", true), OnRetry: note("retry", false), OnDead: note("dead", false),
		OnRelease: note("release", false), OnCancelled: note("cancelled", false),
		OnError: func(context.Context, reliable.Event) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.errors++
		},
	}
	return consumeWith(t, newQueueOn(t, s.d.rdb, s.name, s.o), reliable.HandlerFunc(func(ctx context.Context, job *reliable.Job) error {
		s.starts.start(job.ID)
		return h(ctx, job)
	}), o)
}

// ackErrors is how many errors the consumer has told so far.
func (s *ackSite) ackErrors() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.errors
}

// heard is what the consumer said of a job.
func (s *ackSite) heard(id string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.told[id]
}

// uncounted requires that the job is where it is without any failure, or reason of one.
func (s *ackSite) uncounted(t *testing.T, id string) {
	t.Helper()
	info := s.inspect(id)
	assert.Zero(t, info.Failures, "failures of %s", id)
	assert.Zero(t, info.Expiries, "expiries of %s", id)
	assert.Empty(t, info.Errors, "reasons of %s", id)
}

// onlyAcked requires that n jobs were acked in all, and that nothing else ever happened to a job.
func (s *ackSite) onlyAcked(t *testing.T, n int) {
	t.Helper()
	stats := s.stats()
	assert.EqualValues(t, n, stats.Counters["acked"])
	for _, other := range []string{"nacked", "released", "buried", "expired", "died", "refused"} {
		assert.Zero(t, stats.Counters[other], other)
	}
	assert.Zero(t, stats.Processing+stats.Due+stats.Dead)
	errs, err := s.rdb.HLen(t.Context(), s.keys.Key("errors")).Result()
	require.NoError(t, err)
	assert.Zero(t, errs, "reasons that were stored")
	for id, times := range s.starts.counts(t) {
		assert.Equal(t, 1, times, "starts of %s", id)
	}
}

// Every way in which the ack of one job can fail, three times in a row: it is repeated while the lease is kept, long
// after the job's own context ended, until Redis takes it. A nil result stays one.
func TestS23_AnAckThatFailsIsRepeatedAndIsNeverAFailureOfTheJob(t *testing.T) {
	t.Parallel()
	s := newAckSite(t)
	s.work(t, func(context.Context, *reliable.Job) error { return nil }, &reliable.ConsumerOptions{Concurrency: 1})
	for i, one := range failures {
		const times = 3
		id, before := fmt.Sprint("j", i), s.ackErrors()
		s.fail.arm("settle", one.Action, times)
		s.enqueue(reliable.Item{ID: id, Kind: "case"})
		require.Eventually(t, func() bool { return s.fail.failures("settle") > 0 }, 20*time.Second, time.Millisecond, one.Name)
		s.uncounted(t, id)
		require.Equal(t, id, awaitFrom(t, s.ended, "the ack: "+one.Name))
		assert.Equal(t, []string{"done"}, s.heard(id), one.Name)
		if !one.Ran { // else the first repeat already finds that it has run
			assert.Equal(t, times, s.fail.failures("settle"), one.Name)
		}
		assert.GreaterOrEqual(t, s.ackErrors()-before, 1, "errors told: %s", one.Name)
		s.fail.arm("settle", netfault.Pass, 0)
	}
	s.onlyAcked(t, len(failures))
}

// The job's context has ended in each way that there is when the handler returns nil, and the ack fails at first.
func TestS23_AJobWhoseContextHasJustEndedIsAckedOnAContextOfTheLibrarysOwn(t *testing.T) {
	t.Parallel()
	untilOver := func(ctx context.Context, _ *reliable.Job) error {
		<-ctx.Done()
		return nil
	}
	byHand := func(returned error) reliable.HandlerFunc {
		return func(ctx context.Context, job *reliable.Job) error {
			<-ctx.Done()
			err := job.Ack(ctx)
			var unknown *reliable.UnknownError
			if err != nil && !errors.As(err, &unknown) {
				return reliable.Discard(fmt.Errorf("an ack with a context that has ended told %w", err))
			}
			return returned
		}
	}
	for name, one := range map[string]struct {
		handler reliable.HandlerFunc
		o       reliable.ConsumerOptions
		fails   int
	}{
		"the job's timeout":                 {untilOver, reliable.ConsumerOptions{JobTimeout: 50 * time.Millisecond}, 2},
		"acked by hand, and nil returned":   {byHand(nil), reliable.ConsumerOptions{JobTimeout: 50 * time.Millisecond}, 1},
		"acked by hand, and error returned": {byHand(errors.New("the ack failed")), reliable.ConsumerOptions{JobTimeout: 50 * time.Millisecond}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newAckSite(t)
			s.fail.arm("settle", netfault.DropRequest, one.fails)
			stop := s.work(t, one.handler, &one.o)
			s.enqueue(reliable.Item{ID: "j", Kind: "case"})
			awaitFrom(t, s.ended, "the ack")
			stop()
			assert.Equal(t, []string{"done"}, s.heard("j"))
			s.onlyAcked(t, 1)
		})
	}
}

// Nobody extends, and the local deadline passes while the handler works. It returns nil then: what is sent is an ack all
// the same, which counts, since no sweep was there yet.
func TestS23_AnAckAfterTheLocalDeadlineIsStillAnAck(t *testing.T) {
	t.Parallel()
	s := newAckSite(t)
	alone := newLane(t, s.o) // nobody sweeps this one
	s.lane = alone
	s.starts = newTally(t, s.name)
	s.fail.arm("settle", netfault.DropRequest, 2)
	cause := make(chan error, 1)
	stop := s.work(t, func(ctx context.Context, _ *reliable.Job) error {
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return nil
	}, &reliable.ConsumerOptions{NoExtend: true})
	s.enqueue(reliable.Item{ID: "j", Kind: "case"})
	awaitFrom(t, s.ended, "the ack")
	stop()
	err := <-cause
	assert.True(t, errors.Is(err, reliable.ErrLost) || errors.Is(err, reliable.ErrJobTimeout), "%v", err) // both are one lease here
	s.onlyAcked(t, 1)
}

// The worker cannot reach Redis until its lease has run out: the sidecar puts the job back, somebody else does it, once,
// and the ack that comes at last is refused. That is an expiry, and no failure.
func TestS23_WhenTheLeaseRunsOutThereIsExactlyOneRedelivery(t *testing.T) {
	t.Parallel()
	s := newAckSite(t)
	s.fail.arm("settle", netfault.DropRequest, math.MaxInt)
	s.fail.arm("extend", netfault.DropRequest, math.MaxInt)
	stop := s.work(t, func(context.Context, *reliable.Job) error { return nil }, &reliable.ConsumerOptions{Concurrency: 1})
	s.enqueue(reliable.Item{ID: "j", Kind: "case"})
	require.Eventually(t, func() bool { return s.fail.failures("settle") > 0 }, 20*time.Second, time.Millisecond)
	s.uncounted(t, "j")

	again := make(chan *reliable.Job, 10)
	stopOther := s.consume(func(_ context.Context, job *reliable.Job) error {
		s.starts.start(job.ID)
		again <- job
		return nil
	}, &reliable.ConsumerOptions{NoSweep: true, WakeFallback: 50 * time.Millisecond})
	job := awaitFrom(t, again, "the redelivery")
	assert.Equal(t, [3]int{2, 0, 1}, [3]int{job.Attempt, job.Failures, job.Expiries})
	require.Eventually(t, func() bool { return s.stats().Counters["acked"] == 1 }, 20*time.Second, 2*time.Millisecond)
	assert.GreaterOrEqual(t, s.fail.failures("settle"), 3, "it was repeated until then")
	s.fail.arm("extend", netfault.Pass, 0)
	s.fail.arm("settle", netfault.Pass, 0)
	require.Equal(t, "j", awaitFrom(t, s.ended, "the refusal"))
	stop()
	stopOther()

	assert.Equal(t, []string{"lost"}, s.heard("j"))
	assert.GreaterOrEqual(t, s.ackErrors(), 1)
	assert.Equal(t, map[string]int{"j": 2}, s.starts.counts(t))
	assert.Empty(t, again)
	stats := s.stats()
	for name, want := range map[string]int{"acked": 1, "expired": 1, "refused": 1, "nacked": 0, "buried": 0, "died": 0} {
		assert.EqualValues(t, want, stats.Counters[name], name)
	}
	assert.Zero(t, stats.Processing+stats.Due+stats.Dead)
}

// By hand: a call repeats until its own context ends. What it says then is that it is not known whether the ack ran, and
// it can be given again; the job is never failed for it.
func TestS23_AnAckByHandIsRepeatedAndCanBeGivenAgain(t *testing.T) {
	t.Parallel()
	s := newAckSite(t)
	q := newQueueOn(t, s.d.rdb, s.name, s.o)
	acked := 0
	for i, one := range failures {
		id := fmt.Sprint("j", i)
		s.enqueue(reliable.Item{ID: id, Kind: "case"})
		batch, err := q.Claim(t.Context(), 1, &reliable.ClaimOptions{KeepAlive: true})
		require.NoError(t, err)
		require.Len(t, batch.Jobs, 1)
		s.fail.arm("settle", one.Action, 2)
		err = batch.Jobs[0].Ack(t.Context())
		if one.Told {
			require.Error(t, err, one.Name)
			require.NotErrorIs(t, err, reliable.ErrLost, one.Name)
			s.uncounted(t, id)
			require.Equal(t, reliable.Processing, s.inspect(id).Place, one.Name)
			s.fail.arm("settle", netfault.Pass, 0)
			err = batch.Jobs[0].Ack(t.Context())
		}
		require.NoError(t, err, one.Name)
		acked++
		s.fail.arm("settle", netfault.Pass, 0)
		require.ErrorIs(t, batch.Jobs[0].Ack(t.Context()), reliable.ErrSettled, one.Name)
	}

	s.enqueue(reliable.Item{ID: "last", Kind: "case"})
	batch, err := q.Claim(t.Context(), 1, &reliable.ClaimOptions{KeepAlive: true})
	require.NoError(t, err)
	s.fail.arm("settle", netfault.DropRequest, math.MaxInt)
	s.fail.arm("seal", netfault.DropRequest, math.MaxInt)
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err = batch.Jobs[0].Ack(short)
	var unknown *reliable.UnknownError
	require.ErrorAs(t, err, &unknown)
	s.uncounted(t, "last")
	s.fail.arm("seal", netfault.Pass, 0) // and still no settle: one that is on its way would count if it came before the seal
	require.ErrorIs(t, unknown.Resolve(t.Context()), reliable.ErrNeverRan)
	s.fail.arm("settle", netfault.Pass, 0)
	require.NoError(t, batch.Jobs[0].Ack(t.Context()))
	s.onlyAcked(t, acked+1)
}
