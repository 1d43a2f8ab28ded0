package failover

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/chaos"
	"github.com/leaseq/leaseq/chaos/record"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

const (
	shortLease = 2 * time.Second
	later      = time.Second            // the delay of every second job: these are not worked off before a fault
	slow       = 10 * time.Second       // what a busy machine may add to what is promised
	lag        = 250 * time.Millisecond // what replication is behind at most when a fault begins
)

// A trial is a queue with recorded producers and consumers, each with a client of its own.
type trial struct {
	t       *testing.T
	dir     string
	queue   string
	lease   time.Duration
	connect func() redis.UniversalClient

	rec   *record.Recorder // the trial's own, for faults
	began time.Time
	fault int64

	q         *reliable.Queue // the trial's own: it does not claim
	rdb       redis.UniversalClient
	producers sync.WaitGroup
	enough    chan struct{} // closed: no more is enqueued
	stops     []func()

	enqueued, worked atomic.Int64  // answered as created; handlers that returned
	held, broken     atomic.Int64  // starts of held jobs; handlers whose contexts ended
	unknowable       atomic.Int64  // enqueues of which nobody will ever know
	release          chan struct{} // closed: held jobs are finished

	mu   sync.Mutex
	odd  []error         // of enqueues, but for unknown outcomes
	sure map[string]bool // jobs of which the producer knows that the replica has them
}

func newTrial(t *testing.T, lease time.Duration, connect func() redis.UniversalClient) *trial {
	t.Helper()
	r := &trial{
		t: t, dir: t.TempDir(), queue: redistest.Queue(t), lease: lease, connect: connect,
		enough: make(chan struct{}), release: make(chan struct{}), sure: map[string]bool{},
	}
	r.began = time.Now()
	r.rec = r.record("trial", 0)
	r.rdb, r.q = r.client()
	r.clock(r.rec, r.rdb)
	return r
}

func (r *trial) client() (redis.UniversalClient, *reliable.Queue) {
	r.t.Helper()
	rdb := r.connect()
	q, err := reliable.New(rdb, r.queue, &reliable.QueueOptions{Lease: r.lease})
	require.NoError(r.t, err)
	r.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), bound)
		defer cancel()
		require.NoError(r.t, q.Close(ctx))
		require.NoError(r.t, rdb.Close())
	})
	return rdb, q
}

func (r *trial) record(process string, slots int) *record.Recorder {
	r.t.Helper()
	rec, err := record.Open(filepath.Join(r.dir, process+".jsonl"), &record.Options{
		Queue: r.queue, Process: process, Slots: slots, Lease: r.lease,
	})
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, rec.Close()) })
	return rec
}

// clock notes the servers' time, which is one: they are on one host.
func (r *trial) clock(rec *record.Recorder, rdb redis.UniversalClient) {
	for range 5 {
		before := time.Now()
		if now, err := rdb.Time(context.Background()).Result(); err == nil {
			rec.ServerTime(before, time.Now(), now)
		}
	}
}

// work starts n consumers. A job of the kind held is finished when the trial says so.
func (r *trial) work(n int) {
	r.t.Helper()
	for i := range n {
		rec := r.record(fmt.Sprintf("worker-%d", i+1), 8)
		_, q := r.client()
		h := reliable.HandlerFunc(func(ctx context.Context, job *reliable.Job) error {
			if job.Kind == "held" {
				r.held.Add(1)
				select {
				case <-r.release:
				case <-ctx.Done():
				}
			}
			if ctx.Err() != nil {
				r.broken.Add(1)
			}
			r.worked.Add(1)
			return ctx.Err()
		})
		c, err := reliable.NewConsumer(q, h, &reliable.ConsumerOptions{
			Concurrency: 8, Middleware: []reliable.Middleware{rec.Middleware()}, Hooks: rec.Hooks(nil),
		})
		require.NoError(r.t, err)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		stopped := false
		stop := func() {
			if !stopped {
				stopped = true
				cancel()
				require.NoError(r.t, <-ended)
				require.NoError(r.t, rec.Close())
			}
		}
		r.stops = append(r.stops, stop)
		r.t.Cleanup(stop)
	}
}

// A traffic is how a producer enqueues.
type traffic struct {
	patience time.Duration // 0: without end; else what remains unknown is resolved
	wait     bool          // asks after each enqueue whether the replica has it
}

// produce starts a producer, which enqueues a job every so often until it is enough.
func (r *trial) produce(name string, o traffic) {
	r.t.Helper()
	rec := r.record(name, 0)
	rdb, q := r.client()
	r.clock(rec, rdb)
	pace := time.NewTicker(shape(2*time.Millisecond, time.Millisecond))
	r.t.Cleanup(pace.Stop)
	r.producers.Go(func() {
		var resolving sync.WaitGroup
		for i := 0; ; i++ {
			select {
			case <-r.enough:
				resolving.Wait()
				r.clock(rec, rdb)
				require.NoError(r.t, rec.Close())
				return
			case <-pace.C:
			}
			item := reliable.Item{ID: fmt.Sprintf("%s-%d", name, i), Kind: "job"}
			if i%2 == 1 {
				item.Delay = later
			}
			before := ""
			if o.wait {
				before = runID(rdb)
			}
			if r.put(rec, q, item, o.patience, &resolving) && o.wait && replicated(rdb, before) {
				r.mu.Lock()
				r.sure[item.ID] = true
				r.mu.Unlock()
			}
		}
	})
}

// put enqueues one job, and reports whether it was answered as created.
func (r *trial) put(rec *record.Recorder, q *reliable.Queue, item reliable.Item, patience time.Duration, resolving *sync.WaitGroup) bool {
	ctx, cancel := context.Background(), func() {}
	if patience > 0 {
		ctx, cancel = context.WithTimeout(ctx, patience)
	}
	defer cancel()
	_, call, err := rec.Enqueue(ctx, q, item)
	var unknown *reliable.UnknownError
	switch {
	case err == nil:
		r.enqueued.Add(1)
		return true
	case errors.As(err, &unknown):
		resolving.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), bound)
			defer cancel()
			r.strange(call.Resolve(ctx, unknown))
		})
	default:
		r.strange(err)
	}
	return false
}

// strange keeps an error that a producer may not be told: all but that a call never ran, or that nobody will ever know.
func (r *trial) strange(err error) {
	switch {
	case err == nil, errors.Is(err, reliable.ErrNeverRan):
	case errors.Is(err, reliable.ErrNeverKnown):
		r.unknowable.Add(1)
	default:
		r.mu.Lock()
		defer r.mu.Unlock()
		r.odd = append(r.odd, err)
	}
}

// hold enqueues jobs that run until the trial releases them, and waits until they run.
func (r *trial) hold(n int) {
	r.t.Helper()
	for i := range n {
		require.True(r.t, r.put(r.rec, r.q, reliable.Item{ID: fmt.Sprintf("held-%d", i), Kind: "held"}, 0, nil))
	}
	r.eventually("the held jobs run", func() bool { return r.held.Load() == int64(n) })
}

// events reads all that was written so far. wall is when a process' times began, µs since 1970.
func (r *trial) events(each func(process string, wall int64, e *record.Event)) {
	r.t.Helper()
	history, err := chaos.ReadDir(r.dir)
	require.NoError(r.t, err)
	for _, log := range history {
		process, wall := "", int64(0)
		_, err := log.Each(func(e *record.Event) error {
			if e.Kind == record.Opened {
				process, wall = e.Process, e.Wall
			}
			each(process, wall, e)
			return nil
		})
		require.NoError(r.t, err)
	}
}

func (r *trial) eventually(what string, ok func() bool) {
	r.t.Helper()
	require.Eventually(r.t, ok, bound, every, what)
}

// more waits until so many more jobs have been enqueued and worked off.
func (r *trial) more(enqueued, worked int64) {
	r.t.Helper()
	enqueued, worked = enqueued+r.enqueued.Load(), worked+r.worked.Load()
	r.eventually("more is enqueued and worked off", func() bool {
		return r.enqueued.Load() >= enqueued && r.worked.Load() >= worked
	})
}

// begin writes that a fault begins, and returns what writes its end. Times are given, since some are known afterwards.
func (r *trial) begin(name string, at time.Time, effects ...string) (end func(at time.Time)) {
	r.fault++
	n := r.fault
	r.rec.Write(&record.Event{
		Kind: record.Faulted, Call: n, Out: record.FaultBegin, Name: name, Effects: effects, At: max(at.Sub(r.began).Microseconds(), 1),
	})
	return func(at time.Time) {
		r.rec.Write(&record.Event{Kind: record.Faulted, Call: n, Out: record.FaultEnd, At: at.Sub(r.began).Microseconds()})
	}
}

// finish ends the producers, waits until nothing is left to be done, and has the history judged: nothing may be lost
// outside the windows of the faults, or be wrong at all.
func (r *trial) finish() *chaos.Report {
	r.t.Helper()
	close(r.enough)
	r.producers.Wait()
	require.Empty(r.t, r.odd, "what producers were told")
	r.eventually("all is worked off", func() bool {
		s, err := r.q.Stats(context.Background())
		return err == nil && s.Due+s.Processing == 0
	})
	for _, stop := range r.stops {
		stop()
	}
	r.clock(r.rec, r.rdb)
	require.NoError(r.t, r.rec.Close())
	final, err := chaos.TakeSnapshot(r.t.Context(), r.rdb, "", r.queue)
	require.NoError(r.t, err)
	history, err := chaos.ReadDir(r.dir)
	require.NoError(r.t, err)
	report, err := chaos.Check(history, final, &chaos.CheckOptions{Slack: slow})
	require.NoError(r.t, err)
	if !report.OK() || os.Getenv("LEASEQ_REPORT") != "" {
		require.NoError(r.t, report.WriteText(r.t.Output()))
	}
	require.True(r.t, report.OK(), "lost, unexpected or wrong: see above")
	require.NotZero(r.t, report.Check(chaos.CheckFences).Looked)
	require.Zero(r.t, report.Check(chaos.CheckFences).Excused)
	return report
}
