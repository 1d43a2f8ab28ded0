//go:build unix

package cases

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/reliable"
)

// deployConfig is what a worker process is told that is going to be asked to stop.
type deployConfig struct {
	crashConfig
	Drain time.Duration
	Quick bool // every handler returns at once, whatever its job says
}

// deployJob is the payload of a job of such a worker.
type deployJob struct {
	Work  time.Duration // how long its handler takes
	After bool          // Work counts from when the worker was asked to stop
	Obey  bool          // it returns when its context ends
}

// item makes a job out of it.
func (j deployJob) item(id string) reliable.Item {
	payload, err := json.Marshal(j)
	if err != nil {
		panic(err)
	}
	return reliable.Item{ID: id, Kind: "stop", Payload: payload}
}

// secondSignal is the exit code of a process that the second SIGTERM ends: what a shell reports of one that a signal ends.
const secondSignal = 128 + int(syscall.SIGTERM)

// A deployWorker stops as a program does that embeds a Consumer: the first SIGTERM ends Run's context, and the second one
// the process.
type deployWorker struct {
	deployConfig
	beside  *redis.Client
	asked   context.Context // ends at the first SIGTERM
	running atomic.Int64    // handlers
}

var _ = child("deploy-worker", func(config []byte) int {
	w := &deployWorker{}
	if err := json.Unmarshal(config, &w.deployConfig); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, stop := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM)
	go func() {
		<-signals
		stop()
		<-signals
		os.Exit(secondSignal)
	}()
	w.asked = ctx
	if err := w.run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
})

func (w *deployWorker) run() error {
	rdb := w.Server.client(0)
	defer rdb.Close()
	w.beside = w.Server.client(1)
	defer w.beside.Close()
	q, err := reliable.New(rdb, w.Queue, w.queueOptions())
	if err != nil {
		return err
	}
	c, err := reliable.NewConsumer(q, reliable.HandlerFunc(w.handle), &reliable.ConsumerOptions{
		Concurrency: w.Concurrency, WakeFallback: w.Fallback, Holder: w.Holder, DrainTimeout: w.Drain,
		Logger: slog.New(slog.NewTextHandler(os.Stdout, nil)),
		Hooks: &reliable.Hooks{
			OnStart: func(_ context.Context, e reliable.Event) {
				putMark(w.Marks, mark{What: "due for", ID: e.ID, Note: e.Wait.String()})
			},
			OnDone:    func(_ context.Context, e reliable.Event) { w.event("done", e) },
			OnRelease: func(_ context.Context, e reliable.Event) { w.event("released", e) },
			OnOverdue: func(_ context.Context, e reliable.Event) { w.event("overdue", e) },
		},
	})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	if err := c.Run(w.asked); err != nil {
		return err
	}
	putMark(w.Marks, mark{What: "returned", Clock: redisClock(w.beside), Note: fmt.Sprint(w.running.Load())})
	return q.Close(context.Background())
}

func (w *deployWorker) handle(ctx context.Context, job *reliable.Job) error {
	w.running.Add(1)
	defer w.running.Add(-1)
	putMark(w.Marks, mark{What: "start", ID: job.ID, Attempt: job.Attempt, Fence: job.Fence(), Clock: redisClock(w.beside)})
	var j deployJob
	if err := json.Unmarshal(job.Payload, &j); err != nil || w.Quick {
		return err
	}
	ended := ctx.Done()
	if !j.Obey {
		ended = nil
	}
	if j.After {
		<-w.asked.Done()
	}
	select {
	case <-ended:
		return context.Cause(ctx)
	case <-time.After(j.Work):
		return nil
	}
}

func (w *deployWorker) event(what string, e reliable.Event) {
	putMark(w.Marks, mark{What: what, ID: e.ID, Attempt: e.Attempt, Fence: e.Fence, Clock: redisClock(w.beside)})
}

// deploySite is what a case with workers stands on that are asked to stop.
type deploySite struct {
	*crashSite
	Drain time.Duration
}

func newDeploySite(t testing.TB, c deployConfig) *deploySite {
	t.Helper()
	return &deploySite{crashSite: newCrashSite(t, c.crashConfig), Drain: c.Drain}
}

// deployWorker starts a worker process under a name, and waits until it has claimed for the first time.
func (s *deploySite) deployWorker(t testing.TB, holder string, change func(c *deployConfig)) *process {
	t.Helper()
	config := deployConfig{crashConfig: s.crashConfig, Drain: s.Drain}
	config.Holder = holder
	if change != nil {
		change(&config)
	}
	p := startChild(t, "deploy-worker", config)
	require.Equal(t, "ready", <-p.Lines, "the first line of a worker")
	s.awaitHolder(t, holder)
	return p
}

// askToStop sends SIGTERM and returns Redis' clock as it was before that.
func (s *deploySite) askToStop(t testing.TB, p *process) time.Time {
	t.Helper()
	at := s.serverTime()
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	return at
}

// awaitLine waits for a line of the child's log that holds all parts.
func (p *process) awaitLine(t testing.TB, parts ...string) string {
	t.Helper()
	for line := range p.Lines {
		if hasAll(line, parts) {
			return line
		}
	}
	t.Fatalf("the child has ended and did not say %q", parts)
	return ""
}

func hasAll(line string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(line, part) {
			return false
		}
	}
	return true
}

// startsOf are the starts of one job.
func startsOf(all []mark, id string) (starts []mark) {
	for _, m := range marksOf(all, "start") {
		if m.ID == id {
			starts = append(starts, m)
		}
	}
	return starts
}
