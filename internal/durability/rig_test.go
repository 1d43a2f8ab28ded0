package durability

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/chaos"
	"github.com/leaseq/leaseq/chaos/record"
	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redisproc"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/internal/servershim"
	"github.com/leaseq/leaseq/reliable"
)

const (
	queueName = "orders"
	length    = time.Second // of a lease
	stays     = time.Hour   // a delay by which a job is still due at the end of the test
	pace      = 2 * time.Millisecond

	// busy is what a busy machine may add to what the checks of time allow: they are not what is looked at here.
	busy = 10 * time.Second
)

// A rig is a redis-server of the test's own with a queue on it: two producers, one of them with a delay, and a consumer,
// all of which write records and live on while the server fails.
type rig struct {
	t       testing.TB
	shim    *servershim.Shim // nil: none
	server  *redisproc.Server
	rdb     *redis.Client
	queue   *reliable.Queue
	dir     string           // of the records
	rec     *record.Recorder // of producers and faults
	began   int64            // µs since 1970: when the times of rec begin
	faults  int64
	life    context.Context // of enqueues: ends with the test
	stop    func()          // the producers
	rest    func()          // the consumer
	payload []byte

	answered         [2]atomic.Int64 // enqueues, of each producer
	refused, unknown atomic.Int64
}

type rigOptions struct {
	fsync   string
	dir     string // of the server; "": one in memory
	args    []string
	later   time.Duration // the delay of every other job
	payload int           // bytes
	bare    bool          // without a shim
}

func newRig(t *testing.T, o rigOptions) *rig {
	t.Helper()
	r := &rig{t: t, dir: recordDir(t), payload: make([]byte, o.payload)}
	options := &redisproc.Options{AppendOnly: true, AppendFsync: o.fsync, Args: o.args, Dir: o.dir}
	if options.Dir == "" {
		options.Dir = memoryDir(t)
	}
	if !o.bare {
		var err error
		r.shim, err = servershim.Build("")
		if errors.Is(err, servershim.ErrUnavailable) {
			t.Skip(err)
		}
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, r.shim.Close()) })
		options.Env = r.shim.Env()
	}
	r.server = redistest.Server(t, options)
	if r.shim != nil {
		t.Cleanup(func() { require.NoError(t, r.shim.StallSyncs(false)) }) // before the server is stopped
	}
	r.rdb = redis.NewClient(&redis.Options{Addr: r.server.Addr()})
	t.Cleanup(func() { require.NoError(t, r.rdb.Close()) })
	never := 1000
	var err error
	r.queue, err = reliable.New(r.rdb, queueName, &reliable.QueueOptions{Lease: length, MaxExpiries: &never})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), busy)
		defer cancel()
		require.NoError(t, r.queue.Close(ctx))
	})
	r.rec = r.record("producers", 0)
	r.began = r.beginning()
	r.clock()
	r.consume()
	r.produce(o.later)
	r.flows()
	return r
}

// recordDir is a directory that stays where the test fails: what is in it tells why.
func recordDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "leaseq-durability-")
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("the records are in", dir)
			return
		}
		require.NoError(t, os.RemoveAll(dir))
	})
	return dir
}

// memoryDir is a directory in memory where there is such a file system: there a sync takes no time, so that a stall is
// one that the test has made.
func memoryDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "leaseq-durability-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

func (r *rig) record(process string, slots int) *record.Recorder {
	r.t.Helper()
	rec, err := record.Open(filepath.Join(r.dir, process+".jsonl"), &record.Options{Queue: queueName, Process: process, Slots: slots, Lease: length})
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, rec.Close()) })
	return rec
}

// beginning reads when the producers' times begin from their first line.
func (r *rig) beginning() (at int64) {
	r.t.Helper()
	_, err := record.File(filepath.Join(r.dir, "producers.jsonl")).Each(func(e *record.Event) error {
		if e.Kind == record.Opened {
			at = e.Wall
		}
		return nil
	})
	require.NoError(r.t, err)
	return at
}

// clock notes the server's time, so that the records can be compared with it.
func (r *rig) clock() {
	r.t.Helper()
	for read := 0; read < 3; {
		require.Eventually(r.t, func() bool { // connections of before a restart are dead
			before := time.Now()
			now, err := r.rdb.Time(r.t.Context()).Result()
			if err != nil {
				return false
			}
			r.rec.ServerTime(before, time.Now(), now)
			read++
			return true
		}, time.Minute, time.Millisecond)
	}
}

func (r *rig) consume() {
	r.t.Helper()
	const slots = 8
	rec := r.record("worker", slots)
	handler := reliable.HandlerFunc(func(context.Context, *reliable.Job) error { return nil })
	c, err := reliable.NewConsumer(r.queue, handler, &reliable.ConsumerOptions{
		Concurrency: slots, Middleware: []reliable.Middleware{rec.Middleware()}, Hooks: rec.Hooks(nil),
	})
	require.NoError(r.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	r.rest = sync.OnceFunc(func() {
		cancel()
		require.NoError(r.t, <-ended)
		require.NoError(r.t, rec.Close())
	})
	r.t.Cleanup(r.rest)
}

// produce has two producers enqueue one job after the other until they are stopped.
func (r *rig) produce(later time.Duration) {
	life, end := context.WithCancel(context.Background())
	r.life = life
	ctx, cancel := context.WithCancel(life)
	var producers sync.WaitGroup
	for p, delay := range []time.Duration{0, later} {
		producers.Go(func() {
			tick := time.NewTicker(pace)
			defer tick.Stop()
			for n := 0; ctx.Err() == nil; n++ {
				select {
				case <-ctx.Done():
				case <-tick.C:
					r.enqueue(p, n, delay)
				}
			}
		})
	}
	r.stop = sync.OnceFunc(func() { cancel(); producers.Wait() })
	r.t.Cleanup(func() { end(); r.stop() }) // a failed test may have left the server dead
}

// enqueue enqueues one job, and waits for the truth however long it takes.
func (r *rig) enqueue(producer, n int, delay time.Duration) {
	id := fmt.Sprint(producer, "-", n)
	item := reliable.Item{Kind: "order", ID: id, Delay: delay, Payload: r.payload}
	_, call, err := r.rec.Enqueue(r.life, r.queue, item)
	var unknown *reliable.UnknownError
	if errors.As(err, &unknown) {
		err = call.Resolve(r.life, unknown)
	}
	switch {
	case r.life.Err() != nil:
	case err == nil:
		r.answered[producer].Add(1)
	case errors.Is(err, reliable.ErrMisconf):
		r.refused.Add(1)
	case errors.Is(err, reliable.ErrNeverKnown):
		r.unknown.Add(1)
	default:
		r.t.Errorf("enqueue of %s: %v", id, err)
	}
}

// flows waits until enqueues of both producers have been answered that were sent after it was called.
func (r *rig) flows() {
	r.t.Helper()
	for p := range r.answered {
		from := r.answered[p].Load()
		require.Eventually(r.t, func() bool { return r.answered[p].Load() >= from+3 }, time.Minute, time.Millisecond)
	}
}

// fault writes down a fault that is over.
func (r *rig) fault(name string, from, to time.Time, effect string) {
	r.faults++
	r.rec.Write(&record.Event{
		Kind: record.Faulted, Call: r.faults, Out: record.FaultBegin, Name: name, Effects: []string{effect}, At: max(1, from.UnixMicro()-r.began),
	})
	r.rec.Write(&record.Event{Kind: record.Faulted, Call: r.faults, Out: record.FaultEnd, At: to.UnixMicro() - r.began})
}

// restart starts the server again and does what its operator is told to: where the log says that the end of the file was
// torn, have it written anew.
func (r *rig) restart() {
	r.t.Helper()
	before := r.log()
	require.NoError(r.t, r.server.Restart(r.t.Context()))
	if strings.Contains(strings.TrimPrefix(r.log(), before), "Truncating the AOF") {
		r.rewrite()
	}
}

func (r *rig) log() string {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.server.Dir(), "redis-server.log"))
	require.NoError(r.t, err)
	return string(text)
}

// rewrite has the append-only file written anew.
func (r *rig) rewrite() {
	r.t.Helper()
	rewrite(r.t, r.rdb)
}

func rewrite(t testing.TB, rdb *redis.Client) {
	t.Helper()
	idle := func() bool {
		info, err := rdb.Info(t.Context(), "persistence").Result()
		return err == nil && strings.Contains(info, "aof_rewrite_in_progress:0") && strings.Contains(info, "aof_rewrite_scheduled:0") &&
			strings.Contains(info, "aof_last_bgrewrite_status:ok")
	}
	require.Eventually(t, func() bool { return rdb.BgRewriteAOF(t.Context()).Err() == nil }, time.Minute, 5*time.Millisecond) // one may be under way
	require.Eventually(t, idle, time.Minute, 5*time.Millisecond)
}

// judge ends everything, and has the records and what is left in Redis checked.
func (r *rig) judge() *chaos.Report {
	r.t.Helper()
	r.stop()
	r.drain()
	r.clock()
	r.rest()
	require.NoError(r.t, r.rec.Close())
	redistest.CheckQueue(r.t, r.rdb, keys.DefaultPrefix, queueName)
	history, err := chaos.ReadDir(r.dir)
	require.NoError(r.t, err)
	report, err := chaos.Check(history, r.snapshot(), &chaos.CheckOptions{Slack: busy})
	require.NoError(r.t, err)
	return report
}

func (r *rig) snapshot() *chaos.Snapshot {
	r.t.Helper()
	s, err := chaos.TakeSnapshot(r.t.Context(), r.rdb, "", queueName)
	require.NoError(r.t, err)
	return s
}

// drain waits until nothing is in processing, or due but for what is due long after.
func (r *rig) drain() {
	r.t.Helper()
	p, err := keys.New(keys.DefaultPrefix, queueName, 0)
	require.NoError(r.t, err)
	soon := strconv.FormatInt(time.Now().Add(stays/2).UnixMilli(), 10)
	require.Eventually(r.t, func() bool {
		due, err1 := r.rdb.ZCount(r.t.Context(), p.Key("due"), "-inf", soon).Result()
		held, err2 := r.rdb.ZCard(r.t.Context(), p.Key("processing")).Result()
		return err1 == nil && err2 == nil && due+held == 0
	}, time.Minute, 10*time.Millisecond)
}

// fine fails the test, with the report, if anything is lost, unexpected or violated.
func fine(t testing.TB, report *chaos.Report) {
	t.Helper()
	if !report.OK() {
		var text strings.Builder
		require.NoError(t, report.WriteText(&text))
		t.Fatalf("%s", text.String())
	}
}
