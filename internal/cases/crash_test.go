package cases

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/idempotency"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reaper"
	"github.com/leaseq/leaseq/reliable"
)

// reclaimBound is how much later than its stored expiry an abandoned job may be claimable, and sweepBound how long a
// sweep may take on top of it where a case measures the next start.
const (
	reclaimBound = 250 * time.Millisecond
	sweepBound   = 100 * time.Millisecond
)

// crashConfig is what a worker process is told.
type crashConfig struct {
	Server      serverAt
	Queue       string
	Handler     string // one of crashHandlers
	Marks       string // the marks file
	Lease       time.Duration
	MaxRetries  int
	MaxExpiries int

	Concurrency int           // default 1
	NoExtend    bool          // no heartbeat
	Fallback    time.Duration // default 50 ms
	Holder      string        // default host and process ID
	Gate        string        // a list beside the queue: the worker begins when it can take an element; default at once

	InDoubt idempotency.Policy // of the effects
	Point   string             // of a handler with an effect: where the process of a job's first start is killed
}

// crashWorker is a worker process, as its handlers see it.
type crashWorker struct {
	crashConfig
	beside *redis.Client // another database of the same server: what kills cannot hide, and gates
}

// crashHandlers are the handlers that worker processes may run, by name.
var crashHandlers = map[string]func(w *crashWorker) reliable.Handler{}

func crashHandler(name string, handler func(w *crashWorker) reliable.Handler) struct{} {
	crashHandlers[name] = handler
	return struct{}{}
}

// clock is Redis' clock in microseconds.
func (w *crashWorker) clock() int64 { return redisClock(w.beside) }

func redisClock(rdb *redis.Client) int64 {
	now, err := rdb.Time(context.Background()).Result()
	if err != nil {
		panic(err)
	}
	return now.UnixMicro()
}

// mark notes what a handler does with a job, by Redis' clock.
func (w *crashWorker) mark(what string, job *reliable.Job, note string) {
	putMark(w.Marks, mark{What: what, ID: job.ID, Attempt: job.Attempt, Fence: job.Fence(), Clock: w.clock(), Note: note})
}

func (c *crashConfig) queueOptions() *reliable.QueueOptions {
	return &reliable.QueueOptions{
		Lease: c.Lease, MaxRetries: &c.MaxRetries, MaxExpiries: &c.MaxExpiries, Effects: reliable.EffectOptions{InDoubt: c.InDoubt},
	}
}

var _ = child("crash-worker", func(config []byte) int {
	w := &crashWorker{}
	if err := json.Unmarshal(config, &w.crashConfig); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := w.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
})

func (w *crashWorker) run(ctx context.Context) error {
	rdb := w.Server.client(0)
	defer rdb.Close()
	w.beside = w.Server.client(1)
	defer w.beside.Close()
	q, err := reliable.New(rdb, w.Queue, w.queueOptions())
	if err != nil {
		return err
	}
	if w.Fallback == 0 {
		w.Fallback = 50 * time.Millisecond
	}
	if w.Concurrency == 0 {
		w.Concurrency = 1
	}
	c, err := reliable.NewConsumer(q, crashHandlers[w.Handler](w), &reliable.ConsumerOptions{
		Concurrency: w.Concurrency, NoExtend: w.NoExtend, WakeFallback: w.Fallback, Holder: w.Holder,
		Logger: slog.New(&doubtMarks{marks: w.Marks}),
		Hooks: &reliable.Hooks{
			OnDone: func(_ context.Context, e reliable.Event) { w.event("done", e) },
			OnLost: func(_ context.Context, e reliable.Event) { w.event("lost", e) },
		},
	})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	if w.Gate != "" {
		if err := w.beside.BLPop(ctx, 0, w.Gate).Err(); err != nil {
			return err
		}
	}
	if err := c.Run(ctx); err != nil {
		return err
	}
	return q.Close(context.Background())
}

func (w *crashWorker) event(what string, e reliable.Event) {
	putMark(w.Marks, mark{What: what, ID: e.ID, Attempt: e.Attempt, Fence: e.Fence, Clock: w.clock()})
}

// The sidecar process sweeps one queue.
var _ = child("crash-sidecar", func(config []byte) int {
	var c crashConfig
	if err := json.Unmarshal(config, &c); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	rdb := c.Server.client(0)
	defer rdb.Close()
	r, err := reaper.New(rdb, &reaper.Options{Queues: []string{c.Queue}})
	if err == nil {
		err = r.Run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
})

// serverAt is how a child reaches the shared server.
type serverAt struct {
	Addr, Username, Password string
	DB                       int
}

func sharedAt(t testing.TB) serverAt {
	o := redistest.Options(t)
	return serverAt{Addr: o.Addr, Username: o.Username, Password: o.Password, DB: o.DB}
}

// client makes one of the queue's database, or of one beside it.
func (s serverAt) client(beside int) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: s.Addr, Username: s.Username, Password: s.Password, DB: s.DB + beside})
}

// crashSite is what a case with worker processes stands on: a lane, and what is beside it.
type crashSite struct {
	crashConfig
	*lane
	beside *redis.Client
}

// newCrashSite takes a queue and publishes its limits, by an empty claim.
func newCrashSite(t testing.TB, c crashConfig) *crashSite {
	t.Helper()
	s := &crashSite{crashConfig: c}
	s.lane = newLane(t, s.queueOptions())
	s.Queue, s.Marks, s.Server = s.lane.name, marksFile(t), sharedAt(t)
	s.beside = s.Server.client(1)
	t.Cleanup(func() {
		if t.Failed() {
			for _, m := range readMarks(t, s.Marks) {
				t.Logf("%+v", m)
			}
		}
		require.NoError(t, s.beside.Del(context.Background(), s.key("gate"), s.key("effects")).Err())
		require.NoError(t, s.beside.Close())
	})
	require.Empty(t, s.claim(1))
	return s
}

// key beside the queue, in the other database.
func (s *crashConfig) key(what string) string { return "case:" + s.Queue + ":" + what }

// worker starts a worker process and waits until it is about to run.
func (s *crashSite) worker(t testing.TB, change func(c *crashConfig)) *process {
	t.Helper()
	config := s.crashConfig
	if change != nil {
		change(&config)
	}
	p := startChild(t, "crash-worker", config)
	require.Equal(t, "ready", <-p.Lines, "the first line of a worker")
	return p
}

// sidecar starts a sweeping process and waits until it has swept and holds nothing back for a grace.
func (s *crashSite) sidecar(t testing.TB) *process {
	t.Helper()
	p := startChild(t, "crash-sidecar", s.crashConfig)
	s.awaitSwept(t)
	return p
}

// awaitSwept waits until the queue has been swept after every grace.
func (s *crashSite) awaitSwept(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool {
		sweep, err := s.rdb.HGetAll(t.Context(), s.keys.Key("sweep")).Result()
		if err != nil {
			return false
		}
		swept, _ := strconv.ParseInt(sweep["swept"], 10, 64)
		grace, _ := strconv.ParseInt(sweep["grace"], 10, 64)
		return swept > 0 && swept >= grace
	}, time.Minute, 5*time.Millisecond, "nobody sweeps, or there is no end of graces")
}

// awaitHolder waits until a process of this readable name has claimed or settled.
func (s *crashSite) awaitHolder(t testing.TB, holder string) {
	t.Helper()
	require.Eventually(t, func() bool {
		names, err := s.rdb.HVals(t.Context(), s.keys.Key("holders")).Result()
		return err == nil && slices.Contains(names, holder)
	}, time.Minute, 5*time.Millisecond, "%s does not come", holder)
}

// awaitMarks waits until n marks of one sort are there, and returns them in their order.
func (s *crashSite) awaitMarks(t testing.TB, what string, n int) []mark {
	t.Helper()
	var got []mark
	require.Eventually(t, func() bool {
		got = marksOf(readMarks(t, s.Marks), what)
		return len(got) >= n
	}, time.Minute, 5*time.Millisecond, "want %d times %s", n, what)
	return got
}

// awaitCount waits until a counter of the queue has reached n.
func (s *crashSite) awaitCount(t testing.TB, counter string, n int64) {
	t.Helper()
	require.Eventually(t, func() bool { return s.count(t, counter) >= n }, 2*time.Minute, 10*time.Millisecond, "want %s = %d", counter, n)
}

func (s *crashSite) count(t testing.TB, counter string) int64 {
	t.Helper()
	n, err := s.rdb.HGet(t.Context(), s.keys.Key("stats"), counter).Int64()
	if err == redis.Nil {
		return 0
	}
	require.NoError(t, err)
	return n
}

// expiry is the stored end of a job's lease, in ms.
func (s *crashSite) expiry(t testing.TB, id string) int64 {
	t.Helper()
	score, err := s.rdb.ZScore(t.Context(), s.keys.Key("processing"), id).Result()
	require.NoError(t, err)
	return int64(score)
}

// graceEnd is when the last grace ends, or has ended, in ms.
func (s *crashSite) graceEnd(t testing.TB) int64 {
	t.Helper()
	end, err := s.rdb.HGet(t.Context(), s.keys.Key("sweep"), "grace").Int64()
	require.NoError(t, err)
	return end
}

// finish ends a worker process as a deploy does, and requires a clean end.
func (p *process) finish(t testing.TB) {
	t.Helper()
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 0, p.Wait(), "exit code after SIGTERM")
}
