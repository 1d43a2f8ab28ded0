package cases

import (
	"context"
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
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reaper"
	"github.com/leaseq/leaseq/reliable"
)

// leftJob is what must be read of a job that internal/oldversion/filler has left.
type leftJob struct {
	place                        lease.Place
	failures, expiries, redrives int
	reasons                      []string // of its last errors, oldest first
	kind, payload                string   // default: order.close, and {"order":"<id>"}
	headers                      map[string]string
}

func leftJobs() map[string]leftJob {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	trace := func(id string) map[string]string { return map[string]string{"trace": id} }
	return map[string]leftJob{
		"dead-panicked": {place: lease.Dead, failures: 1, reasons: []string{"panic: the till is empty"}},
		"dead-buried":   {place: lease.Dead, failures: 1, reasons: []string{"not wanted: 不要"}, headers: trace("dead-buried")},
		"dead-retries":  {place: lease.Dead, failures: 1, reasons: []string{"no route"}, headers: trace("dead-retries")},
		"dead-expired":  {place: lease.Dead, expiries: 1, reasons: []string{"lease expired once"}},

		"due-redriven": {place: lease.Due, redrives: 1, reasons: []string{"in its first life"}, headers: trace("due-redriven")},
		"due-retried":  {place: lease.Due, failures: 1, reasons: []string{"try later"}, headers: trace("due-retried")},
		"due-released": {place: lease.Due, headers: trace("due-released")},
		"due-expired":  {place: lease.Due, expiries: 1},
		"due-plain":    {place: lease.Due},
		"due-headers":  {place: lease.Due, headers: map[string]string{"trace": "00-4bf9", "Grüße": "你好"}},
		"due-binary":   {place: lease.Due, kind: "bytes", payload: string(every)},
		"due-empty":    {place: lease.Due, payload: "-"},
		"due-large":    {place: lease.Due, payload: strings.Repeat("0123456789abcdef", 150)},
		"due-limits":   {place: lease.Due},
		"due-later":    {place: lease.Due},
		"due-far":      {place: lease.Due},

		"due-größe 42 {🚚}": {place: lease.Due, kind: "notify.send"},

		"held-plain":     {place: lease.Processing},
		"held-headers":   {place: lease.Processing, headers: map[string]string{"trace": "00-4bf9", "empty": ""}},
		"held-tried":     {place: lease.Processing, failures: 1, expiries: 1, reasons: []string{"once more"}},
		"held-last":      {place: lease.Processing},
		"held-cancelled": {place: lease.Processing},
	}
}

func (l *leftJob) content(id string) (kind, payload string) {
	kind, payload = "order.close", `{"order":"`+id+`"}`
	if l.kind != "" {
		kind = l.kind
	}
	if l.payload != "" {
		payload = strings.TrimPrefix(l.payload, "-")
	}
	return kind, payload
}

// goldenAge is for how long a golden queue has lain there: its leases and sessions are long over, and what was to wait
// for an hour is due.
const goldenAge = 48 * time.Hour

// TestWhatAnEarlierVersionLeftIsWorkedOff takes each golden queue to its end with the code of today.
func TestWhatAnEarlierVersionLeftIsWorkedOff(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(goldenDir, "*.json"))
	require.NoError(t, err)
	for _, file := range files {
		for server, client := range map[string]func(t testing.TB) *redis.Client{
			"server": redistest.Client, "miniredis": redistest.Mini,
		} {
			t.Run(filepath.Base(file)+"/"+server, func(t *testing.T) {
				t.Parallel()
				queue := redistest.Queue(t)
				w := &goldenWork{T: t, lane: laneOn(t, queue, client(t), nil), golden: readGolden(t, file)}
				w.moved = w.golden.restore(t, w.rdb, queue, goldenAge)
				w.readAll()
				w.lateAck()
				w.sweep()
				w.workOff("due-far")
				w.redrive()
				w.workOff("due-far")
				w.far()
				w.empty()
			})
		}
	}
}

// goldenWork is one golden queue being worked off.
type goldenWork struct {
	*testing.T
	*lane
	golden *goldenQueue
	moved  time.Duration

	mu    sync.Mutex
	acked []string
}

func (w *goldenWork) ids() []string {
	var ids []string
	for id := range w.golden.Keys["jobs"].Hash {
		ids = append(ids, id)
	}
	return ids
}

func (w *goldenWork) inspect(ids ...string) map[string]reliable.Info {
	w.Helper()
	found, err := w.queue.Inspect(w.Context(), ids...)
	require.NoError(w, err)
	out := map[string]reliable.Info{}
	for _, info := range found {
		out[info.ID] = info
	}
	return out
}

// readAll reads everything as it was left.
func (w *goldenWork) readAll() {
	left := leftJobs()
	require.Len(w, w.ids(), len(left))
	for id, info := range w.inspect(w.ids()...) {
		want, ok := left[id]
		require.True(w, ok, "%s is not known", id)
		kind, payload := want.content(id)
		require.NoError(w, info.Undecoded, id)
		assert.Equal(w, want.place, info.Place, id)
		assert.Equal(w, kind, info.Kind, id)
		assert.Equal(w, payload, string(info.Payload), id)
		assert.Equal(w, len(want.headers), len(info.Headers), id)
		for name, value := range want.headers {
			assert.Equal(w, value, info.Headers[name], id)
		}
		assert.WithinDuration(w, time.UnixMilli(w.golden.Taken), info.EnqueuedAt, time.Minute, id)
		assert.Equal(w, []int{want.failures, want.expiries, want.redrives}, []int{info.Failures, info.Expiries, info.Redrives}, id)
		assert.Equal(w, want.reasons, reasonsOf(&info), id)
		assert.Equal(w, id == "held-cancelled", info.Cancelling, id)
		assert.Equal(w, id == "dead-panicked", strings.Contains(info.Stack, "panicked.func1"), id)
		assert.Equal(w, want.place == lease.Processing, info.Fence > 0, id)
		assert.Equal(w, want.place == lease.Processing, info.Holder != "", id)
	}
	found, err := w.store.Inspect(w.Context(), []string{"due-limits", "held-last", "dead-retries", "due-plain"})
	require.NoError(w, err)
	for i, want := range [][2]*int{{new(0), new(7)}, {nil, new(0)}, {new(0), nil}, {nil, nil}} {
		assert.Equal(w, want, [2]*int{found[i].MaxRetries, found[i].MaxExpiries}, found[i].ID)
	}
	policy, published, err := w.store.Published(w.Context())
	require.NoError(w, err)
	require.True(w, published)
	require.Equal(w, lease.Policy{
		Lease: time.Second, MaxRetries: new(3), MaxExpiries: new(2), PayloadLimit: 1 << 20,
		BackoffBase: 10 * time.Millisecond, BackoffCap: 50 * time.Millisecond,
	}, policy)
}

func reasonsOf(info *reliable.Info) (reasons []string) {
	for _, failure := range info.Errors {
		reasons = append(reasons, failure.Reason)
	}
	return reasons
}

// lateAck settles with a token that was given out before the upgrade: nobody has ended that lease.
func (w *goldenWork) lateAck() {
	verdict := lease.Verdict{Op: lease.Ack, ID: "held-headers", Token: string(w.golden.Keys["leases"].Hash["held-headers"])}
	done, err := w.store.Settle(w.Context(), []lease.Verdict{verdict})
	require.NoError(w, err)
	require.Equal(w, []lease.Settled{{}}, done)
	w.acked = append(w.acked, verdict.ID)
}

// sweep spares the holders for a lease, since nobody has swept for so long, and then ends their leases; sessions that
// nobody has used for an hour go.
func (w *goldenWork) sweep() {
	r, err := reaper.New(w.rdb, &reaper.Options{Queues: []string{w.name}})
	require.NoError(w, err)
	began := time.Now()
	swept, err := r.Sweep(w.Context(), nil)
	require.NoError(w, err)
	require.GreaterOrEqual(w, time.Since(began), 900*time.Millisecond, "a lease of one second is the grace")
	got := swept[w.name]
	require.Equal(w, []int{2, 1, 1, 0}, []int{got.ToDue, got.ToDead, got.Cancelled, got.Missing})
	for _, name := range []string{"sessions", "holders"} {
		now, err := w.rdb.HKeys(w.Context(), w.keys.Key(name)).Result()
		require.NoError(w, err)
		for session := range w.golden.Keys[name].Hash {
			require.NotContains(w, now, session, name)
		}
	}
	info := w.inspect("held-plain", "held-tried", "held-last", "held-cancelled")
	require.Equal(w, []any{lease.Due, 0, 1}, []any{info["held-plain"].Place, info["held-plain"].Failures, info["held-plain"].Expiries})
	require.Equal(w, []any{lease.Due, 1, 2}, []any{info["held-tried"].Place, info["held-tried"].Failures, info["held-tried"].Expiries})
	require.Equal(w, lease.Nowhere, info["held-cancelled"].Place)
	last := info["held-last"]
	require.Equal(w, lease.Dead, last.Place)
	require.Equal(w, []string{"lease expired once"}, reasonsOf(&last))
}

// workOff has a consumer ack all jobs that are due, so that only the others are left.
func (w *goldenWork) workOff(others ...string) {
	w.Helper()
	left := leftJobs()
	before := w.inspect(w.ids()...)
	oldFence := w.rdb.Get(w.Context(), w.keys.Key("fence"))
	fence, err := oldFence.Int64()
	require.NoError(w, err)
	h := reliable.HandlerFunc(func(_ context.Context, job *reliable.Job) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		want := left[job.ID]
		kind, payload := want.content(job.ID)
		assert.Equal(w, []string{kind, payload}, []string{job.Kind, string(job.Payload)}, job.ID)
		assert.Equal(w, len(want.headers), len(job.Headers), job.ID)
		info := before[job.ID]
		assert.Equal(w, []int{info.Failures, info.Expiries, info.Redrives}, []int{job.Failures, job.Expiries, job.Redrives}, job.ID)
		assert.Equal(w, info.Failures+info.Expiries+1, job.Attempt, job.ID)
		assert.Greater(w, job.Fence(), fence, job.ID)
		w.acked = append(w.acked, job.ID)
		return nil
	})
	c, err := reliable.NewConsumer(w.queue, h, nil)
	require.NoError(w, err)
	ctx, stop := context.WithCancel(w.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	w.await(func(s reliable.Stats) bool { return s.Due == int64(len(others)) && s.Processing == 0 })
	stop()
	require.NoError(w, <-ended)
	due, err := w.store.List(w.Context(), lease.Due, 10, nil)
	require.NoError(w, err)
	require.Equal(w, others, due.IDs)
}

func (w *goldenWork) await(enough func(reliable.Stats) bool) {
	w.Helper()
	require.Eventually(w, func() bool {
		stats, err := w.queue.Stats(w.Context())
		return err == nil && enough(stats)
	}, time.Minute, 10*time.Millisecond)
}

// redrive brings back all that is dead.
func (w *goldenWork) redrive() {
	listed, err := w.store.List(w.Context(), lease.Dead, 10, nil)
	require.NoError(w, err)
	dead := listed.IDs
	require.ElementsMatch(w, []string{"dead-panicked", "dead-buried", "dead-retries", "dead-expired", "held-last"}, dead)
	before := w.inspect(dead...)
	var cursor reliable.Cursor
	n, err := w.queue.RedriveNext(w.Context(), &cursor, 100)
	require.NoError(w, err)
	require.Equal(w, len(dead), n)
	require.True(w, cursor.Done)
	for id, info := range w.inspect(dead...) {
		was := before[id]
		assert.Equal(w, []any{lease.Due, 0, 0, was.Redrives + 1}, []any{info.Place, info.Failures, info.Expiries, info.Redrives}, id)
		assert.Equal(w, reasonsOf(&was), reasonsOf(&info), id)
	}
}

// far is not due yet, stands exactly where it stood, and is cancelled.
func (w *goldenWork) far() {
	at := time.UnixMilli(int64(w.golden.Keys["due"].Zset["due-far"])).Add(w.moved)
	require.True(w, at.Equal(w.inspect("due-far")["due-far"].At))
	removed, err := w.queue.Cancel(w.Context(), "due-far")
	require.NoError(w, err)
	require.True(w, removed[0].Cancelled)
}

// empty finds nothing left, every job acked once but for the two that were cancelled, and counters that balance.
func (w *goldenWork) empty() {
	var want []string
	for id := range leftJobs() {
		if id != "due-far" && id != "held-cancelled" {
			want = append(want, id)
		}
	}
	require.ElementsMatch(w, want, w.acked)
	for _, name := range keys.Names {
		if slices.Contains([]string{"fence", "sessions", "holders", "sweep", "wake", "policy", "stats"}, name) {
			continue
		}
		n, err := w.rdb.Exists(w.Context(), w.keys.Key(name)).Result()
		require.NoError(w, err)
		require.Zero(w, n, name)
	}
	stats, err := w.queue.Stats(w.Context())
	require.NoError(w, err)
	c := stats.Counters
	assert.EqualValues(w, len(leftJobs()), c["enqueued"])
	assert.EqualValues(w, len(want), c["acked"])
	assert.EqualValues(w, 2, c["cancelled"])
	assert.EqualValues(w, 6, c["redriven"])
	assert.Zero(w, c["missing"])
	assert.Equal(w, c["claimed"], c["acked"]+c["nacked"]+c["released"]+c["buried"]+c["expired"]+c["cancelled_processing"])
	redistest.CheckQueue(w, w.rdb, keys.DefaultPrefix, w.name)
}
