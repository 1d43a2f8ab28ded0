package cases

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/internal/wire"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

// A lane is one queue on the shared server with everything that a case looks at it with: the Queue of its users, a
// Store below it, a Sweeper that never runs by itself, and a plain client.
type lane struct {
	t       testing.TB
	name    string
	rdb     *redis.Client
	queue   *reliable.Queue
	store   *lease.Store
	sweeper *lease.Sweeper
	keys    *keys.Partition
	lease   time.Duration
}

// newLane makes a lane that redistest.Queue checks at its end.
func newLane(t testing.TB, o *reliable.QueueOptions) *lane {
	t.Helper()
	return laneOn(t, redistest.Queue(t), redistest.Client(t), o)
}

// newBrokenLane makes a lane whose keys the test breaks by hand and leaves so.
func newBrokenLane(t testing.TB, o *reliable.QueueOptions) *lane {
	t.Helper()
	return laneOn(t, redistest.BrokenQueue(t), redistest.Client(t), o)
}

func laneOn(t testing.TB, name string, rdb *redis.Client, o *reliable.QueueOptions) *lane {
	t.Helper()
	l := &lane{t: t, name: name, rdb: rdb}
	prefix := ""
	if l.lease = reliable.DefaultLease; o != nil {
		prefix = o.Prefix
		if o.Lease != 0 {
			l.lease = o.Lease
		}
	}
	var err error
	l.queue, err = reliable.New(rdb, name, o)
	require.NoError(t, err)
	l.store, err = lease.NewStore(rdb, name, &lease.StoreOptions{Prefix: prefix, Stub: wire.Stub()})
	require.NoError(t, err)
	l.sweeper, err = lease.NewSweeper(l.store, nil)
	require.NoError(t, err)
	if prefix == "" {
		prefix = keys.DefaultPrefix
	}
	l.keys, err = keys.New(prefix, name, 0)
	require.NoError(t, err)
	t.Cleanup(func() { closeBounded(t, l.queue.Close, l.store.Close) })
	return l
}

// closeBounded closes Queues and Stores. They wait for what is under way as long as they may, so a failed test would
// hang without a bound.
func closeBounded(t testing.TB, all ...func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, one := range all {
		require.NoError(t, one(ctx))
	}
}

// enqueue makes jobs, which must all be created.
func (l *lane) enqueue(items ...reliable.Item) {
	l.t.Helper()
	results, err := l.queue.EnqueueMany(l.t.Context(), items)
	require.NoError(l.t, err)
	for _, one := range results {
		require.NoError(l.t, one.Err, "job %q", one.ID)
	}
}

// numberedItems makes n items that are due at once, with the IDs prefix0, prefix1 ….
func numberedItems(prefix string, n int) []reliable.Item {
	items := make([]reliable.Item, n)
	for i := range items {
		id := prefix + strconv.Itoa(i)
		items[i] = reliable.Item{Kind: "case", ID: id, Payload: []byte(id)}
	}
	return items
}

// claim takes up to n jobs by hand, in one call.
func (l *lane) claim(n int) []*reliable.Job {
	l.t.Helper()
	batch, err := l.queue.Claim(l.t.Context(), n, nil)
	require.NoError(l.t, err)
	return batch.Jobs
}

// claimExactly takes n jobs by hand, and by ID.
func (l *lane) claimExactly(n int) map[string]*reliable.Job {
	l.t.Helper()
	jobs := l.claim(n)
	require.Len(l.t, jobs, n)
	byID := make(map[string]*reliable.Job, n)
	for _, job := range jobs {
		byID[job.ID] = job
	}
	require.Len(l.t, byID, n, "one ID was given twice")
	return byID
}

// sweep is one counted sweep: at most a batch of leases, without a grace.
func (l *lane) sweep(batch int) lease.Expired {
	l.t.Helper()
	got, err := l.store.Expire(l.t.Context(), batch, true)
	require.NoError(l.t, err)
	return got
}

// sweepUntilMoved sweeps until n leases have ended in all.
func (l *lane) sweepUntilMoved(n int) {
	l.t.Helper()
	moved := 0
	require.Eventually(l.t, func() bool {
		got := l.sweep(lease.MaxBatch)
		moved += got.Moved()
		return moved >= n
	}, 20*time.Second, 5*time.Millisecond)
	require.Equal(l.t, n, moved)
}

func (l *lane) stats() lease.Stats {
	l.t.Helper()
	got, err := l.store.Stats(l.t.Context())
	require.NoError(l.t, err)
	return got
}

// inspect reads one job.
func (l *lane) inspect(id string) reliable.Info {
	l.t.Helper()
	got, err := l.queue.Inspect(l.t.Context(), id)
	require.NoError(l.t, err)
	require.Len(l.t, got, 1)
	return got[0]
}

// members lists a place, in its order.
func (l *lane) members(place lease.Place) []string {
	l.t.Helper()
	ids, err := l.rdb.ZRange(l.t.Context(), l.keys.Key(string(place)), 0, -1).Result()
	require.NoError(l.t, err)
	return ids
}

// setScores moves members of a place to one score, as it is written.
func (l *lane) setScores(place lease.Place, score string, ids ...string) {
	l.t.Helper()
	for len(ids) > 0 {
		n := min(len(ids), 5000)
		args := []any{"zadd", l.keys.Key(string(place)), "XX"}
		for _, id := range ids[:n] {
			args = append(args, score, id)
		}
		require.NoError(l.t, l.rdb.Do(l.t.Context(), args...).Err())
		ids = ids[n:]
	}
}

// serverTime is Redis' clock, in microseconds.
func (l *lane) serverTime() time.Time {
	l.t.Helper()
	now, err := l.rdb.Time(l.t.Context()).Result()
	require.NoError(l.t, err)
	return now
}

// awaitServerTime waits until Redis' clock has reached a time.
func (l *lane) awaitServerTime(at time.Time) {
	l.t.Helper()
	require.Eventually(l.t, func() bool { return !l.serverTime().Before(at) }, 20*time.Second, time.Millisecond)
}

// balanced asserts in one MULTI that the places hold so many jobs, that as many records exist, and that N distinct jobs
// are in a place or acked.
func (l *lane) balanced(n int) {
	l.t.Helper()
	var cards [4]*redis.IntCmd
	var acked *redis.StringCmd
	_, err := l.rdb.TxPipelined(l.t.Context(), func(pipe redis.Pipeliner) error {
		for i, name := range []string{"due", "processing", "dead"} {
			cards[i] = pipe.ZCard(l.t.Context(), l.keys.Key(name))
		}
		cards[3] = pipe.HLen(l.t.Context(), l.keys.Key("jobs"))
		acked = pipe.HGet(l.t.Context(), l.keys.Key("stats"), "acked")
		return nil
	})
	if !errors.Is(err, redis.Nil) {
		require.NoError(l.t, err)
	}
	done, _ := strconv.ParseInt(acked.Val(), 10, 64)
	live := cards[0].Val() + cards[1].Val() + cards[2].Val()
	require.EqualValues(l.t, n, live+done, "due %d, processing %d, dead %d, acked %d", cards[0].Val(), cards[1].Val(), cards[2].Val(), done)
	require.Equal(l.t, live, cards[3].Val(), "records")
}

// consume runs a Consumer of the lane until the returned function is called, or the test ends. Its Run must end clean.
func (l *lane) consume(h reliable.HandlerFunc, o *reliable.ConsumerOptions) (stop func()) {
	l.t.Helper()
	return consumeWith(l.t, l.queue, h, o)
}

func consumeWith(t testing.TB, q *reliable.Queue, h reliable.Handler, o *reliable.ConsumerOptions) (stop func()) {
	t.Helper()
	c, err := reliable.NewConsumer(q, h, o)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			require.NoError(t, <-ended)
		})
	}
	t.Cleanup(stop)
	return stop
}

// sweepOn runs a Sweeper, as the sidecar does, until the test ends. The lease is published before it first sweeps, as
// that of a queue that is in use: a sweeper sleeps for up to a quarter of the lease that it was told last.
func (l *lane) sweepOn(o *lease.SweeperOptions) {
	l.t.Helper()
	_, err := l.store.Publish(l.t.Context(), &lease.Policy{Lease: l.lease})
	require.NoError(l.t, err)
	sweeper, err := lease.NewSweeper(l.store, o)
	require.NoError(l.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- sweeper.Run(ctx) }()
	l.t.Cleanup(func() {
		cancel()
		require.NoError(l.t, <-ended)
	})
}

// A lineLog is a log of whole lines, safe for concurrent use.
type lineLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (w *lineLog) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *lineLog) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// lines are what was written so far.
func (w *lineLog) lines() []string {
	text := strings.TrimSuffix(w.String(), "\n")
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// logger writes one line of text a record.
func (w *lineLog) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// limitOf says a limit, 0 included.
func limitOf(n int) *int { return &n }
