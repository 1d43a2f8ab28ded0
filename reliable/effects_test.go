package reliable_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/idempotency"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

// shop is a queue whose jobs have effects, and what Redis holds of them.
type shop struct {
	*reliable.Queue
	rdb  *redis.Client
	name string
}

func newShop(t *testing.T, o *reliable.QueueOptions) *shop {
	t.Helper()
	name, rdb := redistest.Queue(t), redistest.Client(t)
	return &shop{Queue: queueOn(t, rdb, name, o), rdb: rdb, name: name}
}

func (s *shop) key(name string) string { return "leaseq:v1:{" + s.name + "}:" + name }

// record reads a record of effects; nil: there is none.
func (s *shop) record(t *testing.T, name string) map[string]string {
	t.Helper()
	fields, err := s.rdb.HGetAll(t.Context(), s.key(name)).Result()
	require.NoError(t, err)
	if len(fields) == 0 {
		return nil
	}
	return fields
}

// claim leases the one job that is due.
func (s *shop) claim(t *testing.T) *reliable.Job {
	t.Helper()
	batch, err := s.Claim(t.Context(), 10, &reliable.ClaimOptions{KeepAlive: true, Wait: 10 * time.Second})
	require.NoError(t, err)
	require.Len(t, batch.Jobs, 1)
	return batch.Jobs[0]
}

// guard makes one that lies beside the jobs of a queue.
func (s *shop) guard(t *testing.T, queue string, o *idempotency.Options) *idempotency.Guard {
	t.Helper()
	g, err := idempotency.New(s.rdb, queue, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
	return g
}

// tally is an effect that counts itself.
type tally struct{ n int }

func (c *tally) run(context.Context) error { c.n++; return nil }

var errDownstream = errors.New("downstream")

func TestOnceRunsAnEffectOnceInAllRunsOfAJob(t *testing.T) {
	t.Parallel()
	s := newShop(t, quick())
	id := put(t, s.Queue, job("k"))[0]
	var mail tally
	j := s.claim(t)
	require.NoError(t, j.Once(t.Context(), "mail", mail.run))
	require.NoError(t, j.Once(t.Context(), "mail", mail.run), "it is done")
	price, err := reliable.OnceValue(t.Context(), j, "price", func(context.Context) (int, error) { return 17, nil })
	require.NoError(t, err)
	require.Equal(t, 17, price)
	require.NoError(t, j.Nack(t.Context(), errDownstream))

	j = s.claim(t)
	require.Equal(t, id, j.ID)
	require.NoError(t, j.Once(t.Context(), "mail", mail.run))
	price, err = reliable.OnceValue(t.Context(), j, "price", func(context.Context) (int, error) { panic("it is done") })
	require.NoError(t, err)
	require.Equal(t, 17, price, "the first run's result")
	require.Equal(t, 1, mail.n)
	require.NoError(t, j.Ack(t.Context()))
	require.NotNil(t, s.record(t, "once:"+id), "it is remembered for the retention")
}

func TestAnotherJobOfTheSameIDBeginsItsEffectsAnew(t *testing.T) {
	t.Parallel()
	s := newShop(t, quick())
	var mail tally
	for round := 1; round <= 2; round++ {
		put(t, s.Queue, reliable.Item{Kind: "k", ID: "same"})
		require.NoError(t, s.claim(t).OnceAndAck(t.Context(), "mail", mail.run))
		require.Equal(t, round, mail.n)
	}
}

func TestAnEffectThatFailedIsInDoubtAndOneThatDidNotHappenIsNot(t *testing.T) {
	t.Parallel()
	o := quick()
	o.Effects.InDoubt = idempotency.Ask
	var told []string
	o.Effects.OnInDoubt = func(effect string, _ time.Time) { told = append(told, effect) }
	s := newShop(t, o)
	put(t, s.Queue, job("k"))
	j := s.claim(t)
	require.ErrorIs(t, j.Once(t.Context(), "refused", func(context.Context) error { return idempotency.NotDone(errDownstream) }), errDownstream)
	require.ErrorIs(t, j.Once(t.Context(), "failed", func(context.Context) error { return errDownstream }), errDownstream)
	require.PanicsWithValue(t, "oh", func() { _ = j.Once(t.Context(), "panicked", func(context.Context) error { panic("oh") }) })
	require.NoError(t, j.Nack(t.Context(), errDownstream))

	j = s.claim(t)
	var again tally
	require.NoError(t, j.Once(t.Context(), "refused", again.run))
	require.Equal(t, 1, again.n)
	for _, name := range []string{"failed", "panicked"} {
		var doubt *idempotency.InDoubtError
		require.ErrorAs(t, j.Once(t.Context(), name, again.run), &doubt, name)
		require.Equal(t, j.ID+":"+name, doubt.Key)
		a, err := j.BeginOnce(t.Context(), name)
		require.NoError(t, err)
		require.True(t, a.InDoubt, "it stays so until somebody has looked")
		require.NoError(t, a.Permit.Commit(t.Context(), []byte(`"looked up"`)))
		got, err := reliable.OnceValue(t.Context(), j, name, func(context.Context) (string, error) { panic("it is done") })
		require.NoError(t, err)
		require.Equal(t, "looked up", got)
	}
	require.Equal(t, 1, again.n)
	require.Equal(t, []string{j.ID + ":failed", j.ID + ":failed", j.ID + ":panicked", j.ID + ":panicked"}, told)
	require.NoError(t, j.Ack(t.Context()))
}

func TestOnceAndAckLeavesTheEffectDoneAndTheJobAckedInOneStep(t *testing.T) {
	t.Parallel()
	s := newShop(t, quick())
	id := put(t, s.Queue, job("k"))[0]
	j := s.claim(t)
	var mail tally
	require.ErrorIs(t, j.OnceAndAck(t.Context(), "mail", func(context.Context) error { return errDownstream }), errDownstream)
	require.NoError(t, j.Nack(t.Context(), errDownstream), "it was not acked")

	j = s.claim(t)
	var inside map[string]string
	require.NoError(t, j.OnceAndAck(t.Context(), "mail", func(ctx context.Context) error {
		inside = s.record(t, "once:"+id)
		return mail.run(ctx)
	}))
	assert.True(t, strings.HasPrefix(inside["e:mail"], "s "), "%q", inside)
	assert.True(t, strings.HasPrefix(s.record(t, "once:"+id)["e:mail"], "d "))
	require.ErrorIs(t, j.Ack(t.Context()), reliable.ErrSettled)
	stats, err := s.Stats(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, stats.Counters["acked"])
	require.Zero(t, stats.Records)
	left, err := s.rdb.PTTL(t.Context(), s.key("once:"+id)).Result()
	require.NoError(t, err)
	require.InDelta(t, idempotency.DefaultRetention.Seconds(), left.Seconds(), 5)
}

func TestALostLeaseBeginsAndCommitsNothing(t *testing.T) {
	t.Parallel()
	o := quick()
	o.MaxExpiries = intp(10)
	s := newShop(t, o)
	put(t, s.Queue, job("k"))
	batch, err := s.Claim(t.Context(), 1, nil) // nobody extends it
	require.NoError(t, err)
	old := batch.Jobs[0]
	a, err := old.BeginOnce(t.Context(), "mail")
	require.NoError(t, err)

	runConsumer(t, s.Queue, reliable.HandlerFunc(func(ctx context.Context, j *reliable.Job) error { return errDownstream }), nil)
	await(t, s.Queue, "expired", func(s reliable.Stats) bool { return s.Counters["nacked"] > 1 })
	var mail tally
	require.ErrorIs(t, old.Once(t.Context(), "coupon", mail.run), reliable.ErrLost)
	require.Zero(t, mail.n)
	require.ErrorIs(t, old.CompleteAndAck(t.Context(), a.Permit, nil), reliable.ErrLost)
	require.Error(t, a.Permit.Context().Err(), "an effect under way is told")
}

func TestACancelledJobBeginsNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t, quick())
	id := put(t, s.Queue, job("k"))[0]
	j := s.claim(t)
	require.NoError(t, j.Once(t.Context(), "mail", func(context.Context) error { return nil }))
	_, err := s.Cancel(t.Context(), id)
	require.NoError(t, err)
	var coupon tally
	require.ErrorIs(t, j.Once(t.Context(), "coupon", coupon.run), reliable.ErrCancelled)
	require.Zero(t, coupon.n)
	require.NoError(t, j.Nack(t.Context(), errDownstream))
	require.Nil(t, s.record(t, "once:"+id), "the record goes with the job")
}

func TestTheRecordOfItsEffectsGoesWithAJobThatIsRemovedByID(t *testing.T) {
	t.Parallel()
	o := quick()
	o.MaxRetries = intp(1)
	o.Backoff = reliable.Backoff{Base: time.Hour, Cap: time.Hour}
	s := newShop(t, o)
	put(t, s.Queue, reliable.Item{Kind: "k", ID: "purged"}, reliable.Item{Kind: "k", ID: "cancelled"})
	batch, err := s.Claim(t.Context(), 2, nil)
	require.NoError(t, err)
	for _, j := range batch.Jobs {
		require.NoError(t, j.Once(t.Context(), "mail", func(context.Context) error { return nil }))
		if j.ID == "purged" {
			require.NoError(t, j.Bury(t.Context(), errDownstream))
			continue
		}
		require.NoError(t, j.Nack(t.Context(), errDownstream))
	}
	require.NotNil(t, s.record(t, "once:purged"))
	require.NotNil(t, s.record(t, "once:cancelled"))
	errs, err := s.Purge(t.Context(), reliable.Dead, "purged")
	require.NoError(t, err)
	require.NoError(t, errs[0])
	removed, err := s.Cancel(t.Context(), "cancelled", "nobody")
	require.NoError(t, err)
	require.True(t, removed[0].Cancelled)
	require.Nil(t, s.record(t, "once:purged"))
	require.Nil(t, s.record(t, "once:cancelled"))
	removed, err = s.Cancel(t.Context(), "\n") // is no job's ID, and has no record
	require.NoError(t, err)
	require.ErrorIs(t, removed[0].Err, reliable.ErrGone)
}

func TestADeadJobsEffectsAreRememberedWhenItIsRedriven(t *testing.T) {
	t.Parallel()
	s := newShop(t, quick())
	id := put(t, s.Queue, job("k"))[0]
	j := s.claim(t)
	var mail, coupon tally
	require.NoError(t, j.Once(t.Context(), "mail", mail.run))
	a, err := j.BeginOnce(t.Context(), "coupon")
	require.NoError(t, err)
	require.False(t, a.InDoubt)
	require.NoError(t, j.Bury(t.Context(), errDownstream))
	_, err = s.Redrive(t.Context(), id)
	require.NoError(t, err)
	j = s.claim(t)
	require.NoError(t, j.Once(t.Context(), "mail", mail.run))
	require.NoError(t, j.OnceAndAck(t.Context(), "coupon", coupon.run))
	require.Equal(t, []int{1, 1}, []int{mail.n, coupon.n})
}

func TestTheHeartbeatKeepsTheRecord(t *testing.T) {
	t.Parallel()
	o := quick()
	o.Effects.Retention = 2 * o.Lease
	s := newShop(t, o)
	id := put(t, s.Queue, job("k"))[0]
	j := s.claim(t)
	_, err := j.BeginOnce(t.Context(), "mail")
	require.NoError(t, err)
	began := time.Now()
	require.Eventually(t, func() bool {
		require.NotNil(t, s.record(t, "once:"+id), "it lives for two leases only, unless it is kept")
		return time.Since(began) > 5*o.Lease
	}, 20*time.Second, 10*time.Millisecond)
	score, err := s.rdb.ZScore(t.Context(), s.key("processing"), id).Result()
	require.NoError(t, err)
	require.GreaterOrEqual(t, score, float64(began.Add(5*o.Lease).UnixMilli()))
	require.NoError(t, j.Ack(t.Context()))
}

// A lease that is longer than the queue's, by hand, must not outlive the record.
func TestARecordOutlivesTheLongerLeasesOfClaimsByHand(t *testing.T) {
	t.Parallel()
	o := quick()
	o.Effects.Retention = 2 * o.Lease
	s := newShop(t, o)
	id := put(t, s.Queue, job("k"))[0]
	batch, err := s.Claim(t.Context(), 1, &reliable.ClaimOptions{Lease: time.Hour})
	require.NoError(t, err)
	_, err = batch.Jobs[0].BeginOnce(t.Context(), "mail")
	require.NoError(t, err)
	left, err := s.rdb.PTTL(t.Context(), s.key("once:"+id)).Result()
	require.NoError(t, err)
	require.Greater(t, left, time.Hour)
	require.NoError(t, batch.Jobs[0].Ack(t.Context()))
}

func TestSettingsOfEffectsThatDoNotFitAreRefused(t *testing.T) {
	t.Parallel()
	for want, effects := range map[string]reliable.EffectOptions{
		"Retention is 29s and Lease is 15s": {Retention: 29 * time.Second},
		"InDoubt is 7":                      {InDoubt: 7},
		"ResultLimit is -1":                 {ResultLimit: -1},
	} {
		_, err := reliable.New(redistest.Client(t), "effects", &reliable.QueueOptions{Effects: effects})
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "Effects")
	}
	_, err := reliable.New(redistest.Client(t), "effects", &reliable.QueueOptions{Lease: 24 * time.Hour})
	require.NoError(t, err, "the default fits every lease")
	j := &reliable.Job{ID: "by hand"}
	require.ErrorContains(t, j.Once(t.Context(), "x", nil), "held by nobody")
	_, err = j.Begin(t.Context(), nil, "x", nil)
	require.ErrorContains(t, err, "held by nobody")
	require.ErrorContains(t, j.CompleteAndAck(t.Context(), nil, nil), "the Permit is nil")
}
