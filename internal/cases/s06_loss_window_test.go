package cases

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redisproc"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

// A crashing server is one with appendfsync everysec that crashes, beside producers and a consumer that live on.
type crashing struct {
	*lane
	server *redisproc.Server

	mu       sync.Mutex
	answered map[string]time.Time // when an enqueue of this ID was answered
	acked    map[string]int
	fences   map[string][]int64 // of the starts
	lost     int                // verdicts that were refused: their leases had gone

	sizes []logSize
}

// logSize is how long the append-only file was at some time.
type logSize struct {
	at    time.Time // before it was asked
	bytes int64
}

func newCrashing(t *testing.T, dir string) *crashing {
	t.Helper()
	c := &crashing{
		server:   redistest.Server(t, &redisproc.Options{AppendOnly: true, AppendFsync: "everysec", Dir: dir}),
		answered: map[string]time.Time{}, acked: map[string]int{}, fences: map[string][]int64{},
	}
	rdb := redis.NewClient(&redis.Options{Addr: c.server.Addr()})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	t.Cleanup(func() { redistest.CheckQueue(t, rdb, keys.DefaultPrefix, "orders") })
	c.lane = laneOn(t, "orders", rdb, &reliable.QueueOptions{Lease: time.Second, MaxExpiries: limitOf(1000)})
	c.consume(c.handle, &reliable.ConsumerOptions{Concurrency: 8, Hooks: &reliable.Hooks{
		OnDone: func(_ context.Context, e reliable.Event) { c.mu.Lock(); c.acked[e.ID]++; c.mu.Unlock() },
		OnLost: func(context.Context, reliable.Event) { c.mu.Lock(); c.lost++; c.mu.Unlock() },
	}})
	return c
}

func (c *crashing) handle(_ context.Context, job *reliable.Job) error {
	c.mu.Lock()
	c.fences[job.ID] = append(c.fences[job.ID], job.Fence())
	c.mu.Unlock()
	<-time.After(5 * time.Millisecond)
	return nil
}

// appendOnlyFile is the file that a server appends to; it was named otherwise before Redis 7.
func (c *crashing) appendOnlyFile() string {
	c.t.Helper()
	files, err := filepath.Glob(filepath.Join(c.server.Dir(), "appendonlydir", "*.incr.aof"))
	require.NoError(c.t, err)
	if len(files) == 0 {
		return filepath.Join(c.server.Dir(), "appendonly.aof")
	}
	number := func(file string) (n int) {
		_, err := fmt.Sscanf(filepath.Base(file), "appendonly.aof.%d.incr.aof", &n)
		require.NoError(c.t, err)
		return n
	}
	return slices.MaxFunc(files, func(a, b string) int { return cmp.Compare(number(a), number(b)) })
}

// rewrite has the server write its append-only file anew. Redis 7.0 does not do that by itself where it has found the
// end of the file torn, and leaves the half of a script's transaction in it that it does not run: at the next start it
// would be run with the transaction that came to stand behind it.
func (c *crashing) rewrite() {
	c.t.Helper()
	require.NoError(c.t, c.rdb.BgRewriteAOF(c.t.Context()).Err())
	require.Eventually(c.t, func() bool {
		info, err := c.rdb.Info(c.t.Context(), "persistence").Result()
		return err == nil && strings.Contains(info, "aof_rewrite_in_progress:0") && strings.Contains(info, "aof_rewrite_scheduled:0") &&
			strings.Contains(info, "aof_last_bgrewrite_status:ok")
	}, time.Minute, 10*time.Millisecond)
}

// notYet is a delay by which a job has not run yet when the part of the file is cut off that its enqueue is in.
const notYet = 1200 * time.Millisecond

// traffic has two producers enqueue one job after the other for some time, one of them with a delay, and notes how the
// file grows. The returned function ends the producers; calls that are under way then are repeated until they are answered.
func (c *crashing) traffic(round int, lasts time.Duration) (stop func()) {
	quit := make(chan struct{})
	var producers sync.WaitGroup
	for p := range 2 {
		producers.Go(func() {
			tick := time.NewTicker(2 * time.Millisecond)
			defer tick.Stop()
			for n := 0; ; n++ {
				select {
				case <-quit:
					return
				case <-tick.C:
				}
				id := fmt.Sprint(round, "-", p, "-", n)
				_, err := c.queue.Enqueue(context.Background(), reliable.Item{Kind: "case", ID: id, Delay: time.Duration(p) * notYet})
				c.mu.Lock()
				if c.answered[id] = time.Now(); err != nil {
					c.t.Errorf("enqueue of %s: %v", id, err)
				}
				c.mu.Unlock()
			}
		})
	}
	file := c.appendOnlyFile()
	c.sizes = nil
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(lasts); end != nil; {
		select {
		case <-tick.C:
			at := time.Now()
			info, err := os.Stat(file)
			require.NoError(c.t, err)
			c.sizes = append(c.sizes, logSize{at, info.Size()})
		case <-end:
			end = nil
		}
	}
	return func() {
		close(quit)
		producers.Wait()
	}
}

// cut takes from the file what came in the last part of its time, to a byte that need not be the end of a command. It
// returns the time up to which everything is left.
func (c *crashing) cut(killed time.Time, window time.Duration) time.Time {
	c.t.Helper()
	i, _ := slices.BinarySearchFunc(c.sizes, killed.Add(-window), func(s logSize, at time.Time) int { return s.at.Compare(at) })
	require.Positive(c.t, i, "the file was looked at before the window")
	from := c.sizes[i-1]
	info, err := os.Stat(c.appendOnlyFile())
	require.NoError(c.t, err)
	require.Greater(c.t, info.Size(), from.bytes, "the file has grown in the window")
	require.NoError(c.t, os.Truncate(c.appendOnlyFile(), from.bytes+rand.Int64N(info.Size()-from.bytes)))
	return from.at
}

// settle waits until what is left is worked off, and checks the queue. It returns how many jobs of the round are missing,
// although an enqueue of them was answered, when the first of these answers came, and how many jobs ran again.
func (c *crashing) settle() (missing int, first time.Time, again int) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		s := c.stats()
		return s.Due+s.Processing == 0
	}, time.Minute, 10*time.Millisecond)
	redistest.CheckQueue(c.t, c.rdb, keys.DefaultPrefix, c.name)
	s := c.stats()
	require.Zero(c.t, s.Records)
	require.Zero(c.t, s.Counters["nacked"]+s.Counters["died"], "a crash of Redis is no failure")
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, at := range c.answered {
		if c.acked[id] == 0 {
			if missing++; first.IsZero() || at.Before(first) {
				first = at
			}
		}
		if fences := c.fences[id]; len(fences) > 1 {
			again++
			require.True(c.t, slices.IsSorted(fences) && len(slices.Compact(slices.Clone(fences))) == len(fences), "fences of %s: %v", id, fences)
		}
	}
	return missing, first, again
}

// What a crash takes with appendfsync everysec. A server that is killed takes only what it had answered and not yet
// handed to the kernel: nothing, unless the disk is busy with a flush, and two seconds at most. A machine that loses its power takes what the
// disk did not have yet, which is stood in for by cutting off what was appended in the last second. Jobs enqueued in
// that time can vanish, and jobs acked in it run again. Nothing else happens: no older job is missing, the books
// balance, fences go on growing, and nobody has to be restarted.
func TestS06_WithEverysecACrashTakesWhatTheDiskDidNotHaveAndNoMore(t *testing.T) {
	t.Parallel()
	for name, window := range map[string]time.Duration{"the server is killed": 0, "the power is cut": time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const busyDisk = 2 * time.Second // for how long Redis answers before it writes, while a flush is under way
			dir := ""                        // on a disk
			if window > 0 {
				dir = memoryDir(t) // the file is to have grown in the window
			}
			c := newCrashing(t, dir)
			answered, missing, again := 0, 0, 0
			oldest := time.Duration(0) // how long before the crash a job was answered that is missing
			for round := range shape(2, 10) {
				stop := c.traffic(round, window+busyDisk+250*time.Millisecond+rand.N(500*time.Millisecond))
				killed := time.Now()
				require.NoError(t, c.server.Kill())
				kept := killed
				if window > 0 {
					kept = c.cut(killed, window)
				}
				require.NoError(t, c.server.Restart(t.Context()))
				if window > 0 {
					c.rewrite()
				}
				stop()
				gone, first, twice := c.settle()
				if gone > 0 {
					require.True(t, first.After(kept.Add(-busyDisk)), "%d jobs are missing, the first was answered %v before the crash", gone, killed.Sub(first))
					oldest = max(oldest, killed.Sub(first))
				}
				answered, missing, again = answered+len(c.answered), missing+gone, again+twice
				clear(c.answered)
			}
			if window > 0 {
				assert.Positive(t, missing, "the cut takes enqueues")
				assert.Positive(t, again, "and acks")
			}
			assert.Greater(t, answered, missing)
			t.Logf("%d enqueues answered; %d missing, the oldest answered %v before the crash; %d jobs ran again; %d verdicts refused",
				answered, missing, oldest, again, c.lost)
		})
	}
}
