package reliable_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/idempotency"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

func TestAGuardsRecordRidesOnTheLeaseAndIsCommittedWithTheAck(t *testing.T) {
	t.Parallel()
	s := newShop(t, quick())
	g := s.guard(t, s.name, &idempotency.Options{Lease: 100 * time.Millisecond})
	put(t, s.Queue, job("k"))
	j := s.claim(t)
	a, err := j.Begin(t.Context(), g, "coupon:7", nil)
	require.NoError(t, err)
	began := time.Now()
	require.Eventually(t, func() bool { // for longer than either lease lasts
		_, err := g.Begin(t.Context(), "coupon:7", nil)
		require.ErrorAs(t, err, new(*idempotency.InFlightError))
		return time.Since(began) > 3*quick().Lease
	}, 20*time.Second, 10*time.Millisecond)
	require.NoError(t, j.CompleteAndAck(t.Context(), a.Permit, []byte("granted")))
	require.ErrorContains(t, j.CompleteAndAck(t.Context(), a.Permit, nil), "was ended before")
	again, err := g.Begin(t.Context(), "coupon:7", nil)
	require.NoError(t, err)
	require.Equal(t, "granted", string(again.Result))
	stats, err := s.Stats(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, stats.Counters["acked"])
}

func TestAnAckWhoseRecordIsAnothersIsRefusedAndTheJobHeldOn(t *testing.T) {
	t.Parallel()
	s := newShop(t, quick())
	g := s.guard(t, s.name, nil)
	put(t, s.Queue, job("k"))
	j := s.claim(t)
	a, err := j.Begin(t.Context(), g, "coupon:7", nil)
	require.NoError(t, err)
	require.NoError(t, s.rdb.HSet(t.Context(), s.key("guard:coupon:7"), "owner", "9:somebody:9").Err())
	require.ErrorIs(t, j.CompleteAndAck(t.Context(), a.Permit, nil), idempotency.ErrNotOwner)
	require.NoError(t, j.Context().Err())
	require.Equal(t, "9:somebody:9", s.record(t, "guard:coupon:7")["owner"])
	require.NoError(t, j.Ack(t.Context()), "it can be settled otherwise")
}

// The verdict of a handler that could not know whether its ack ran is repeated; where the record is another's it becomes
// a nack.
func TestAnUnknownAckWhoseRecordIsAnothersEndsAsANack(t *testing.T) {
	t.Parallel()
	rdb, proxy := behindProxy(t, 200*time.Millisecond)
	name := redistest.Queue(t)
	q := queueOn(t, rdb, name, &reliable.QueueOptions{Backoff: reliable.Backoff{Base: time.Millisecond, Cap: time.Millisecond}})
	direct := redistest.Client(t)
	g, err := idempotency.New(rdb, name, nil)
	require.NoError(t, err)
	failed, starts := make(chan error, 1), 0
	put(t, q, job("k"))
	runConsumer(t, q, reliable.HandlerFunc(func(ctx context.Context, j *reliable.Job) error {
		if starts++; starts > 1 {
			return nil
		}
		a, err := j.Begin(ctx, g, "coupon:7", nil)
		if err != nil {
			return err
		}
		if err := direct.HSet(ctx, "leaseq:v1:{"+name+"}:guard:coupon:7", "owner", "9:somebody:9").Err(); err != nil {
			return err
		}
		proxy.Cut()
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		failed <- j.CompleteAndAck(short, a.Permit, nil)
		proxy.Restore()
		return nil
	}), &reliable.ConsumerOptions{Concurrency: 1})
	require.ErrorAs(t, receive(t, failed), new(*reliable.UnknownError))
	stats := await(t, q, "acked", func(s reliable.Stats) bool { return s.Records == 0 })
	assert.EqualValues(t, 1, stats.Counters["nacked"])
	assert.EqualValues(t, 1, stats.Counters["acked"])
	require.NoError(t, g.Close(context.Background()))
}

func TestAGuardElsewhereKeepsItsRecordAndIsCommittedBeforeTheAck(t *testing.T) {
	t.Parallel()
	s := newShop(t, quick())
	other := redistest.Queue(t)
	g := s.guard(t, other, &idempotency.Options{Lease: 200 * time.Millisecond})
	put(t, s.Queue, job("k"))
	j := s.claim(t)
	a, err := j.Begin(t.Context(), g, "coupon:7", &idempotency.BeginOptions{Request: []byte("seven")})
	require.NoError(t, err)
	began := time.Now()
	require.Eventually(t, func() bool {
		_, err := g.Begin(t.Context(), "coupon:7", &idempotency.BeginOptions{Request: []byte("seven")})
		require.ErrorAs(t, err, new(*idempotency.InFlightError))
		return time.Since(began) > 600*time.Millisecond
	}, 20*time.Second, 10*time.Millisecond)
	_, err = j.Begin(t.Context(), g, "coupon:7", &idempotency.BeginOptions{Request: []byte("eight")})
	require.ErrorAs(t, err, new(*idempotency.OtherRequestError))
	require.NoError(t, j.CompleteAndAck(t.Context(), a.Permit, []byte("granted")))
	again, err := g.Begin(t.Context(), "coupon:7", &idempotency.BeginOptions{Request: []byte("seven")})
	require.NoError(t, err)
	require.True(t, again.Done)
	require.ErrorIs(t, j.Ack(t.Context()), reliable.ErrSettled)
}

// Only one record rides: the job's own, or the first. The other ones are kept by their guards, and end with the job.
func TestRecordsBesideTheOneThatRidesAreKeptByTheirGuards(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string][]string{
		"a key first": {"key", "once"}, "the job's own first": {"once", "key"}, "two keys": {"key", "key 2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := quick()
			o.Lease = time.Second
			s := newShop(t, o)
			g := s.guard(t, s.name, &idempotency.Options{Lease: o.Lease / 2})
			put(t, s.Queue, job("k"))
			j := s.claim(t)
			permits := map[string]*idempotency.Permit{}
			for _, what := range begin {
				var a *idempotency.Answer
				var err error
				if what == "once" {
					a, err = j.BeginOnce(t.Context(), "mail")
				} else {
					a, err = j.Begin(t.Context(), g, what, nil)
				}
				require.NoError(t, err)
				permits[what] = a.Permit
			}
			began := time.Now()
			require.Eventually(t, func() bool {
				for what := range permits {
					if what != "once" {
						_, err := g.Begin(t.Context(), what, nil)
						require.ErrorAs(t, err, new(*idempotency.InFlightError), what)
					}
				}
				return time.Since(began) > 2*o.Lease
			}, 20*time.Second, 10*time.Millisecond)
			last := permits[begin[1]]
			require.NoError(t, permits[begin[0]].Commit(t.Context(), []byte("1")))
			require.NoError(t, j.CompleteAndAck(t.Context(), last, []byte("2")))
			for what := range permits {
				if what != "once" {
					again, err := g.Begin(t.Context(), what, nil)
					require.NoError(t, err)
					require.True(t, again.Done, what)
				}
			}
		})
	}
}

func TestAKeyThatAHandlerLeftOpenIsInDoubtOnceItsJobIsSettled(t *testing.T) {
	t.Parallel()
	s := newShop(t, nil) // a long lease
	g := s.guard(t, s.name, nil)
	put(t, s.Queue, job("k"))
	j := s.claim(t)
	_, err := j.Begin(t.Context(), g, "coupon:7", nil)
	require.NoError(t, err)
	require.NoError(t, j.Nack(t.Context(), reliable.RetryAfter(0, errDownstream)))
	j = s.claim(t)
	a, err := j.Begin(t.Context(), g, "coupon:7", nil)
	require.NoError(t, err, "it does not wait for the lease of a run that is over")
	require.True(t, a.InDoubt)
	require.NoError(t, j.CompleteAndAck(t.Context(), a.Permit, nil))
}

func TestAnExtendByHandTakesTheRecordAlong(t *testing.T) {
	t.Parallel()
	s := newShop(t, quick())
	g := s.guard(t, s.name, nil)
	put(t, s.Queue, job("k"))
	batch, err := s.Claim(t.Context(), 1, nil)
	require.NoError(t, err)
	j := batch.Jobs[0]
	_, err = j.Begin(t.Context(), g, "coupon:7", nil)
	require.NoError(t, err)
	require.NoError(t, j.Extend(t.Context(), time.Minute))
	_, err = g.Begin(t.Context(), "coupon:7", nil)
	var busy *idempotency.InFlightError
	require.ErrorAs(t, err, &busy)
	require.Greater(t, busy.Wait, 50*time.Second)
	require.NoError(t, j.Ack(t.Context()))
}

// In a handler, with the batched verdicts of a consumer.
func TestAConsumersJobsRunTheirEffectsOnce(t *testing.T) {
	t.Parallel()
	s := newShop(t, quick())
	ids := put(t, s.Queue, jobs("k", 200)...)
	runConsumer(t, s.Queue, reliable.HandlerFunc(func(ctx context.Context, j *reliable.Job) error {
		count := func(ctx context.Context) error { return s.rdb.HIncrBy(ctx, s.key("test"), j.ID, 1).Err() }
		if err := j.Once(ctx, "count", count); err != nil {
			return err
		}
		if j.Failures == 0 {
			return errDownstream
		}
		if strings.HasSuffix(j.ID, "0") {
			return nil
		}
		return j.OnceAndAck(ctx, "count-again", count)
	}), nil)
	t.Cleanup(func() { s.rdb.Del(context.Background(), s.key("test")) })
	stats := await(t, s.Queue, "acked", func(s reliable.Stats) bool { return s.Records == 0 })
	require.EqualValues(t, 200, stats.Counters["acked"])
	require.EqualValues(t, 200, stats.Counters["nacked"])
	counts, err := s.rdb.HGetAll(t.Context(), s.key("test")).Result()
	require.NoError(t, err)
	for _, id := range ids {
		want := "2"
		if strings.HasSuffix(id, "0") {
			want = "1"
		}
		require.Equal(t, want, counts[id], id)
	}
}
