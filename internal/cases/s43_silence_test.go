package cases

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

// The network is a black hole for long: 15 minutes with full numbers. Nothing ends, Health says so meanwhile, and within
// five seconds from its end a job is started and everything works.
func TestS43_LoopsOutliveALongBlackHole(t *testing.T) {
	t.Parallel()
	sites := []*loopSite{
		newLoopSite(t, "go-redis' own timeouts and repeats", nil),
		newLoopSite(t, "an impatient client", impatient),
	}
	for _, s := range sites {
		s.heal = func() { s.hole(false) }
		s.run(t)
	}
	for _, s := range sites {
		s.startsAfter(t, time.Now())
		s.healthySoon(t)
	}
	for _, s := range sites {
		s.hole(true)
	}
	ends := time.After(shape(6*time.Second, 15*time.Minute))
	for _, s := range sites {
		s.unhealthySoon(t)
	}
	<-ends
	for _, s := range sites {
		assert.Error(t, s.consumer.Health(t.Context()), s.name)
		assert.Error(t, s.reaper.Health(t.Context()), s.name)
		end := s.still.now()
		s.hole(false)
		took := s.still.less(end, s.startsAfter(t, end.at))
		t.Logf("%s: a job is started %v after the end of the black hole", s.name, took.Round(time.Millisecond))
		assert.LessOrEqual(t, took, recoverBound, "%s: until a job is started", s.name)
		s.healthySoon(t)
	}
	for _, s := range sites {
		s.add(t, shape(100, 1000))
		s.finishes(t)
	}
}

func (s *loopSite) hole(on bool) {
	s.cut.BlackHole(on)
	s.aft.BlackHole(on)
}

const poolSize = 20

// filled makes connections of a client's pool by using as many at one time.
func filled(t *testing.T, p *netfault.Proxy, rdb *redis.Client, queue string) {
	t.Helper()
	var all sync.WaitGroup
	for range poolSize {
		all.Go(func() {
			err := rdb.Do(t.Context(), "blpop", "case:"+queue+":nothing", "0.3").Err()
			assert.ErrorIs(t, err, redis.Nil)
		})
	}
	all.Wait()
	require.GreaterOrEqual(t, p.Connections(), poolSize)
}

// newDeadSite is for connections that die.
func newDeadSite(t *testing.T) *loopSite {
	t.Helper()
	s := newLoopSite(t, "dead connections", func(o *redis.Options) { o.PoolSize = poolSize })
	s.heal = func() {
		for _, p := range []*netfault.Proxy{s.cut, s.aft} {
			p.Cut()
			p.Restore()
		}
	}
	return s
}

// All connections that a process has, twenty in each pool and those of leaseq's own, are dead for ever without a word, as
// behind a firewall that forgot them; new ones work. go-redis would find that out three seconds a connection. A job is
// started by the second try nevertheless, 1.2 to 1.4 s after that where the machine has time, the job that is held is still
// held, and calls by hand are answered too.
func TestS43_LoopsOutliveThatAllConnectionsHaveDied(t *testing.T) {
	t.Parallel()
	s := newDeadSite(t)
	ofConsumer, ofAft := newFailer(s.cut, loops), newFailer(s.aft, loops)
	s.run(t)
	s.startsAfter(t, time.Now())
	byHand := redistest.Queue(t)
	hand := handAt(t, s, byHand)
	held, err := hand.Claim(t.Context(), 1, &reliable.ClaimOptions{KeepAlive: true})
	require.NoError(t, err)
	require.Len(t, held.Jobs, 1)
	filled(t, s.cut, s.ofConsumer, byHand)
	filled(t, s.aft, s.ofSidecar, byHand)
	s.healthySoon(t)

	dead := s.cut.Silence() + s.aft.Silence()
	end := time.Now()
	for loop := range consumerLoops {
		ofConsumer.arm(loop, netfault.Pass, 0) // counts anew
	}
	for loop := range sidecarLoops {
		ofAft.arm(loop, netfault.Pass, 0)
	}
	t.Logf("%d connections are dead", dead)
	require.GreaterOrEqual(t, dead, 2*poolSize)
	var calls sync.WaitGroup
	calls.Go(func() {
		_, err := hand.Enqueue(t.Context(), reliable.Item{Kind: "case", ID: "second"})
		assert.NoError(t, err)
		assert.LessOrEqual(t, time.Since(end), callBound(), "until an enqueue is answered")
	})
	calls.Go(func() {
		assert.NoError(t, held.Jobs[0].Ack(t.Context()))
		assert.LessOrEqual(t, time.Since(end), callBound(), "until an ack by hand is answered")
	})
	took := s.probe(t, end)
	t.Logf("a job is started %v after that", took.Round(time.Millisecond))
	assert.LessOrEqual(t, took, callBound(), "until a job is started")
	for loop := range consumerLoops {
		if loop != "blpop" { // a consumer that is behind does not wait for jobs
			require.Eventually(t, func() bool { return ofConsumer.passes(loop) > 0 }, 30*time.Second, time.Millisecond, loop)
		}
	}
	for loop := range sidecarLoops {
		require.Eventually(t, func() bool { return ofAft.passes(loop) > 0 }, 30*time.Second, time.Millisecond, loop)
	}
	assert.LessOrEqual(t, time.Since(end), recoverBound+time.Second, "until every loop works")
	calls.Wait()
	t.Logf("everything works %v after that", time.Since(end).Round(time.Millisecond))
	require.Eventually(t, func() bool { return ofConsumer.passes("blpop") > 0 }, 30*time.Second, time.Millisecond)
	batch, err := hand.Claim(t.Context(), 1, &reliable.ClaimOptions{Wait: time.Minute})
	require.NoError(t, err)
	require.Len(t, batch.Jobs, 1)
	require.NoError(t, batch.Jobs[0].Ack(t.Context()))

	s.healthySoon(t)
	if !full() {
		s.heal() // else each call meets dead connections until all twenty are found out
	}
	s.add(t, shape(100, 1000))
	s.finishes(t)
	assert.EqualValues(t, 1, s.longs.Load(), "starts of the job that is held: its lease was kept")
	assert.Zero(t, s.stats().Counters["expired"])
}

// callBound is until when a call by hand, or a claim, must be answered. It waits for a second or, where answers take longer,
// as beside other tests, for twice the last one's time.
func callBound() time.Duration { return shape(recoverBound, 3*time.Second) }

// handAt makes a Queue for claims by hand behind the consumer's proxy, with one job.
func handAt(t *testing.T, s *loopSite, name string) *reliable.Queue {
	t.Helper()
	q, err := reliable.New(s.ofConsumer, name, s.o)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		begun := time.Now()
		err := q.Close(ctx)
		t.Logf("closed in %v: %v", time.Since(begun), err)
		require.True(t, err == nil || errors.Is(err, context.DeadlineExceeded), "%v", err)
	})
	_, err = q.Enqueue(t.Context(), reliable.Item{Kind: "case", ID: "first"})
	require.NoError(t, err)
	return q
}
