package cases

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

// How late a job whose lease ran out may be back in due, and a start after that, and a context's end after the local
// deadline.
const (
	lateBack   = 250 * time.Millisecond
	lateStart  = 250 * time.Millisecond
	lateCancel = 250 * time.Millisecond
)

// A delivery is what one start of a job saw, by Redis' clock where it says so.
type delivery struct {
	attempt   int
	due       time.Time // Redis: since when the job was due
	at        time.Time // Redis: when the handler was started
	expiry    time.Time // Redis: the stored end of the lease at the start
	deadline  time.Time // this process: the local end of the lease at the start
	noted     time.Time // this process: just after at
	cancelled time.Time // this process: when the context ended
	cause     error
}

// long is the situation of S16: one job whose handler works for five leases, two consumers, a sidecar.
type long struct {
	*lane
	rdb    *redis.Client // of the handlers, direct
	keys   *keys.Partition
	length time.Duration // of the lease
	stops  []func()
	events sync.Mutex
	lost   []error
	done   int

	mu         sync.Mutex
	deliveries []*delivery
	started    chan *delivery
}

func newLong(t *testing.T, length time.Duration) *long {
	t.Helper()
	s := &long{length: length, rdb: redistest.Client(t), started: make(chan *delivery, 10)}
	s.lane = newLane(t, s.options())
	s.keys = keysOf(t, s.name)
	s.claim(1) // publishes the policy
	sidecar(t, s.name)
	return s
}

func (s *long) options() *reliable.QueueOptions {
	return &reliable.QueueOptions{Lease: s.length, MaxRetries: limitOf(2), MaxExpiries: limitOf(2)}
}

// begin notes a start, and the end of its context when that comes.
func (s *long) begin(ctx context.Context, job *reliable.Job) *delivery {
	d := &delivery{attempt: job.Attempt, due: job.DueAt, deadline: job.Deadline()}
	pipe := s.rdb.Pipeline()
	at, score := pipe.Time(context.Background()), pipe.ZScore(context.Background(), s.keys.Key("processing"), job.ID)
	if _, err := pipe.Exec(context.Background()); err != nil {
		d.cause = err
	}
	d.at, d.expiry, d.noted = at.Val(), time.UnixMilli(int64(score.Val())), time.Now()
	s.mu.Lock()
	s.deliveries = append(s.deliveries, d)
	s.mu.Unlock()
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		d.cancelled, d.cause = time.Now(), errors.Join(d.cause, context.Cause(ctx))
	})
	s.started <- d
	return d
}

// run starts the two consumers, each of another process, as far as the queue can tell.
func (s *long) run(t *testing.T, rdb func() *redis.Client, handler reliable.HandlerFunc, noExtend bool) {
	t.Helper()
	for range 2 {
		q := newQueueOn(t, rdb(), s.name, s.options())
		s.stops = append(s.stops, consumeWith(t, q, handler, &reliable.ConsumerOptions{
			Concurrency: 2, NoExtend: noExtend, WakeFallback: 50 * time.Millisecond,
			Hooks: &reliable.Hooks{
				OnLost: func(_ context.Context, e reliable.Event) {
					s.events.Lock()
					defer s.events.Unlock()
					s.lost = append(s.lost, e.Err)
				},
				OnDone: func(context.Context, reliable.Event) {
					s.events.Lock()
					defer s.events.Unlock()
					s.done++
				},
			},
		}))
	}
	s.enqueue(reliable.Item{ID: "J", Kind: "case"})
}

// stop ends the consumers; the handlers have returned.
func (s *long) stop() {
	for _, stop := range s.stops {
		stop()
	}
}

// redelivered requires that the job was put back when the stored lease before was over, and not later than it may, and
// that the next delivery followed. Where a busy machine kept the sweepers for half a lease, a grace of one was begun.
func (s *long) redelivered(t *testing.T, expiry time.Time, next *delivery) {
	t.Helper()
	graces := s.stats().Counters["graces"]
	back, start := next.due.Sub(expiry), next.at.Sub(next.due)
	t.Logf("delivery %d: back %v after the stored expiry, started %v after that, %d graces", next.attempt, back, start, graces)
	require.GreaterOrEqual(t, back, time.Duration(0), "put back before the stored end of the lease")
	require.LessOrEqual(t, back, lateBack+time.Duration(graces)*s.length)
	require.GreaterOrEqual(t, start, time.Duration(0))
	require.LessOrEqual(t, start, lateStart)
}

func TestS16a_AJobLongerThanItsLeaseRunsOnceWhereLeasesAreExtended(t *testing.T) {
	t.Parallel()
	s := newLong(t, shape(500*time.Millisecond, 2*time.Second))
	d := newDetour(t)
	var extends atomic.Int64
	d.Decide(func(cmd []string) netfault.Action {
		if call, ok := scriptIn(cmd); ok && call.Name == "extend" {
			extends.Add(1)
		}
		return netfault.Pass
	})
	var cutShort atomic.Bool
	over := make(chan struct{})
	s.run(t, func() *redis.Client { return d.client(t, nil) }, func(ctx context.Context, job *reliable.Job) error {
		s.begin(ctx, job)
		select {
		case <-ctx.Done():
			cutShort.Store(true)
		case <-time.After(5 * s.length):
		}
		close(over)
		return nil
	}, false)
	awaitFrom(t, over, "the handler's return")
	s.stop()

	assert.False(t, cutShort.Load(), "the handler's context ended")
	assert.Len(t, s.deliveries, 1)
	stats := s.stats()
	assert.EqualValues(t, 1, stats.Counters["acked"])
	assert.Zero(t, stats.Counters["expired"]+stats.Counters["nacked"]+stats.Counters["released"])
	assert.GreaterOrEqual(t, extends.Load(), int64(10), "extensions")
	assert.LessOrEqual(t, extends.Load(), int64(20), "extensions")
	t.Logf("%d extensions", extends.Load())
}

// Nobody extends, and the handler heeds nothing. Each delivery begins at the end of the lease before, while that
// handler still works, until three leases have run out. Its context ends with its lease: the local deadline is not
// after the stored expiry, and the context ends within the 250 ms that the contract gives a busy process.
func TestS16b_WithoutExtensionsEachLeaseEndsAndTheThirdIsTheLast(t *testing.T) {
	t.Parallel()
	s := newLong(t, shape(300*time.Millisecond, 2*time.Second))
	var returned sync.WaitGroup
	returned.Add(3)
	s.run(t, func() *redis.Client { return redistest.Client(t) }, func(ctx context.Context, job *reliable.Job) error {
		defer returned.Done()
		s.begin(ctx, job)
		<-time.After(5 * s.length)
		return nil
	}, true)
	var all []*delivery
	for len(all) < 3 {
		all = append(all, awaitFrom(t, s.started, "the next delivery"))
		if n := len(all); n > 1 {
			s.redelivered(t, all[n-2].expiry, all[n-1])
		}
	}
	returned.Wait()
	s.stop()

	s.mu.Lock()
	defer s.mu.Unlock()
	require.Len(t, s.deliveries, 3)
	for i, d := range all {
		require.Equal(t, i+1, d.attempt)
		// What is left of the lease by Redis' clock is at least what is left of it by this process'.
		require.LessOrEqual(t, d.deadline.Sub(d.noted), d.expiry.Sub(d.at), "delivery %d", d.attempt)
		require.False(t, d.cancelled.IsZero(), "delivery %d was never told", d.attempt)
		require.LessOrEqual(t, d.cancelled.Sub(d.deadline), lateCancel, "delivery %d", d.attempt)
		require.True(t, errors.Is(d.cause, reliable.ErrLost) || errors.Is(d.cause, reliable.ErrJobTimeout), "%v", d.cause)
	}
	info := s.inspect("J")
	assert.Equal(t, reliable.Dead, info.Place)
	assert.Equal(t, [2]int{0, 3}, [2]int{info.Failures, info.Expiries})
	require.Len(t, info.Errors, 1)
	assert.Equal(t, "lease expired 3 times", info.Errors[0].Reason)
	s.events.Lock()
	defer s.events.Unlock()
	assert.Len(t, s.lost, 3, "the late acks")
	for _, err := range s.lost {
		assert.ErrorIs(t, err, reliable.ErrLost)
	}
	assert.Zero(t, s.done)
	assert.Zero(t, s.stats().Counters["acked"])
}

// The handler extends once by hand, at half of its lease: the lease ends one lease after that, at one and a half.
func TestS16c_OneExtensionByHandMovesTheEndOfTheLease(t *testing.T) {
	t.Parallel()
	s := newLong(t, shape(time.Second, 2*time.Second)) // half of it is the time that the call may take
	var from, to, expiry time.Time                     // by Redis' clock: around the call, and the stored end of the lease after it
	problem := make(chan error, 1)
	over := make(chan struct{})
	s.run(t, func() *redis.Client { return redistest.Client(t) }, func(ctx context.Context, job *reliable.Job) error {
		s.begin(ctx, job)
		if job.Attempt > 1 {
			return nil
		}
		defer close(over)
		<-time.After(s.length / 2)
		from = s.rdb.Time(context.Background()).Val()
		err := job.Extend(context.Background(), 0)
		to = s.rdb.Time(context.Background()).Val()
		score, readErr := s.rdb.ZScore(context.Background(), s.keys.Key("processing"), job.ID).Result()
		expiry = time.UnixMilli(int64(score))
		problem <- errors.Join(err, readErr)
		<-time.After(9 * s.length / 2)
		return nil
	}, true)
	first := awaitFrom(t, s.started, "the first delivery")
	require.NoError(t, awaitFrom(t, problem, "the extension"))
	assert.GreaterOrEqual(t, expiry.Sub(from), s.length, "a whole lease from the call")
	assert.LessOrEqual(t, expiry.Sub(to), s.length+time.Millisecond)
	assert.GreaterOrEqual(t, expiry.Sub(first.expiry), s.length/2-2*time.Millisecond, "so at one and a half from the claim")
	s.redelivered(t, expiry, awaitFrom(t, s.started, "the second delivery"))
	awaitFrom(t, over, "the handler's return")
	s.stop()
	stats := s.stats()
	assert.EqualValues(t, 1, stats.Counters["acked"], "the second delivery's")
	assert.EqualValues(t, 1, stats.Counters["expired"])
	assert.Len(t, s.lost, 1, "the first delivery's late ack")
}
