package cases

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reaper"
	"github.com/leaseq/leaseq/reliable"
)

// panicConfig is what a process is told in which a loop of ours meets a panic, or the end of its goroutine: in code of
// its user's that it calls.
type panicConfig struct {
	Server        serverAt // behind a proxy
	Queue, Prefix string
	Lease         time.Duration
	Part          string // whose loop: consumer or sidecar
	Log           string // the panic comes in the log, at the first record whose message begins so
	Hook          string // or in this hook, at its first call
	Goexit        bool   // it is runtime.Goexit instead
	Marks         string
}

// panicProcess is that process.
type panicProcess struct {
	panicConfig
	once sync.Once
}

// strike panics, once.
func (c *panicProcess) strike() {
	c.once.Do(func() {
		putMark(c.Marks, mark{What: "panic"})
		hush()
		if c.Goexit {
			runtime.Goexit()
		}
		panic("from code of the user's, as the test wants it")
	})
}

// hush has what a process dies of go nowhere: it is expected here.
func hush() {
	if runtime.GOOS != "windows" {
		_ = os.Stderr.Close()
		_, _ = os.OpenFile(os.DevNull, os.O_WRONLY, 0) // gets the free descriptor
	}
}

// A panickingLog is a slog.Handler that writes nothing and panics once.
type panickingLog struct {
	slog.Handler
	c *panicProcess
}

func (h panickingLog) Enabled(context.Context, slog.Level) bool { return true }

func (h panickingLog) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, h.c.Log) {
		h.c.strike()
	}
	return nil
}

var _ = child("s43-panic", func(config []byte) int {
	c := &panicProcess{}
	if err := json.Unmarshal(config, &c.panicConfig); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := c.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
})

func (c *panicProcess) run(ctx context.Context) error {
	logs := map[string]*slog.Logger{}
	if c.Log != "" {
		logs[c.Part] = slog.New(panickingLog{slog.DiscardHandler, c})
	}
	client := func() *redis.Client {
		return redis.NewClient(&redis.Options{Addr: c.Server.Addr, Username: c.Server.Username, Password: c.Server.Password, DB: c.Server.DB, MaxRetries: -1})
	}
	one, two := client(), client()
	defer one.Close()
	defer two.Close()
	q, err := reliable.New(one, c.Queue, &reliable.QueueOptions{Prefix: c.Prefix, Lease: c.Lease})
	if err != nil {
		return err
	}
	worker, err := reliable.NewConsumer(q, reliable.HandlerFunc(func(ctx context.Context, job *reliable.Job) error {
		if job.ID == "long" {
			<-ctx.Done()
		}
		return context.Cause(ctx)
	}), &reliable.ConsumerOptions{
		Concurrency: 4, WakeFallback: loopFallback, DrainTimeout: 100 * time.Millisecond, Logger: logs["consumer"], Hooks: c.hooks(),
	})
	if err != nil {
		return err
	}
	o := &reaper.Options{Prefix: c.Prefix, RefreshEvery: loopRefresh, Logger: logs["sidecar"]}
	if c.Part == "sidecar" {
		switch c.Hook {
		case "OnSweep":
			o.OnSweep = func(string, lease.Expired) { c.strike() }
		case "OnError":
			o.OnError = func(string, error) { c.strike() }
		}
	}
	r, err := reaper.New(two, o)
	if err != nil {
		return err
	}
	ended := make(chan error, 2)
	go func() { ended <- worker.Run(ctx) }()
	go func() { ended <- r.Run(ctx) }()
	for range 2 {
		if err := <-ended; err != nil || ctx.Err() == nil { // nobody asked for an end: not to stay as half a process
			return fmt.Errorf("ended: %w", err)
		}
	}
	return nil
}

func (c *panicProcess) hooks() *reliable.Hooks {
	strike := func(context.Context, reliable.Event) { c.strike() }
	if c.Part == "consumer" {
		switch c.Hook {
		case "OnStart":
			return &reliable.Hooks{OnStart: strike}
		case "OnDone":
			return &reliable.Hooks{OnDone: strike}
		case "OnError":
			return &reliable.Hooks{OnError: strike}
		}
	}
	return nil
}

// panics are where code of the user's is called by loops of ours.
var panics = []panicConfig{
	{Part: "consumer", Log: "queue error"},
	{Part: "consumer", Log: "extending leases failed"},
	{Part: "consumer", Log: "a sweep failed"},
	{Part: "consumer", Log: "waiting for jobs failed"},
	{Part: "consumer", Log: "job done"},
	{Part: "consumer", Hook: "OnStart"},
	{Part: "consumer", Hook: "OnDone"},
	{Part: "consumer", Hook: "OnError"},
	{Part: "sidecar", Log: "sweeping begins"},
	{Part: "sidecar", Log: "the registry of queues"},
	{Part: "sidecar", Hook: "OnSweep"},
	{Part: "sidecar", Hook: "OnError"},
	{Part: "consumer", Log: "extending leases failed", Goexit: true},
	{Part: "consumer", Log: "a sweep failed", Goexit: true},
	{Part: "sidecar", Hook: "OnSweep", Goexit: true},
	{Part: "sidecar", Log: "the registry of queues", Goexit: true},
	{Part: "consumer", Log: "waiting for jobs failed", Goexit: true},
	{Part: "consumer", Log: "queue error", Goexit: true},
}

func (c *panicConfig) String() string {
	what := "a panic"
	if c.Goexit {
		what = "Goexit"
	}
	return fmt.Sprintf("%s in the %s's %s%s", what, c.Part, c.Hook, c.Log)
}

// panicSite is such a process, behind a proxy that makes each of its loops fail, so that it has something to log.
type panicSite struct {
	*lane
	panicConfig
	fail *failer
	p    *process
	made int
}

// Code of the user's panics where a loop of ours calls it. Either that is survived, and everything goes on, or the
// process ends with a code that is not 0; none is left that lives and does nothing.
func TestS43_APanicInALoopIsSurvivedOrEndsTheProcess(t *testing.T) {
	t.Parallel()
	var sites []*panicSite
	for _, one := range panics {
		d := detourTo(t, nil)
		o := loopOptions()
		s := &panicSite{lane: newLane(t, o), panicConfig: one}
		s.Server, s.Prefix, s.Lease, s.Marks = sharedAt(t), o.Prefix, o.Lease, marksFile(t)
		s.Queue, s.Server.Addr = s.name, d.Addr()
		s.enqueue(reliable.Item{ID: "long", Kind: "case"})
		s.fail = newFailer(d.Proxy, loops)
		s.p = startChild(t, "s43-panic", s.panicConfig)
		sites = append(sites, s)
	}
	for struck := 0; struck < len(sites); {
		struck = 0
		for _, s := range sites {
			if len(marksOf(readMarks(t, s.Marks), "panic")) > 0 {
				struck++
				continue
			}
			select {
			case <-s.p.done:
				require.Fail(t, "it ended before it met a panic", s.String())
			default:
			}
			s.poke()
		}
		<-time.After(300 * time.Millisecond)
	}
	survived := 0
	for _, s := range sites {
		s.fail.armAll(loops43, netfault.Pass, 0)
		s.poke()
	}
	for _, s := range sites {
		if s.survives(t) {
			survived++
			t.Logf("%s: survived", s)
			s.p.finish(t)
		} else {
			t.Logf("%s: exit code %d", s, s.p.Wait())
			assert.NotZero(t, s.p.Wait(), "%s: the exit code", s)
		}
	}
	assert.Positive(t, survived, "hooks at least")
}

// loops43 are the calls of all loops.
var loops43 = []string{"claim", "settle", "extend", "expire", "blpop", "smembers"}

// poke gives the process one more job, and has each of its loops fail once if it has not met its panic yet.
func (s *panicSite) poke() {
	s.t.Helper()
	s.made++
	s.enqueue(reliable.Item{Kind: "case", ID: fmt.Sprint("j", s.made)})
	if len(marksOf(readMarks(s.t, s.Marks), "panic")) == 0 {
		s.fail.armAll(loops43, netfault.DropRequest, 1)
	}
}

// survives waits until the process has ended, or has shown that every loop works: all jobs are done, and each loop has
// made two more calls.
func (s *panicSite) survives(t *testing.T) bool {
	t.Helper()
	ended := false
	require.Eventually(t, func() bool {
		select {
		case <-s.p.done:
			ended = true
			return true
		default:
		}
		for _, loop := range loops43 {
			if loop != "settle" && s.fail.passes(loop) < 2 {
				return false
			}
		}
		return s.stats().Counters["acked"] == int64(s.made)
	}, time.Minute, 10*time.Millisecond, "%s: it lives, and something of it does not work", s)
	return !ended
}
