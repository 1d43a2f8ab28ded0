package cases

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strings"
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
	"github.com/leaseq/leaseq/reliable"
)

// restartConfig is what a worker process of S06 is told. It notes starts and ends by the machine's clock, which is that
// of Redis too: Redis itself cannot be asked while it is away.
type restartConfig struct {
	Server   serverAt
	Marks    string
	Lease    time.Duration
	Stubborn time.Duration // how long the first run of a job "stubborn" works, whatever becomes of its context
	Slots    int
}

const restartQueue = "orders"

func (c *restartConfig) queueOptions() *reliable.QueueOptions {
	return &reliable.QueueOptions{Lease: c.Lease, MaxRetries: limitOf(0), MaxExpiries: limitOf(3)} // a failure would be the end
}

func (c *restartConfig) mark(what string, job *reliable.Job, note string) {
	putMark(c.Marks, mark{What: what, ID: job.ID, Attempt: job.Attempt, Fence: job.Fence(), Clock: job.DueAt.UnixMicro(), Note: note})
}

func (c *restartConfig) handle(ctx context.Context, job *reliable.Job) error {
	c.mark("start", job, "")
	switch first := job.Attempt == 1 && job.Failures == 0; {
	case first && strings.HasPrefix(job.ID, "held") && !c.ranBefore(job):
		select {
		case <-ctx.Done():
			c.mark("ended", job, context.Cause(ctx).Error())
			return context.Cause(ctx)
		case <-time.After(3 * c.Lease): // the restart was over before the lease was
		}
	case first && strings.HasPrefix(job.ID, "stubborn") && !c.ranBefore(job):
		<-time.After(c.Stubborn)
	}
	return nil
}

// ranBefore reports whether a job was started before: a release counts nothing, so that the job does not say it.
func (c *restartConfig) ranBefore(job *reliable.Job) bool { return job.Fence() != c.firstFence(job.ID) }

func (c *restartConfig) firstFence(id string) int64 {
	file, err := os.ReadFile(c.Marks)
	if err != nil {
		panic(err)
	}
	for line := range strings.Lines(string(file)) {
		var m mark
		if json.Unmarshal([]byte(line), &m) == nil && m.What == "start" && m.ID == id {
			return m.Fence
		}
	}
	return 0
}

var _ = child("restart-worker", func(config []byte) int {
	var c restartConfig
	if err := json.Unmarshal(config, &c); err != nil {
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

func (c *restartConfig) run(ctx context.Context) error {
	rdb := c.Server.client(0)
	defer rdb.Close()
	q, err := reliable.New(rdb, restartQueue, c.queueOptions())
	if err != nil {
		return err
	}
	consumer, err := reliable.NewConsumer(q, reliable.HandlerFunc(c.handle), &reliable.ConsumerOptions{
		Concurrency: c.Slots, WakeFallback: 50 * time.Millisecond,
		Hooks: &reliable.Hooks{OnDone: func(_ context.Context, e reliable.Event) {
			putMark(c.Marks, mark{What: "done", ID: e.ID, Attempt: e.Attempt, Fence: e.Fence})
		}},
	})
	if err != nil {
		return err
	}
	if err := consumer.Run(ctx); err != nil {
		return err
	}
	return q.Close(context.Background())
}

// restartSite is the situation of S06: a server of the case's own, two workers and a sidecar, all processes.
type restartSite struct {
	restartConfig
	*lane
	server  *redisproc.Server
	workers []*process
	sidecar *process
	graces  int64

	leftExpiry map[string]int64 // by ID, in ms, of what was in processing when the server ended
}

// memoryDir is a directory in memory, where there is such a file system: a server that flushes at each call stands still
// for seconds where the rest of the suite keeps the disk busy. Else it is "", the default.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "leaseq-cases-")
	if err != nil {
		return ""
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

func newRestartSite(t *testing.T, downtime time.Duration, o *redisproc.Options) *restartSite {
	t.Helper()
	s := &restartSite{server: redistest.Server(t, o)}
	s.restartConfig = restartConfig{
		Server: serverAt{Addr: s.server.Addr()}, Marks: marksFile(t), Slots: 5,
		Lease: shape(1500*time.Millisecond, 2*time.Second), Stubborn: downtime + 500*time.Millisecond,
	}
	rdb := s.Server.client(0)
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	t.Cleanup(func() { redistest.CheckQueue(t, rdb, keys.DefaultPrefix, restartQueue) })
	s.lane = laneOn(t, restartQueue, rdb, s.queueOptions())
	require.Empty(t, s.claim(1)) // publishes the limits
	s.sidecar = startChild(t, "counting-sidecar", s.Server)
	for range 2 {
		s.workers = append(s.workers, startChild(t, "restart-worker", s.restartConfig))
	}
	require.Eventually(t, func() bool { // they have swept, and spare nobody any more
		got, err := s.rdb.HMGet(t.Context(), s.keys.Key("sweep"), "swept", "grace").Result()
		return err == nil && got[0] != nil && got[1] != nil && got[0].(string) >= got[1].(string)
	}, time.Minute, 5*time.Millisecond)
	return s
}

// fill puts 20 jobs into processing, 10 of them under workers that live on and 10 under a holder that is gone, 30 that
// are due now, 50 that are due later, and 10 that fall due while the server is away.
func (s *restartSite) fill(t *testing.T, downtime time.Duration) (jobs int) {
	t.Helper()
	s.enqueue(append(numberedItems("held", 5), numberedItems("stubborn", 5)...)...)
	require.Eventually(t, func() bool { return len(marksOf(readMarks(t, s.Marks), "start")) == 10 }, time.Minute, 5*time.Millisecond)
	s.enqueue(numberedItems("left", 10)...)
	s.claimExactly(10)
	later, meanwhile := numberedItems("later", 50), numberedItems("meanwhile", 10)
	for i := range later {
		later[i].Delay = shape(4*time.Second, 5*time.Second)
	}
	for i := range meanwhile {
		meanwhile[i].Delay = downtime/2 + 250*time.Millisecond
	}
	s.enqueue(append(append(numberedItems("now", 30), later...), meanwhile...)...)
	s.graces = s.stats().Counters["graces"]
	scores, err := s.rdb.ZRangeWithScores(t.Context(), s.keys.Key("processing"), 0, -1).Result()
	require.NoError(t, err)
	require.Len(t, scores, 20, "in processing")
	s.leftExpiry = map[string]int64{}
	for _, z := range scores {
		s.leftExpiry[z.Member.(string)] = int64(z.Score)
	}
	return 20 + 30 + 50 + 10
}

// produce enqueues one job after the other until the returned function is called, which says how many were answered.
func (s *restartSite) produce(t *testing.T) (stop func() int) {
	t.Helper()
	q := newQueueOn(t, s.client(t), restartQueue, s.queueOptions())
	quit, made, first := make(chan struct{}), make(chan int, 1), make(chan struct{})
	go func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-tick.C:
			case <-quit:
				made <- n
				return
			}
			if _, err := q.Enqueue(context.Background(), reliable.Item{Kind: "case", ID: fmt.Sprint("new", n)}); err != nil {
				t.Errorf("enqueue: %v", err)
			}
			if n == 0 {
				close(first)
			}
		}
	}()
	awaitFrom(t, first, "the first answer to the producer")
	return sync.OnceValue(func() int {
		close(quit)
		return <-made
	})
}

func (s *restartSite) client(t *testing.T) *redis.Client {
	t.Helper()
	rdb := s.Server.client(0)
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	return rdb
}

// The server ends, by SIGTERM or by SIGKILL, while jobs are in processing, due and waiting, and comes back two seconds
// later. Every job is acked once, delayed ones are on time, what was in processing starts again only when its stored
// lease is over, and no process has ended.
func TestS06_RestartOfRedisLosesNoJobAndEndsNoProcess(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, server *redisproc.Server) error{
		"SIGTERM": func(t *testing.T, server *redisproc.Server) error { return server.Terminate(t.Context()) },
		"SIGKILL": func(_ *testing.T, server *redisproc.Server) error { return server.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			downtime := shape(1500*time.Millisecond, 2*time.Second)
			s := newRestartSite(t, downtime, &redisproc.Options{AppendOnly: true, AppendFsync: "always", Dir: memoryDir(t)})
			jobs := s.fill(t, downtime)
			stop := s.produce(t)
			t.Cleanup(func() { stop() })

			require.NoError(t, end(t, s.server))
			<-time.After(downtime)
			require.NoError(t, s.server.Restart(t.Context()))
			restarted := time.Now()
			require.Eventually(t, func() bool { return s.stats().Counters["acked"] >= int64(jobs) }, time.Minute, 10*time.Millisecond)
			jobs += stop()
			require.Eventually(t, func() bool { return s.stats().Counters["acked"] == int64(jobs) }, time.Minute, 10*time.Millisecond,
				"every job that an enqueue was answered for, %d in all", jobs)
			s.endAll(t)
			s.check(t, jobs, restarted)
		})
	}
}

// endAll requires that all processes still run, and ends them.
func (s *restartSite) endAll(t *testing.T) {
	t.Helper()
	for _, p := range append(s.workers, s.sidecar) {
		select {
		case <-p.done:
			assert.Fail(t, "a process has ended", "%v", p.ProcessState)
		default:
			p.finish(t)
		}
	}
}

func (s *restartSite) check(t *testing.T, jobs int, restarted time.Time) {
	t.Helper()
	all := readMarks(t, s.Marks)
	done, starts, ends := map[string]int{}, map[string][]mark{}, map[string]mark{}
	for _, m := range all {
		switch m.What {
		case "done":
			done[m.ID]++
		case "start":
			starts[m.ID] = append(starts[m.ID], m)
		case "ended":
			ends[m.ID] = m
		}
	}
	assert.Len(t, done, jobs, "distinct jobs acked")
	for id, n := range done {
		assert.Equal(t, 1, n, "acks of %s", id)
	}
	late := map[string]time.Duration{}
	for id, runs := range starts {
		sort := strings.TrimRight(id, "0123456789")
		first := runs[0]
		wait := time.Duration(first.At-first.Clock) * time.Microsecond
		late[sort] = max(late[sort], wait)
		assert.GreaterOrEqual(t, wait, time.Duration(0), "%s started before it was due", id)
		s.checkAgain(t, id, runs, ends)
	}
	assert.LessOrEqual(t, late["later"], time.Second, "how late a delayed job started")
	counters := s.stats().Counters
	assert.Zero(t, counters["nacked"]+counters["died"], "an outage is no failure")
	assert.GreaterOrEqual(t, counters["expired"], int64(10))
	s.balanced(jobs)
	t.Logf("%d jobs; after their due times at most: %v; expired %d, released %d; back %v after the restart; %d graces",
		jobs, late, counters["expired"], counters["released"],
		time.UnixMicro(starts["left0"][0].At).Sub(restarted), counters["graces"]-s.graces)
}

// checkAgain judges the starts of one job.
func (s *restartSite) checkAgain(t *testing.T, id string, runs []mark, ends map[string]mark) {
	t.Helper()
	expiry, was := s.leftExpiry[id]
	if !was {
		assert.Len(t, runs, 1, "starts of %s", id)
		return
	}
	again := runs[1:]
	if strings.HasPrefix(id, "left") { // its first holder is no worker
		again = runs
		assert.Equal(t, 2, runs[0].Attempt, "%s: one expiry is counted", id)
		graceEnd := s.graceEnd(t)
		assert.LessOrEqual(t, time.UnixMicro(runs[0].Clock).Sub(graceEnd), reclaimBound+sweepBound, "%s was put back late after the grace", id)
	}
	assert.LessOrEqual(t, len(again), 1, "starts of %s", id)
	for _, run := range again {
		assert.GreaterOrEqual(t, run.At, expiry*1000, "%s started again before its stored lease was over", id)
		assert.Greater(t, run.At, ends[id].At, "%s started again before its first holder gave up", id)
		if !strings.HasPrefix(id, "left") {
			assert.Greater(t, run.Fence, runs[0].Fence, id)
		}
	}
}

// graceEnd is when the last grace ended.
func (s *restartSite) graceEnd(t *testing.T) time.Time {
	t.Helper()
	ms, err := s.rdb.HGet(t.Context(), s.keys.Key("sweep"), "grace").Int64()
	require.NoError(t, err)
	return time.UnixMilli(ms)
}
