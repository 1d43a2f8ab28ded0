package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/chaos/record"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

// realLease is that of the queues of these tests, and busy what a busy machine may add to what is promised.
const (
	realLease = 2 * time.Second
	busy      = 30 * time.Second
)

// orders are what a worker process is told.
type orders struct {
	Addr, Username, Password string
	Queue, File              string
}

// workAs is a worker in a process of its own, until it is killed.
func workAs(text string) int {
	var o orders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	rdb := redis.NewClient(&redis.Options{Addr: o.Addr, Username: o.Username, Password: o.Password})
	q, err := reliable.New(rdb, o.Queue, &reliable.QueueOptions{Lease: realLease})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	rec, err := record.Open(o.File, &record.Options{Queue: o.Queue, Process: "child", Slots: 4, Lease: realLease})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	h := reliable.HandlerFunc(func(ctx context.Context, job *reliable.Job) error {
		if job.Kind == "hang" {
			<-ctx.Done()
		}
		return ctx.Err()
	})
	c, err := reliable.NewConsumer(q, h, &reliable.ConsumerOptions{
		Concurrency: 4, Middleware: []reliable.Middleware{rec.Middleware()}, Hooks: rec.Hooks(nil),
	})
	if err == nil {
		err = c.Run(context.Background())
	}
	fmt.Fprintln(os.Stderr, err)
	return 2
}

// A workbench is what a test of a real run has.
type workbench struct {
	t     *testing.T
	dir   string
	rdb   *redis.Client
	queue string
	q     *reliable.Queue
	rec   *record.Recorder // the test's own
}

func newWorkbench(t *testing.T) *workbench {
	t.Helper()
	w := &workbench{t: t, dir: t.TempDir(), queue: redistest.Queue(t)}
	w.rdb = redis.NewClient(redistest.Options(t))
	t.Cleanup(func() { w.rdb.Close() })
	var err error
	w.q, err = reliable.New(w.rdb, w.queue, &reliable.QueueOptions{
		Lease: realLease, Backoff: reliable.Backoff{Base: 10 * time.Millisecond, Cap: 20 * time.Millisecond},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.q.Close(context.Background())) })
	w.rec = w.record("test", 0)
	w.clock()
	return w
}

func (w *workbench) record(process string, slots int) *record.Recorder {
	w.t.Helper()
	rec, err := record.Open(filepath.Join(w.dir, process+".jsonl"), &record.Options{Queue: w.queue, Process: process, Slots: slots, Lease: realLease})
	require.NoError(w.t, err)
	w.t.Cleanup(func() { require.NoError(w.t, rec.Close()) })
	return rec
}

// clock notes the server's time.
func (w *workbench) clock() {
	w.t.Helper()
	for range 5 {
		before := time.Now()
		now, err := w.rdb.Time(w.t.Context()).Result()
		require.NoError(w.t, err)
		w.rec.ServerTime(before, time.Now(), now)
	}
}

// work runs a recorded consumer until it is stopped.
func (w *workbench) work(process string, h reliable.Handler, o reliable.ConsumerOptions) (stop func()) {
	w.t.Helper()
	rec := w.record(process, 4)
	o.Concurrency, o.Middleware, o.Hooks = 4, []reliable.Middleware{rec.Middleware()}, rec.Hooks(o.Hooks)
	c, err := reliable.NewConsumer(w.q, h, &o)
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	var stopped bool
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			require.NoError(w.t, <-ended)
			require.NoError(w.t, rec.Close())
		}
	}
	w.t.Cleanup(stop)
	return stop
}

// drained waits until nothing is due or in processing.
func (w *workbench) drained() {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		stats, err := w.q.Stats(context.Background())
		return err == nil && stats.Due+stats.Processing == 0
	}, 2*time.Minute, 20*time.Millisecond)
}

// judge ends the recording and checks.
func (w *workbench) judge() *Report {
	w.t.Helper()
	w.clock()
	require.NoError(w.t, w.rec.Close())
	snapshot, err := TakeSnapshot(w.t.Context(), w.rdb, "", w.queue)
	require.NoError(w.t, err)
	history, err := ReadDir(w.dir)
	require.NoError(w.t, err)
	return mustCheck(w.t, history, snapshot, &CheckOptions{Slack: busy})
}

func (w *workbench) enqueue(n int, kind string, delay time.Duration) {
	w.t.Helper()
	for i := range n {
		_, _, err := w.rec.Enqueue(w.t.Context(), w.q, reliable.Item{ID: fmt.Sprintf("%s-%d", kind, i), Kind: kind, Delay: delay})
		require.NoError(w.t, err)
	}
}

// TestARealRunPasses works off jobs of every kind of end with two recorded consumers.
func TestARealRunPasses(t *testing.T) {
	t.Parallel()
	w := newWorkbench(t)
	failure := errors.New("no")
	h := reliable.HandlerFunc(func(ctx context.Context, job *reliable.Job) error {
		first := job.Attempt == 1 && job.Redrives == 0
		switch {
		case job.Kind == "discard" && job.Redrives == 0:
			return reliable.Discard(failure)
		case job.Kind == "retry" && first:
			return reliable.RetryAfter(30*time.Millisecond, failure)
		case job.Kind == "panic" && first:
			panic("on purpose")
		case job.Kind == "late" && first:
			<-job.Context().Done() // long after its time: the lease runs out
			return failure
		}
		return nil
	})
	var released reliable.HandlerFunc = func(ctx context.Context, job *reliable.Job) error {
		if job.Kind == "release" && time.Since(job.EnqueuedAt) < 300*time.Millisecond {
			return reliable.ReleaseAfter(100*time.Millisecond, failure)
		}
		return h(ctx, job)
	}
	o := reliable.ConsumerOptions{JobTimeout: 500 * time.Millisecond}
	stop1, stop2 := w.work("one", released, o), w.work("two", released, o)
	for _, kind := range []string{"plain", "retry", "release", "panic"} {
		w.enqueue(10, kind, 0)
	}
	w.enqueue(5, "later", 300*time.Millisecond)
	w.enqueue(2, "late", 0)
	_, _, err := w.rec.Enqueue(t.Context(), w.q, reliable.Item{ID: "past", Kind: "plain", At: time.Now().Add(-time.Hour)})
	require.NoError(t, err)
	w.enqueue(4, "discard", 0)
	w.enqueue(2, "cancel", time.Hour)
	_, _, err = w.rec.Enqueue(t.Context(), w.q, reliable.Item{ID: "cancel-0", Kind: "cancel"})
	require.ErrorIs(t, err, reliable.ErrDuplicate)
	_, err = w.rec.Cancel(t.Context(), w.q, "cancel-0", "cancel-1")
	require.NoError(t, err)
	w.drained()
	_, err = w.rec.Redrive(t.Context(), w.q, "discard-0", "discard-1")
	require.NoError(t, err)
	_, err = w.rec.Purge(t.Context(), w.q, reliable.Dead, "discard-2")
	require.NoError(t, err)
	w.drained()
	stop1()
	stop2()
	r := w.judge()
	t.Log("\n" + text(t, r))
	require.True(t, r.OK(), text(t, r))
	require.Zero(t, r.Unclosed)
	require.EqualValues(t, 54, r.Totals.Jobs)
	require.EqualValues(t, 54, r.Totals.Acknowledged)
	require.EqualValues(t, 50, r.Totals.Acked)
	require.EqualValues(t, 1, r.Totals.LeftDead)
	for _, name := range []string{CheckSettles, CheckFences, CheckOverlap, CheckDue, CheckCounts, CheckLost, CheckAgain, CheckAnswers, CheckStarts, CheckDeadlines, CheckClocks, CheckStats} {
		require.NotZero(t, r.Check(name).Looked, name)
	}
	for name, n := range map[string]int64{
		"settle acked": 50, "settle dead": 4, "handler panicked": 10,
		"enqueue duplicate": 1, "job cancelled": 2, "job redriven": 2, "job purged": 1,
	} {
		require.Equal(t, n, r.Cases[name], name)
	}
	require.GreaterOrEqual(t, r.Cases["context ended: timeout"], int64(2))
	require.GreaterOrEqual(t, r.Cases["settle retried"], int64(20))
	require.GreaterOrEqual(t, r.Cases["start"], int64(74))
}

// A worker is a process that works for a test.
type worker struct {
	t      *testing.T
	cmd    *exec.Cmd
	file   string
	killed bool
}

// child starts a worker, which is killed when the test ends at the latest, and waits until it has begun so many jobs.
func (w *workbench) child(starts int) *worker {
	w.t.Helper()
	o := redistest.Options(w.t)
	c := &worker{t: w.t, file: filepath.Join(w.dir, "child.jsonl")}
	told, err := json.Marshal(orders{Addr: o.Addr, Username: o.Username, Password: o.Password, Queue: w.queue, File: c.file})
	require.NoError(w.t, err)
	c.cmd = exec.Command(os.Args[0])
	c.cmd.Env = append(os.Environ(), workerVariable+"="+string(told))
	c.cmd.Stderr = os.Stderr
	require.NoError(w.t, c.cmd.Start())
	w.t.Cleanup(c.kill)
	c.await(starts, func(e *record.Event) bool { return e.Kind == record.Started })
	return c
}

// await waits until the worker has written n events of a sort.
func (c *worker) await(n int, sort func(*record.Event) bool) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		found := 0
		_, err := record.File(c.file).Each(func(e *record.Event) error {
			if sort(e) {
				found++
			}
			return nil
		})
		return err == nil && found >= n
	}, time.Minute, 20*time.Millisecond)
}

func (c *worker) kill() {
	if !c.killed {
		c.killed = true
		require.NoError(c.t, c.cmd.Process.Kill())
		require.Error(c.t, c.cmd.Wait())
	}
}

// TestARealKillPasses kills a worker process that holds jobs, and has another one take over.
func TestARealKillPasses(t *testing.T) {
	t.Parallel()
	w := newWorkbench(t)
	w.enqueue(4, "hang", 0)
	w.enqueue(20, "plain", 0)
	child := w.child(4)
	w.rec.Write(&record.Event{Kind: record.Faulted, Call: 1, Out: record.FaultBegin, Name: "SIGKILL", Target: "child", Effects: []string{record.Dies}})
	child.kill()
	w.rec.Write(&record.Event{Kind: record.Faulted, Call: 1, Out: record.FaultEnd})
	stop := w.work("successor", reliable.HandlerFunc(func(context.Context, *reliable.Job) error { return nil }), reliable.ConsumerOptions{})
	w.drained()
	stop()
	r := w.judge()
	require.True(t, r.OK(), text(t, r))
	require.Equal(t, 1, r.Unclosed)
	require.EqualValues(t, 4, r.Totals.Duplicated)
	require.EqualValues(t, 24, r.Totals.Acked)
	require.EqualValues(t, 1, r.Cases["fault: dies"])
	for _, name := range []string{CheckEarly, CheckCauses, CheckLate} {
		require.EqualValues(t, 4, r.Check(name).Looked, name)
	}
}
