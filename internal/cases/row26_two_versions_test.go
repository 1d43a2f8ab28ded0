//go:build unix

package cases

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/chaos"
	"github.com/leaseq/leaseq/chaos/record"
	"github.com/leaseq/leaseq/internal/childproc"
	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/oldversion"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

const (
	togetherLease = time.Second
	togetherSlots = 4
)

// TestRow26_AnOldAndANewVersionTogetherKeepEveryPromise has a worker of an earlier version and one of today's work on one
// queue, and kills them in turns. What either holds then is expired by the other, worked off by both, and the history
// of all is judged.
func TestRow26_AnOldAndANewVersionTogetherKeepEveryPromise(t *testing.T) {
	t.Parallel()
	w := newTogether(t)
	old, today := w.version("old", oldversion.WithRecord), w.version("today", oldversion.Today)
	old.start()
	today.start()
	for range shape(1, 20) {
		w.bothWork(old, today)
		w.drained()
		w.enqueue("hang", togetherSlots+2) // more than one worker has slots: both get some
		w.await("every job that hangs is held", func() bool { return old.holds()+today.holds() == togetherSlots+2 })
		old.killedBeside(today)
		today.killedBeside(old)
		w.drained()
		w.bothWork(old, today)
	}
	old.stop()
	today.stop()
	r := w.judge()
	if testing.Verbose() || !r.OK() {
		require.NoError(t, r.WriteText(os.Stdout))
	}
	require.True(t, r.OK())
	kills := int64(2 * shape(1, 20))
	require.Equal(t, kills, r.Cases["fault: dies"])
	require.EqualValues(t, kills, r.Unclosed)
	held := kills / 2 * (togetherSlots + 2)
	require.Equal(t, held, r.Cases["lease ran out"])
	require.Equal(t, held, r.Totals.Duplicated)
	require.EqualValues(t, w.enqueued, r.Totals.Acked)
	t.Logf("%d jobs, %d kills, %d leases of the old version expired by today's and %d the other way round; acked %d and %d",
		w.enqueued, kills, old.lost, today.lost, old.acked(), today.acked())
}

// together is one queue with workers of several versions.
type together struct {
	*testing.T
	dir      string
	rdb      *redis.Client
	queue    string
	q        *reliable.Queue
	rec      *record.Recorder // the test's own
	enqueued int
	kills    int64
}

func newTogether(t *testing.T) *together {
	t.Helper()
	w := &together{T: t, dir: t.TempDir(), queue: redistest.Queue(t), rdb: redistest.Client(t)}
	var err error
	w.q, err = reliable.New(w.rdb, w.queue, &reliable.QueueOptions{Lease: togetherLease})
	require.NoError(t, err)
	t.Cleanup(func() { closeBounded(t, w.q.Close) })
	w.rec, err = record.Open(filepath.Join(w.dir, "test.jsonl"), &record.Options{Queue: w.queue, Process: "test", Lease: togetherLease})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.rec.Close()) })
	w.clock()
	return w
}

func (w *together) clock() {
	w.Helper()
	before := time.Now()
	now, err := w.rdb.Time(w.Context()).Result()
	require.NoError(w, err)
	w.rec.ServerTime(before, time.Now(), now)
}

func (w *together) await(what string, enough func() bool) {
	w.Helper()
	require.Eventually(w, enough, time.Minute, 10*time.Millisecond, what)
}

func (w *together) enqueue(kind string, n int) {
	w.Helper()
	for range n {
		w.enqueued++
		_, _, err := w.rec.Enqueue(w.Context(), w.q, reliable.Item{ID: fmt.Sprintf("%s-%d", kind, w.enqueued), Kind: kind})
		require.NoError(w, err)
	}
}

func (w *together) stats() reliable.Stats {
	w.Helper()
	stats, err := w.q.Stats(w.Context())
	require.NoError(w, err)
	return stats
}

func (w *together) drained() {
	w.Helper()
	w.await("nothing is left", func() bool { s := w.stats(); return s.Due+s.Processing == 0 })
}

// bothWork makes jobs until each version has acked some.
func (w *together) bothWork(versions ...*version) {
	w.Helper()
	for _, v := range versions {
		before := v.acked()
		w.await(v.name+" works", func() bool {
			w.enqueue("plain", 10)
			return v.acked() > before
		})
	}
}

func (w *together) judge() *chaos.Report {
	w.Helper()
	w.clock()
	require.NoError(w, w.rec.Close())
	final, err := chaos.TakeSnapshot(w.Context(), w.rdb, "", w.queue)
	require.NoError(w, err)
	history, err := chaos.ReadDir(w.dir)
	require.NoError(w, err)
	r, err := chaos.Check(history, final, &chaos.CheckOptions{Slack: 30 * time.Second}) // a busy machine
	require.NoError(w, err)
	return r
}

// A version has one worker process at a time.
type version struct {
	*together
	name, program string
	files         []string
	process       *childproc.Process
	lost          int // leases of killed workers
}

func (w *together) version(name, commit string) *version {
	w.Helper()
	return &version{together: w, name: name, program: oldversion.Build(w.T, commit, oldversion.Worker)}
}

func (v *version) start() {
	v.Helper()
	name := fmt.Sprintf("%s-%d", v.name, len(v.files))
	file := filepath.Join(v.dir, name+".jsonl")
	o := redistest.Options(v.T)
	server := url.URL{Scheme: "redis", Host: o.Addr, Path: "/" + strconv.Itoa(o.DB)}
	if o.Password != "" {
		server.User = url.UserPassword(o.Username, o.Password)
	}
	cmd := exec.Command(v.program)
	cmd.Env = append(os.Environ(), "LEASEQ_CHAOS_URL="+server.String(), "LEASEQ_CHAOS_PREFIX="+keys.DefaultPrefix,
		"LEASEQ_CHAOS_QUEUE="+v.queue, "LEASEQ_CHAOS_SLOTS="+strconv.Itoa(togetherSlots),
		"LEASEQ_CHAOS_LEASE="+togetherLease.String(), "LEASEQ_CHAOS_HISTORY="+file, "LEASEQ_CHAOS_PROCESS="+name)
	p, err := childproc.Start(cmd)
	require.NoError(v, err)
	v.Cleanup(func() { require.NoError(v, p.Kill()) })
	v.process, v.files = p, append(v.files, file)
	v.await(name+" has begun", func() bool {
		require.False(v, p.Ended(), p.Said())
		_, err := os.Stat(file)
		return err == nil
	})
}

// stop asks for a clean end.
func (v *version) stop() {
	v.Helper()
	require.NoError(v, v.process.Terminate())
	v.await(v.name+" ends", v.process.Ended)
	require.True(v, v.process.Success(), "%s: %s", v.process.How(), v.process.Said())
}

// killedBeside kills the worker, waits until the other version, which is then alone, has expired what it held, and
// starts a successor.
func (v *version) killedBeside(other *version) {
	v.Helper()
	before, held := v.stats().Counters["expired"], v.holds()
	require.Positive(v, held)
	v.kills++
	name := strings.TrimSuffix(filepath.Base(v.files[len(v.files)-1]), ".jsonl")
	v.rec.Write(&record.Event{
		Kind: record.Faulted, Call: v.kills, Out: record.FaultBegin, Name: "SIGKILL", Target: name, Effects: []string{record.Dies},
	})
	require.NoError(v, v.process.Kill())
	v.rec.Write(&record.Event{Kind: record.Faulted, Call: v.kills, Out: record.FaultEnd})
	v.await("what it held has been expired", func() bool {
		require.False(v, other.process.Ended(), other.process.Said())
		return v.stats().Counters["expired"] == before+int64(held)
	})
	v.lost += held
	v.start()
	v.clock()
}

// each reads the history of one process as far as it goes.
func (v *version) each(file string, event func(e *record.Event)) {
	v.Helper()
	_, err := record.File(file).Each(func(e *record.Event) error { event(e); return nil })
	require.NoError(v, err)
}

// acked is how many jobs this version has acked.
func (v *version) acked() (n int) {
	for _, file := range v.files {
		v.each(file, func(e *record.Event) {
			if e.Kind == record.Settled && e.Out == record.OutAcked {
				n++
			}
		})
	}
	return n
}

// holds is how many jobs the worker that runs holds that hang: it has started them first, and they end with it alone.
func (v *version) holds() (n int) {
	v.each(v.files[len(v.files)-1], func(e *record.Event) {
		if e.Kind == record.Started && e.Attempt == 1 && strings.HasPrefix(e.ID, "hang-") {
			n++
		}
	})
	return n
}
