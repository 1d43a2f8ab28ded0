package cases

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/idempotency"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

// A longEffect is one process whose jobs have an effect that takes several leases. The key is the payload: two jobs of one
// key are two deliveries of one thing. The guard's records live for so short that none could last through the effect,
// were they not kept.
type longEffect struct {
	guard   *idempotency.Guard
	lease   time.Duration
	takes   time.Duration
	effects *tally
	begun   chan string   // keys whose effect has begun
	refused *sync.Map     // how often each job was told that its key is in flight
	lost    *atomic.Int64 // permits that ended before their effect
}

func (e *longEffect) Handle(ctx context.Context, job *reliable.Job) error {
	key := string(job.Payload)
	a, err := job.Begin(ctx, e.guard, key, nil)
	var flying *idempotency.InFlightError
	switch {
	case errors.As(err, &flying):
		times, _ := e.refused.LoadOrStore(job.ID, new(atomic.Int64))
		times.(*atomic.Int64).Add(1)
		return reliable.ReleaseAfter(min(flying.Wait, e.lease/4), err)
	case err != nil:
		return err
	case a.Done:
		return nil
	}
	e.begun <- key
	select {
	case <-a.Permit.Context().Done():
		e.lost.Add(1)
		return context.Cause(a.Permit.Context())
	case <-time.After(e.takes):
	}
	e.effects.start(key)
	if withTheAck(key) {
		return job.CompleteAndAck(ctx, a.Permit, []byte("done"))
	}
	return a.Permit.Commit(ctx, []byte("done"))
}

// newGuard makes a Guard of a queue's name, closed before the queue is checked.
func newGuard(t testing.TB, rdb *redis.Client, queue string, o *idempotency.Options) *idempotency.Guard {
	t.Helper()
	g, err := idempotency.New(rdb, queue, o)
	require.NoError(t, err)
	t.Cleanup(func() { closeBounded(t, g.Close) })
	return g
}

// Two processes have jobs whose effects take five leases, with guards whose records live for two leases; or two leases, with
// records that live for less than passes between two heartbeats. Meanwhile each thing is delivered again, as another job of the same key, to either
// process: it is told that the key is in flight, over and over, and in the end that it is done. The effect happens once
// for each key.
func TestS71_AKeyIsInFlightForAsLongAsItsJobIsHeld(t *testing.T) {
	t.Parallel()
	jobs, length := shape(8, 100), shape(800*time.Millisecond, time.Second)
	short := shape(1600*time.Millisecond, time.Second) // a process that stands still for longer loses its records, beside other tests
	for name, c := range map[string]struct {
		each, takes time.Duration
		guards      idempotency.Options
	}{
		"records for two leases":        {length, 5 * length, idempotency.Options{Lease: length, Retention: 2 * length}},
		"records for less than a third": {4 * short, 8 * short, idempotency.Options{Lease: short / 2, Retention: short}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each, guards := c.each, c.guards
			o := &reliable.QueueOptions{Lease: each}
			l := newLane(t, o)
			l.sweepOn(nil)
			e := longEffect{lease: each, takes: c.takes, effects: newTally(t, l.name), begun: make(chan string, 100*jobs), refused: &sync.Map{}, lost: new(atomic.Int64)}
			for range 2 {
				rdb, process := redistest.Client(t), e
				process.guard = newGuard(t, rdb, l.name, &guards)
				consumeWith(t, newQueueOn(t, rdb, l.name, o), &process, &reliable.ConsumerOptions{
					Concurrency: 2 * jobs, WakeFallback: 50 * time.Millisecond,
				})
			}
			began := time.Now()
			l.enqueue(keyed("first", jobs)...)
			for range jobs {
				awaitFrom(t, e.begun, "the beginning of an effect")
			}
			l.enqueue(keyed("second", jobs)...)
			require.Eventually(t, func() bool { return l.stats().Counters["acked"] == int64(2*jobs) }, time.Minute, 10*time.Millisecond)

			want, least := map[string]int{}, int64(1000)
			for i := range jobs {
				want["K"+strconv.Itoa(i)] = 1
				times, told := e.refused.Load("second" + strconv.Itoa(i))
				require.True(t, told, "second delivery %d was never told that its key is in flight", i)
				least = min(least, times.(*atomic.Int64).Load())
			}
			assert.Equal(t, want, e.effects.counts(t), "effects")
			assert.GreaterOrEqual(t, least, int64(5), "refusals of each second delivery")
			assert.EqualValues(t, e.lost.Load(), len(e.begun), "effects that were begun again, without a permit that was lost")
			assert.Zero(t, l.stats().Counters["expired"], "leases that ran out")
			t.Logf("%d keys, each refused %d times or more, %d permits lost, in %v", jobs, least, e.lost.Load(), time.Since(began).Round(10*time.Millisecond))
		})
	}
}

// keyed makes n jobs with the keys K0, K1 ….
func keyed(prefix string, n int) []reliable.Item {
	items := numberedItems(prefix, n)
	for i := range items {
		items[i].Payload = []byte("K" + strings.TrimPrefix(items[i].ID, prefix))
	}
	return items
}

// The records of jobs' own effects live for two leases, and the jobs run for five. What was done at the beginning is
// known at the end, and each effect happens once.
func TestS71_WhatAJobHasDoneIsKnownForAsLongAsItIsHeld(t *testing.T) {
	t.Parallel()
	jobs, each := shape(8, 100), shape(400*time.Millisecond, time.Second)
	o := &reliable.QueueOptions{Lease: each, Effects: reliable.EffectOptions{Retention: 2 * each}}
	l := newLane(t, o)
	l.sweepOn(nil)
	effects := newTally(t, l.name)
	handler := func(ctx context.Context, job *reliable.Job) error {
		short := func(context.Context) error { effects.start(job.ID + " short"); return nil }
		if err := job.Once(ctx, "short", short); err != nil {
			return err
		}
		err := job.Once(ctx, "long", func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(5 * each):
				effects.start(job.ID + " long")
				return nil
			}
		})
		if err != nil {
			return err
		}
		return job.OnceAndAck(ctx, "short", short)
	}
	for range 2 {
		consumeWith(t, newQueueOn(t, redistest.Client(t), l.name, o), reliable.HandlerFunc(handler), &reliable.ConsumerOptions{Concurrency: jobs})
	}
	l.enqueue(numberedItems("J", jobs)...)
	require.Eventually(t, func() bool { return l.stats().Counters["acked"] == int64(jobs) }, time.Minute, 10*time.Millisecond)
	want := map[string]int{}
	for i := range jobs {
		want["J"+strconv.Itoa(i)+" short"], want["J"+strconv.Itoa(i)+" long"] = 1, 1
	}
	assert.Equal(t, want, effects.counts(t), "effects")
	assert.EqualValues(t, jobs, l.stats().Counters["claimed"], "starts")
}

// expires is when a key will be gone, by Redis' clock.
func (l *lane) expires(key string) time.Time {
	l.t.Helper()
	var now *redis.TimeCmd
	var ttl *redis.DurationCmd
	_, err := l.rdb.TxPipelined(l.t.Context(), func(pipe redis.Pipeliner) error {
		now, ttl = pipe.Time(l.t.Context()), pipe.PTTL(l.t.Context(), key)
		return nil
	})
	require.NoError(l.t, err)
	require.Greater(l.t, ttl.Val(), time.Duration(0), "the time to live of %s", key)
	return now.Val().Add(ttl.Val())
}

// A record that is done lives for the retention from the end of the effect, not from its beginning, five leases before:
// however it was committed.
func TestS71_ADoneRecordLivesForTheRetentionFromItsEnd(t *testing.T) {
	t.Parallel()
	const retention = time.Hour
	each := shape(400*time.Millisecond, 2*time.Second)
	o := &reliable.QueueOptions{Lease: each, Effects: reliable.EffectOptions{Retention: retention}}
	l := newLane(t, o)
	guard := newGuard(t, l.rdb, l.name, &idempotency.Options{Retention: retention})
	ends := map[string]chan time.Time{}
	effect := func(job *reliable.Job) func(context.Context) error {
		return func(context.Context) error {
			<-time.After(5 * each)
			ends[job.ID] <- time.UnixMicro(redisClock(l.rdb))
			return nil
		}
	}
	guarded := func(ctx context.Context, job *reliable.Job, commit func(p *idempotency.Permit) error) error {
		a, err := job.Begin(ctx, guard, job.ID, nil)
		if err != nil {
			return err
		}
		return errors.Join(effect(job)(ctx), commit(a.Permit))
	}
	ways := map[string]func(ctx context.Context, job *reliable.Job) error{
		"Once":       func(ctx context.Context, job *reliable.Job) error { return job.Once(ctx, theEffect, effect(job)) },
		"OnceAndAck": func(ctx context.Context, job *reliable.Job) error { return job.OnceAndAck(ctx, theEffect, effect(job)) },
		"Commit": func(ctx context.Context, job *reliable.Job) error {
			return guarded(ctx, job, func(p *idempotency.Permit) error { return p.Commit(ctx, nil) })
		},
		"CompleteAndAck": func(ctx context.Context, job *reliable.Job) error {
			return guarded(ctx, job, func(p *idempotency.Permit) error { return job.CompleteAndAck(ctx, p, nil) })
		},
	}
	for id := range ways {
		ends[id] = make(chan time.Time, 1)
		l.enqueue(reliable.Item{ID: id, Kind: "case"})
	}
	l.consume(func(ctx context.Context, job *reliable.Job) error { return ways[job.ID](ctx, job) }, nil)
	require.Eventually(t, func() bool { return l.stats().Counters["acked"] == int64(len(ways)) }, time.Minute, 10*time.Millisecond)
	for id := range ways {
		record := l.keys.Once(id)
		if strings.HasPrefix(id, "C") {
			record = l.keys.Guard(id)
		}
		end := awaitFrom(t, ends[id], "the end of the effect")
		assert.WithinDuration(t, end.Add(retention), l.expires(record), time.Second, "%s: when the record goes", id)
		t.Logf("%s: the record goes %v after the end of the effect + the retention", id, l.expires(record).Sub(end.Add(retention)).Round(time.Millisecond))
	}
}

// A sweep that takes one lease touches neither its record nor that of a lease that lives on.
func TestS71_NoSweepTouchesARecord(t *testing.T) {
	t.Parallel()
	l := newLane(t, &reliable.QueueOptions{Lease: 100 * time.Millisecond})
	held := map[string]*reliable.Job{}
	for id, length := range map[string]time.Duration{"lives": time.Hour, "runs out": 0} {
		l.enqueue(reliable.Item{ID: id, Kind: "case"})
		batch, err := l.queue.Claim(t.Context(), 1, &reliable.ClaimOptions{Lease: length})
		require.NoError(t, err)
		require.Len(t, batch.Jobs, 1)
		held[id] = batch.Jobs[0]
	}
	fields, ends := map[string]map[string]string{}, map[string]time.Time{}
	for id, job := range held {
		require.Equal(t, id, job.ID)
		a, err := job.BeginOnce(t.Context(), theEffect)
		require.NoError(t, err)
		require.False(t, a.Done || a.InDoubt)
		fields[id], ends[id] = l.onceRecord(id), l.expires(l.keys.Once(id))
	}
	l.sweepUntilMoved(1)
	for range shape(20, 1000) {
		got := l.sweep(lease.MaxBatch)
		require.Zero(t, got.Moved())
	}
	for id := range held {
		assert.Equal(t, fields[id], l.onceRecord(id), "the record of the lease that %s", id)
		assert.WithinDuration(t, ends[id], l.expires(l.keys.Once(id)), 5*time.Millisecond, "when that goes")
	}
	require.NoError(t, held["lives"].OnceAndAck(t.Context(), "another", func(context.Context) error { return nil }))
	require.NotEqual(t, fields["lives"], l.onceRecord("lives"))
}

// A retention that could be over while a holder works is refused before anything is sent.
func TestS71_ARetentionBelowTwiceTheLeaseIsRefused(t *testing.T) {
	t.Parallel()
	const lease = 10 * time.Second
	rdb := redistest.Client(t)
	for retention, refused := range map[time.Duration]bool{2*lease - time.Millisecond: true, 2 * lease: false} {
		_, err := reliable.New(rdb, "q", &reliable.QueueOptions{Lease: lease, Effects: reliable.EffectOptions{Retention: retention}})
		_, guardErr := idempotency.New(rdb, "q", &idempotency.Options{Lease: lease, Retention: retention})
		for what, err := range map[string]error{"reliable.New": err, "idempotency.New": guardErr} {
			if refused {
				assert.ErrorContains(t, err, "Retention is 19.999s and Lease is 10s: want a Retention of at least twice the Lease", what)
			} else {
				assert.NoError(t, err, what)
			}
		}
	}
	_, err := reliable.New(rdb, "q", &reliable.QueueOptions{Lease: 24 * time.Hour})
	assert.NoError(t, err, "the default of a long lease is twice that")
}
