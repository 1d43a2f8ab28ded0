package reliable_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/idempotency"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

// forA lets time pass while something must hold all along.
func forA(t *testing.T, d time.Duration, holds func()) {
	t.Helper()
	began := time.Now()
	require.Eventually(t, func() bool {
		holds()
		return time.Since(began) > d
	}, d+20*time.Second, 10*time.Millisecond)
}

// brief are options whose records of effects live for little longer than a lease.
func brief() *reliable.QueueOptions {
	o := quick()
	o.Lease = time.Second // which outlives a moment in which this process stands still
	o.Effects.Retention = 3 * o.Lease
	return o
}

func TestAnEffectThatIsDoneIsKeptByEachRunThatFindsItDone(t *testing.T) {
	t.Parallel()
	o := brief()
	s := newShop(t, o)
	put(t, s.Queue, job("k"))
	var mail tally
	for range 5 { // each within the retention, all together not
		j := s.claim(t)
		require.NoError(t, j.Once(t.Context(), "mail", mail.run))
		require.NoError(t, j.Nack(t.Context(), reliable.RetryAfter(o.Effects.Retention/3, errDownstream)))
	}
	j := s.claim(t)
	require.NoError(t, j.Once(t.Context(), "mail", mail.run))
	forA(t, 2*o.Effects.Retention, func() { require.NoError(t, j.Context().Err()) })
	require.NoError(t, j.OnceAndAck(t.Context(), "mail", mail.run))
	require.Equal(t, 1, mail.n)
}

// Of one name one effect is under way in a job, whoever asks: Redis could not tell the two apart.
func TestOneHandlerRunsAnEffectOnceAtATime(t *testing.T) {
	t.Parallel()
	s := newShop(t, quick())
	put(t, s.Queue, job("k"))
	j := s.claim(t)
	inside, finish, first := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		first <- j.Once(t.Context(), "mail", func(context.Context) error {
			close(inside)
			<-finish
			return nil
		})
	}()
	receive(t, inside)
	var again tally
	var busy *idempotency.InFlightError
	require.ErrorAs(t, j.Once(t.Context(), "mail", again.run), &busy)
	require.Equal(t, j.ID+":mail", busy.Key)
	require.Positive(t, busy.Wait)
	close(finish)
	require.NoError(t, receive(t, first))
	require.NoError(t, j.Once(t.Context(), "mail", again.run), "it is done")
	require.Zero(t, again.n)
	require.NoError(t, j.Ack(t.Context()))
	require.ErrorIs(t, j.Once(t.Context(), "late", again.run), reliable.ErrSettled)
}

func TestNothingBeginsAfterOnceAndAckHasDecided(t *testing.T) {
	t.Parallel()
	s := newShop(t, quick())
	put(t, s.Queue, job("k"))
	var runs atomic.Int64
	run := func(context.Context) error { runs.Add(1); return nil }
	errs := make(chan error, 3)
	runConsumer(t, s.Queue, reliable.HandlerFunc(func(ctx context.Context, j *reliable.Job) error {
		errs <- j.OnceAndAck(ctx, "mail", run)
		errs <- j.OnceAndAck(ctx, "mail", run)
		_, err := j.BeginOnce(ctx, "coupon")
		errs <- err
		return nil
	}), nil)
	require.NoError(t, receive(t, errs))
	require.ErrorIs(t, receive(t, errs), reliable.ErrSettled)
	require.ErrorIs(t, receive(t, errs), reliable.ErrSettled)
	await(t, s.Queue, "acked", func(s reliable.Stats) bool { return s.Counters["acked"] == 1 })
	require.EqualValues(t, 1, runs.Load())
}

// OnceAndAck's ack and a nack by hand, at one time: one of the two is told that the other was first.
func TestOfOnceAndAckAndASettleByHandOneWins(t *testing.T) {
	t.Parallel()
	o := quick()
	o.Lease = 0
	s := newShop(t, o)
	const n = 300
	put(t, s.Queue, jobs("k", n)...)
	var both, one atomic.Int64
	runConsumer(t, s.Queue, reliable.HandlerFunc(func(ctx context.Context, j *reliable.Job) error {
		ready := make(chan struct{})
		var nack error
		var all sync.WaitGroup
		all.Go(func() { <-ready; nack = j.Nack(context.Background(), reliable.Discard(errDownstream)) })
		err := j.OnceAndAck(context.Background(), "mail", func(context.Context) error { close(ready); return nil })
		all.Wait()
		if nack == nil && err == nil {
			both.Add(1)
		}
		one.Add(1)
		return nil
	}), nil)
	require.Eventually(t, func() bool { return one.Load() == n }, 20*time.Second, 5*time.Millisecond)
	require.Zero(t, both.Load())
}

func TestARecordOutlivesAnExtendedLease(t *testing.T) {
	t.Parallel()
	for name, keepAlive := range map[string]bool{"heartbeats go on": true, "nobody beats": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := quick()
			o.Effects.Retention = 2 * o.Lease
			s := newShop(t, o)
			id := put(t, s.Queue, job("k"))[0]
			batch, err := s.Claim(t.Context(), 1, &reliable.ClaimOptions{KeepAlive: keepAlive})
			require.NoError(t, err)
			j := batch.Jobs[0]
			_, err = j.BeginOnce(t.Context(), "before")
			require.NoError(t, err)
			require.NoError(t, j.Extend(t.Context(), time.Hour))
			_, err = j.BeginOnce(t.Context(), "after")
			require.NoError(t, err)
			forA(t, 2*o.Lease, func() {
				left, err := s.rdb.PTTL(t.Context(), s.key("once:"+id)).Result()
				require.NoError(t, err)
				require.Greater(t, left, time.Hour, "less than the lease lasts")
			})
			require.NoError(t, j.Ack(t.Context()))
		})
	}
}

func TestAJobWhoseLeaseRanOutBeginsNoEffect(t *testing.T) {
	t.Parallel()
	s := newShop(t, quick())
	g := s.guard(t, s.name, nil)
	put(t, s.Queue, job("k"))
	batch, err := s.Claim(t.Context(), 1, nil)
	require.NoError(t, err)
	j := batch.Jobs[0]
	receive(t, j.Context().Done())
	var mail tally
	require.ErrorIs(t, j.Once(t.Context(), "mail", mail.run), reliable.ErrLost)
	_, err = j.Begin(t.Context(), g, "key", nil)
	require.ErrorIs(t, err, reliable.ErrLost)
	require.Zero(t, mail.n)
}

func TestAKeyThatWasAbandonedIsInDoubtAtOnceThoughItsJobGoesOn(t *testing.T) {
	t.Parallel()
	o := quick()
	s := newShop(t, o)
	g := s.guard(t, s.name, nil)
	put(t, s.Queue, job("k"))
	j := s.claim(t)
	a, err := j.Begin(t.Context(), g, "key", nil)
	require.NoError(t, err)
	require.NoError(t, a.Permit.Abandon(t.Context()))
	forA(t, o.Lease, func() { // heartbeats move nothing any more
		require.NoError(t, j.Context().Err())
		require.Equal(t, "0", s.record(t, "guard:key")["until"])
	})
	require.NoError(t, j.Ack(t.Context()))
	b, err := g.Begin(t.Context(), "key", nil)
	require.NoError(t, err)
	require.True(t, b.InDoubt)
}

// A key is begun, and while its answer is on its way an effect of the job's own: that one rides, and lives as long as the job.
func TestAKeyTakesNoRideFromTheJobsOwnRecord(t *testing.T) {
	t.Parallel()
	rdb, proxy := behindProxy(t, 3*time.Second)
	name := redistest.Queue(t)
	o := brief()
	q := queueOn(t, rdb, name, o)
	g, err := idempotency.New(rdb, name, &idempotency.Options{Lease: time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
	put(t, q, job("k"))
	batch, err := q.Claim(t.Context(), 1, &reliable.ClaimOptions{KeepAlive: true})
	require.NoError(t, err)
	j := batch.Jobs[0]
	warm, err := g.Begin(t.Context(), "a session is open", nil)
	require.NoError(t, err)
	require.NoError(t, warm.Permit.Abort(t.Context()))
	held := make(chan struct{}, 100)
	proxy.Decide(holdScript(guardScript("begin"), held))
	begun := make(chan error, 1)
	go func() { _, err := j.Begin(context.Background(), g, "key", nil); begun <- err }()
	receive(t, held)
	proxy.Decide(nil)
	var mail tally
	require.NoError(t, j.Once(t.Context(), "mail", mail.run))
	proxy.ReleaseHeld()
	require.NoError(t, receive(t, begun))
	forA(t, 2*o.Effects.Retention, func() {
		require.NoError(t, j.Context().Err())
		_, err := g.Begin(t.Context(), "key", nil)
		require.ErrorAs(t, err, new(*idempotency.InFlightError), "its guard keeps it")
	})
	require.NoError(t, j.Once(t.Context(), "mail", mail.run))
	require.Equal(t, 1, mail.n)
	require.NoError(t, j.Ack(t.Context()))
}

// An Extend by hand is on its way when an effect begins: the record learns of the longer lease all the same.
func TestARecordThatBeginsBesideAnExtendLastsAsLong(t *testing.T) {
	t.Parallel()
	rdb, proxy := behindProxy(t, 3*time.Second)
	name := redistest.Queue(t)
	o := quick()
	o.Lease = 0
	q := queueOn(t, rdb, name, o)
	g, err := idempotency.New(rdb, name, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
	put(t, q, job("k"))
	batch, err := q.Claim(t.Context(), 1, nil)
	require.NoError(t, err)
	j := batch.Jobs[0]
	held := make(chan struct{}, 100)
	proxy.Decide(holdScript(shaOf(t, "extend"), held))
	extended := make(chan error, 1)
	go func() { extended <- j.Extend(context.Background(), time.Hour) }()
	receive(t, held)
	proxy.Decide(nil)
	_, err = j.Begin(t.Context(), g, "key", nil)
	require.NoError(t, err)
	proxy.ReleaseHeld()
	require.NoError(t, receive(t, extended))
	_, err = g.Begin(t.Context(), "key", nil)
	var busy *idempotency.InFlightError
	require.ErrorAs(t, err, &busy)
	assert.Greater(t, busy.Wait, 59*time.Minute)
	require.NoError(t, j.Ack(t.Context()))
}

// guardScript is the digest of a script of package idempotency.
func guardScript(name string) string {
	for _, s := range idempotency.Scripts() {
		if s.Name == name {
			return s.SHA()
		}
	}
	panic("no script " + name)
}
