package cases

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reaper"
	"github.com/leaseq/leaseq/reliable"
)

// loopSite is a queue in use for S43, whose loops are all at work: a consumer that claims, settles, extends, sweeps and
// waits, and a sidecar that sweeps and reads the registry, each behind a proxy of its own, and a producer on a direct
// connection. One job, `long`, is held all the time, so that there is something to extend.
type loopSite struct {
	*lane
	name     string // of the failure
	o        *reliable.QueueOptions
	consumer *reliable.Consumer
	reaper   *reaper.Reaper
	cut, aft *netfault.Proxy // of the consumer, and of the sidecar; nil where there is none

	ofConsumer, ofSidecar *redis.Client
	failsToo              bool // the producer meets the faults as well

	made   atomic.Int64 // jobs that were enqueued, but for the long one
	last   atomic.Int64 // the latest start of a job, ns since the epoch
	probed chan time.Time
	longs  atomic.Int64 // starts of the long job
	lost   atomic.Int64 // ends of these by this process' own clock: the lease was over, and nobody had taken it
	over   chan struct{}
	heal   func() // ends the fault, whatever it is, so that the site can end
	still  *standstill
}

// loopOptions are those of a queue of which a case only wants short intervals.
func loopOptions() *reliable.QueueOptions {
	return &reliable.QueueOptions{Prefix: loopPrefix(), Lease: loopLease}
}

var loopPrefixes atomic.Int64

// loopPrefix makes a prefix of a test's own: its sidecar has the registry to itself.
func loopPrefix() string { return fmt.Sprintf("s43-%d", loopPrefixes.Add(1)) }

const (
	loopLease    = 6 * time.Second
	loopFallback = 250 * time.Millisecond
	loopRefresh  = 250 * time.Millisecond
	loopFeed     = 200 * time.Millisecond // how often a job comes
	recoverBound = 5 * time.Second        // from the end of a fault until every loop works
)

// newLoopSite makes one that is not running yet. tune changes the options of both clients.
func newLoopSite(t *testing.T, name string, tune func(o *redis.Options)) *loopSite {
	t.Helper()
	s := &loopSite{
		name: name, o: loopOptions(), over: make(chan struct{}), probed: make(chan time.Time, 1),
		heal: func() {}, still: watchStandstill(t),
	}
	s.lane = laneOn(t, redistest.Queue(t), redistest.Client(t), s.o)
	cut, aft := detourTo(t, tune), detourTo(t, tune)
	s.cut, s.aft, s.ofConsumer, s.ofSidecar = cut.Proxy, aft.Proxy, cut.rdb, aft.rdb
	s.enqueue(reliable.Item{ID: "long", Kind: "case"})
	return s
}

// handle works on the long job until the end, or until its lease is over, and on others not at all.
func (s *loopSite) handle(ctx context.Context, job *reliable.Job) error {
	if job.ID == "long" {
		s.longs.Add(1)
		select {
		case <-s.over:
			return nil
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), reliable.ErrLost) {
				s.lost.Add(1)
			}
			return context.Cause(ctx)
		}
	}
	s.last.Store(time.Now().UnixNano())
	if job.Kind == "probe" {
		s.probed <- time.Now()
	}
	return nil
}

// run starts the consumer, the sidecar and the producer.
func (s *loopSite) run(t *testing.T) {
	t.Helper()
	q, err := reliable.New(s.ofConsumer, s.lane.name, s.o)
	require.NoError(t, err)
	t.Cleanup(func() { closeBounded(t, q.Close) })
	s.consumer, err = reliable.NewConsumer(q, reliable.HandlerFunc(s.handle), &reliable.ConsumerOptions{
		Concurrency: 4, WakeFallback: loopFallback, DrainTimeout: 2 * time.Second,
	})
	require.NoError(t, err)
	s.reaper, err = reaper.New(s.ofSidecar, &reaper.Options{Prefix: s.o.Prefix, RefreshEvery: loopRefresh})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { assert.NoError(t, s.consumer.Run(ctx), s.name) })
	all.Go(func() { assert.NoError(t, s.reaper.Run(ctx), s.name) })
	all.Go(func() { s.produce(t, ctx) })
	t.Cleanup(func() {
		s.heal()
		close(s.over)
		stop()
		all.Wait()
	})
}

// produce enqueues a job now and then.
func (s *loopSite) produce(t *testing.T, ctx context.Context) {
	ticker := time.NewTicker(loopFeed)
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-ticker.C:
			if _, err := s.queue.Enqueue(ctx, reliable.Item{Kind: "case"}); err == nil {
				s.made.Add(1)
			} else if ctx.Err() == nil && !s.failsToo {
				assert.NoError(t, err, "%s: the producer has a working connection", s.name)
			}
		}
	}
}

// startsAfter waits until a job is started, and returns how long after since that was.
func (s *loopSite) startsAfter(t *testing.T, since time.Time) time.Duration {
	t.Helper()
	assert.Eventually(t, func() bool { return time.Unix(0, s.last.Load()).After(since) }, 30*time.Second, time.Millisecond,
		"%s: no job was started any more", s.name)
	return time.Unix(0, s.last.Load()).Sub(since)
}

// probe enqueues a job now, and returns how long after since it is started.
func (s *loopSite) probe(t *testing.T, since time.Time) time.Duration {
	t.Helper()
	s.enqueue(reliable.Item{Kind: "probe"})
	s.made.Add(1)
	return awaitFrom(t, s.probed, "the start of a job that was enqueued in the fault").Sub(since)
}

// add enqueues so many jobs.
func (s *loopSite) add(t *testing.T, n int) {
	t.Helper()
	for n > 0 {
		items := make([]reliable.Item, min(n, 200))
		for i := range items {
			items[i] = reliable.Item{Kind: "case"}
		}
		results, err := s.queue.EnqueueMany(t.Context(), items)
		require.NoError(t, err)
		for _, one := range results {
			require.NoError(t, one.Err)
		}
		n -= len(items)
		s.made.Add(int64(len(items)))
	}
}

// finishes waits until all that was enqueued before is done.
func (s *loopSite) finishes(t *testing.T) {
	t.Helper()
	end := s.made.Load()
	require.Eventually(t, func() bool { return s.stats().Counters["acked"] >= end }, 2*time.Minute, 10*time.Millisecond,
		"%s: %d jobs are not all done", s.name, end)
}

// healthy asks the consumer and the sidecar whether every loop of theirs works.
func (s *loopSite) healthy(ctx context.Context) error {
	return errors.Join(s.consumer.Health(ctx), s.reaper.Health(ctx))
}

// healthySoon requires that Health is true, by itself.
func (s *loopSite) healthySoon(t *testing.T) {
	t.Helper()
	var err error
	assert.Eventually(t, func() bool { err = s.healthy(t.Context()); return err == nil }, 30*time.Second, 5*time.Millisecond,
		"%s: not healthy: %v", s.name, err)
}

// unhealthySoon requires that Health tells of both the consumer and the sidecar.
func (s *loopSite) unhealthySoon(t *testing.T) {
	t.Helper()
	for what, health := range map[string]func(context.Context) error{"consumer": s.consumer.Health, "sidecar": s.reaper.Health} {
		assert.Eventually(t, func() bool { return health(t.Context()) != nil }, 30*time.Second, 5*time.Millisecond,
			"%s: the %s says that it is healthy", s.name, what)
	}
}

// loops tells calls by the loop of ours that makes them; "" for any other.
func loops(cmd []string) string {
	if name := scriptName(cmd); name != "" {
		return name
	}
	switch name := strings.ToLower(cmd[0]); name {
	case "blpop", "sadd", "smembers":
		return name
	}
	return ""
}

// The loops of a consumer and of a sidecar, each by the call that it makes, and how often it makes one at least while jobs
// come.
var (
	consumerLoops = map[string]time.Duration{
		"claim": loopFallback, "settle": loopFeed, "extend": loopLease / 3,
		"expire": time.Second, "blpop": loopFallback,
	}
	sidecarLoops = map[string]time.Duration{"expire": time.Second, "smembers": loopRefresh}
	// What a loop does at its beginning only, or now and then.
	consumerStarts = []string{"sadd", "policy", "open"}
)
