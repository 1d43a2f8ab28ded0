package reliable_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/idempotency"
	"github.com/leaseq/leaseq/reliable"
)

// In a handler the ack of OnceAndAck goes out when the handler returns, whatever that returns.
func TestOnceAndAckInAHandlerSettlesTheJobWhateverTheHandlerReturns(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(j *reliable.Job) error{
		"nil":      func(*reliable.Job) error { return nil },
		"an error": func(*reliable.Job) error { return errDownstream },
		"a panic":  func(*reliable.Job) error { panic("oh") },
		"settles again": func(j *reliable.Job) error {
			return j.Nack(context.Background(), errDownstream)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, quick())
			id := put(t, s.Queue, job("k"))[0]
			var effects, starts atomic.Int64
			settled := make(chan error, 10)
			done := make(chan struct{}, 10)
			runConsumer(t, s.Queue, reliable.HandlerFunc(func(ctx context.Context, j *reliable.Job) error {
				starts.Add(1)
				if err := j.OnceAndAck(ctx, "mail", func(context.Context) error { effects.Add(1); return nil }); err != nil {
					return err
				}
				settled <- j.Ack(ctx)
				return end(j)
			}), &reliable.ConsumerOptions{Hooks: &reliable.Hooks{OnDone: func(context.Context, reliable.Event) { done <- struct{}{} }}})
			require.ErrorIs(t, receive(t, settled), reliable.ErrSettled)
			receive(t, done)
			stats, err := s.Stats(t.Context())
			require.NoError(t, err)
			assert.EqualValues(t, 1, stats.Counters["acked"])
			assert.Zero(t, stats.Records)
			assert.EqualValues(t, []int64{1, 1}, []int64{effects.Load(), starts.Load()})
			assert.Equal(t, "d ", s.record(t, "once:"+id)["e:mail"][:2], "the commit rode on the ack")
		})
	}
}

func TestAnAckOfOnceAndAckWhoseRecordIsAnothersEndsAsANack(t *testing.T) {
	t.Parallel()
	s := newShop(t, quick())
	put(t, s.Queue, job("k"))
	var effects atomic.Int64
	runConsumer(t, s.Queue, reliable.HandlerFunc(func(ctx context.Context, j *reliable.Job) error {
		return j.OnceAndAck(ctx, "mail", func(ctx context.Context) error {
			if effects.Add(1) > 1 {
				return nil
			}
			return s.rdb.Del(ctx, s.key("once:"+j.ID)).Err() // as an operator's hand, or a retention that is over
		})
	}), nil)
	stats := await(t, s.Queue, "acked", func(s reliable.Stats) bool { return s.Records == 0 })
	assert.EqualValues(t, 1, stats.Counters["nacked"])
	assert.EqualValues(t, 1, stats.Counters["acked"])
	assert.EqualValues(t, 1, stats.Counters["refused_records"])
	assert.EqualValues(t, 2, effects.Load())
}

func TestAStopAcksWhatOnceAndAckHasDecided(t *testing.T) {
	t.Parallel()
	o := quick()
	s := newShop(t, o)
	id := put(t, s.Queue, job("k"))[0]
	decided, release := make(chan struct{}), make(chan struct{})
	stop := runConsumer(t, s.Queue, reliable.HandlerFunc(func(ctx context.Context, j *reliable.Job) error {
		err := j.OnceAndAck(ctx, "mail", func(context.Context) error { return nil })
		close(decided)
		<-release // it heeds no context, and is abandoned
		return err
	}), &reliable.ConsumerOptions{DrainTimeout: 1})
	receive(t, decided)
	require.NoError(t, stop())
	close(release)
	stats, err := s.Stats(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 1, stats.Counters["acked"])
	assert.Equal(t, "d ", s.record(t, "once:"+id)["e:mail"][:2])
}

func TestLargeResultsAreSettledInRoundTripsOfTheirOwn(t *testing.T) {
	t.Parallel()
	o := quick()
	o.Lease = 0 // the default
	s := newShop(t, o)
	const n = 10 // MiB: more than one settle holds
	ids := put(t, s.Queue, jobs("k", n)...)
	rdb, proxy := behindProxy(t, 3*time.Second)
	q := queueOn(t, rdb, s.name, o)
	g, err := idempotency.New(rdb, s.name, &idempotency.Options{ResultLimit: 1 << 20})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
	var all atomic.Int64
	cut := make(chan struct{})
	runConsumer(t, q, reliable.HandlerFunc(func(ctx context.Context, j *reliable.Job) error {
		a, err := j.Begin(ctx, g, j.ID, nil)
		if err != nil {
			return err
		}
		if all.Add(1) == n {
			proxy.Cut()
			close(cut)
		}
		<-cut
		ended, cancel := context.WithCancel(ctx)
		cancel()
		var unknown *reliable.UnknownError
		if err := j.CompleteAndAck(ended, a.Permit, make([]byte, 1<<20)); !assert.ErrorAs(t, err, &unknown) {
			return err
		}
		if all.Add(1) == 2*n {
			proxy.Restore()
		}
		return nil
	}), nil)
	stats := await(t, s.Queue, "acked", func(s reliable.Stats) bool { return s.Records == 0 })
	assert.EqualValues(t, n, stats.Counters["acked"])
	assert.Zero(t, stats.Counters["nacked"])
	for _, id := range ids {
		assert.Equal(t, "d ", s.record(t, "guard:"+id)["e:"][:2], id)
	}
}
