package cases

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redisproc"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

// slowCall is how long no script call may take.
const slowCall = 50 * time.Millisecond

// backlog is the situation of S07: a server of the case's own, whose queue has n leases that have run out.
type backlog struct {
	*lane
	server *redisproc.Server
	slow   *slowLog
	n      int

	mu       sync.Mutex
	starts   map[string]int
	expiries map[string]int // as the handler saw them
}

func (b *backlog) client() *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: b.server.Addr()})
	b.t.Cleanup(func() { require.NoError(b.t, rdb.Close()) })
	return rdb
}

func newBacklog(t *testing.T, n int, o *reliable.QueueOptions) *backlog {
	t.Helper()
	b := &backlog{server: redistest.Server(t, nil), n: n, starts: map[string]int{}, expiries: map[string]int{}}
	admin := redis.NewClient(&redis.Options{Addr: b.server.Addr()})
	t.Cleanup(func() { require.NoError(t, admin.Close()) })
	b.slow = keepSlowScripts(t, b.server, admin, slowCall)
	t.Cleanup(func() { redistest.CheckQueue(t, admin, keys.DefaultPrefix, "orders") })
	b.lane = laneOn(t, "orders", admin, o)
	require.Empty(t, b.claim(1)) // publishes the lease
	b.enqueue(numberedItems("old", n)...)
	for left := n; left > 0; {
		got, err := b.store.Claim(t.Context(), min(left, lease.MaxBatch), nil)
		require.NoError(t, err)
		require.NotEmpty(t, got.Jobs)
		left -= len(got.Jobs)
	}
	require.Eventually(t, func() bool { return b.gauge() == int64(n) }, time.Minute, 5*time.Millisecond, "all leases run out")
	return b
}

// gauge is the backlog as leaseq tells it.
func (b *backlog) gauge() int64 {
	b.t.Helper()
	stats, err := b.queue.Stats(b.t.Context())
	require.NoError(b.t, err)
	return stats.Expired
}

func (b *backlog) handle(_ context.Context, job *reliable.Job) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.starts[job.ID]++
	b.expiries[job.ID] = job.Expiries
	return nil
}

// produce enqueues 200 jobs a second until the returned function is called, which says how many that were.
func (b *backlog) produce() (stop func() int) {
	quit, made := make(chan struct{}), make(chan int, 1)
	q := newQueueOn(b.t, b.client(), b.name, nil)
	go func() {
		tick := time.NewTicker(time.Second / 200)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-tick.C:
				if _, err := q.Enqueue(context.Background(), reliable.Item{Kind: "case", ID: fmt.Sprint("new", n)}); err != nil {
					b.t.Errorf("enqueue: %v", err)
				}
			case <-quit:
				made <- n
				return
			}
		}
	}()
	return sync.OnceValue(func() int {
		close(quit)
		return <-made
	})
}

// drain looks at the gauge until it is 0, and requires that it only falls, and not before the end of the grace. It
// returns the time from that end on.
func (b *backlog) drain() time.Duration {
	b.t.Helper()
	last, graceEnd := int64(b.n), int64(0)
	var cleared time.Time
	require.Eventually(b.t, func() bool {
		now := b.gauge()
		if now < last && graceEnd == 0 {
			var err error
			graceEnd, err = b.rdb.HGet(b.t.Context(), b.keys.Key("sweep"), "grace").Int64()
			require.NoError(b.t, err)
			require.LessOrEqual(b.t, graceEnd, b.serverTime().UnixMilli(), "leases were ended before the grace was over")
		}
		require.LessOrEqual(b.t, now, last, "the gauge rises")
		last = now
		cleared = b.serverTime()
		return now == 0
	}, 2*time.Minute, 5*time.Millisecond, "the backlog is cleared")
	return cleared.Sub(time.UnixMilli(graceEnd))
}

// All leases of a queue have run out while nobody swept, and more jobs come than one sweep takes. A sidecar with
// default options follows each full batch with the next at once.
func TestS07_BacklogOfExpiredLeasesIsClearedBatchAfterBatch(t *testing.T) {
	t.Parallel()
	o := &reliable.QueueOptions{Lease: 2 * time.Second}
	b := newBacklog(t, shape(5000, 50_000), o)
	for range 4 {
		q := newQueueOn(t, b.client(), b.name, o)
		consumeWith(t, q, reliable.HandlerFunc(b.handle), &reliable.ConsumerOptions{NoSweep: true})
	}
	stop := b.produce()
	t.Cleanup(func() { stop() })
	sidecar := startChild(t, "counting-sidecar", serverAt{Addr: b.server.Addr()})
	took := b.drain()
	made := stop()
	require.Eventually(t, func() bool { return b.stats().Counters["acked"] == int64(b.n+made) }, 2*time.Minute, 10*time.Millisecond,
		"all jobs are acked, %d of them new", made)
	assert.Less(t, took, 30*time.Second, "from the end of the grace until no lease is left that has run out")

	var calls []swept
	moved := 0
	for moved < b.n { // a call is told once its answer is there
		calls = append(calls, readSwept(t, awaitFrom(t, sidecar.Lines, "what the sidecar swept")))
		moved += calls[len(calls)-1].moved
	}
	assert.Equal(t, b.n, moved)
	batches := (b.n + lease.DefaultBatch - 1) / lease.DefaultBatch
	assert.InDelta(t, batches, len(calls), 2, "expire calls that moved something")
	var gaps []int64
	for i, call := range calls[1:] {
		assert.True(t, calls[i].more, "call %d was not the last, and says so", i)
		gaps = append(gaps, call.at-calls[i].at)
	}
	slices.Sort(gaps)
	median := time.Duration(gaps[len(gaps)/2]) * time.Microsecond
	assert.Less(t, median, 200*time.Millisecond, "between two full batches, the call included; without more a sweeper sleeps for half a second")

	b.slow.check(t)
	b.check(made)
	require.NoError(t, sidecar.Process.Signal(syscall.SIGTERM))
	assert.Equal(t, 0, sidecar.Wait(), "the sidecar's exit code")
	t.Logf("%d leases in %v by %d calls, %v apart; %d new jobs meanwhile; %d graces", b.n, took, len(calls), median, made,
		b.stats().Counters["graces"])
}

// check requires one start of each job, with a retry count of exactly 1 for the old ones.
func (b *backlog) check(made int) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Len(b.t, b.starts, b.n+made)
	for id, starts := range b.starts {
		require.Equal(b.t, 1, starts, "starts of %s by consumers", id)
		want := 0
		if id[:3] == "old" {
			want = 1
		}
		require.Equal(b.t, want, b.expiries[id], "expiries of %s", id)
	}
	stats := b.stats()
	require.EqualValues(b.t, b.n, stats.Counters["expired"])
	for _, none := range []string{"nacked", "released", "died", "refused"} {
		require.Zero(b.t, stats.Counters[none], none)
	}
	require.Zero(b.t, stats.Due+stats.Processing+stats.Dead+stats.Records)
}

// The dearest sweep there is: batches of the most that a call may end, of jobs that it puts into dead, with a reason
// each. No call takes longer than the others may.
func TestS07_LargestBatchesIntoDeadHoldUpNobody(t *testing.T) {
	t.Parallel()
	b := newBacklog(t, shape(4000, 40_000), &reliable.QueueOptions{Lease: 2 * time.Second, MaxExpiries: limitOf(0)})
	calls := 0
	sweeper, err := lease.NewSweeper(b.store, &lease.SweeperOptions{Batch: lease.MaxBatch, OnSweep: func(e lease.Expired) {
		calls++
		assert.Equal(t, lease.MaxBatch, e.ToDead)
	}})
	require.NoError(t, err)
	before := ranOnProcessor(b.server.Pid())
	got, err := sweeper.Sweep(t.Context(), 0, true)
	each := (ranOnProcessor(b.server.Pid()) - before) / time.Duration(max(calls, 1))
	require.NoError(t, err)
	assert.Equal(t, b.n, got.ToDead)
	assert.Equal(t, b.n/lease.MaxBatch, calls)
	assert.Zero(t, b.gauge())
	assert.Less(t, each, slowCall, "what one call costs the server")
	b.slow.check(t)
	t.Logf("%d leases by %d calls of %v each, without the time in which the server had no processor", b.n, calls, each)
	dead := b.members(lease.Dead)
	require.Len(t, dead, b.n)
	for page := range slices.Chunk(dead, 500) {
		infos, err := b.queue.Inspect(t.Context(), page...)
		require.NoError(t, err)
		for _, info := range infos {
			require.Equal(t, [2]int{0, 1}, [2]int{info.Failures, info.Expiries}, "failures and expiries of %s", info.ID)
			require.Equal(t, "lease expired once", info.Errors[0].Reason)
		}
	}
	b.balanced(b.n)
}
