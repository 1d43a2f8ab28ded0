package cases

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redisproc"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

// errorBook gathers everything that went wrong, as callers, hooks and the log were told.
type errorBook struct {
	mu    sync.Mutex
	calls []error // what callers were told
	log   bytes.Buffer
}

func (b *errorBook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.Write(p)
}

func (b *errorBook) note(err error) {
	if err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.calls = append(b.calls, err)
	}
}

// callers returns what callers were told.
func (b *errorBook) callers() []error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]error(nil), b.calls...)
}

// logged returns what the log and the hooks were told.
func (b *errorBook) logged() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.String()
}

// flushed is the situation of S39: a server of the case's own whose script cache is emptied all the time, two consumers,
// a sidecar and two producers, all warm.
type flushed struct {
	server *redisproc.Server
	name   string
	o      *reliable.QueueOptions
	starts *tally
	book   errorBook
	n      int

	mu   sync.Mutex
	done map[string]int
	all  chan struct{}
}

func (s *flushed) client(t testing.TB) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: s.server.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func newFlushed(t *testing.T, n int) *flushed {
	t.Helper()
	s := &flushed{
		server: redistest.Server(t, &redisproc.Options{AppendOnly: true, AppendFsync: "everysec"}),
		name:   "orders", n: n, done: map[string]int{}, all: make(chan struct{}),
	}
	s.starts = newTally(t, redistest.Queue(t))
	logger := slog.New(slog.NewTextHandler(&s.book, nil))
	s.o = &reliable.QueueOptions{
		Lease: 10 * time.Second, Logger: logger, Backoff: reliable.Backoff{Base: time.Millisecond, Cap: time.Millisecond},
	}
	hooks := &reliable.Hooks{
		OnError: func(_ context.Context, e reliable.Event) { fmt.Fprintln(&s.book, "hook:", e.Err) },
		OnLost:  func(_ context.Context, e reliable.Event) { s.book.note(fmt.Errorf("lost: %w", e.Err)) },
		OnDone:  func(_ context.Context, e reliable.Event) { s.finished(e.ID) },
	}
	t.Cleanup(func() { redistest.CheckQueue(t, s.client(t), keys.DefaultPrefix, s.name) })
	for range 2 {
		consumeWith(t, newQueueOn(t, s.client(t), s.name, s.o), reliable.HandlerFunc(s.handle), &reliable.ConsumerOptions{
			Concurrency: 8, Logger: logger, Hooks: hooks,
		})
	}
	store := newStore(t, s.client(t), s.name)
	sweeper, err := lease.NewSweeper(store, &lease.SweeperOptions{Logger: logger})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = sweeper.Run(ctx) // always nil
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	return s
}

// handle fails every tenth job once, so that nacks are among what is settled.
func (s *flushed) handle(_ context.Context, job *reliable.Job) error {
	s.starts.start(job.ID)
	if s.fails(job.ID) && job.Attempt == 1 {
		return errors.New("once")
	}
	return nil
}

func (s *flushed) fails(id string) bool { return strings.HasSuffix(id, "7") }

func (s *flushed) finished(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done[id]++; s.done[id] == 1 && len(s.done) == s.n {
		close(s.all)
	}
}

// produce enqueues the jobs at an even pace: half of them singly, half in batches.
func (s *flushed) produce(t *testing.T, within time.Duration) (made *sync.WaitGroup) {
	t.Helper()
	const batch = 10
	made = &sync.WaitGroup{}
	share := s.n / 2
	pace := func(calls int, call func(i int)) {
		for i := range calls {
			began := time.Now()
			call(i)
			if rest := within/time.Duration(calls) - time.Since(began); rest > 0 {
				<-time.After(rest)
			}
		}
	}
	single, many := newQueueOn(t, s.client(t), s.name, s.o), newQueueOn(t, s.client(t), s.name, s.o)
	made.Go(func() {
		pace(share, func(i int) {
			_, err := single.Enqueue(context.Background(), reliable.Item{Kind: "case", ID: fmt.Sprint("single", i)})
			s.book.note(err)
		})
	})
	made.Go(func() {
		pace((s.n-share)/batch, func(i int) {
			items := numberedItems(fmt.Sprint("many", i, "-"), batch)
			results, err := many.EnqueueMany(context.Background(), items)
			s.book.note(err)
			for _, one := range results {
				s.book.note(one.Err)
			}
		})
	})
	return made
}

// The script cache is emptied all the time; then the server is restarted, which empties it as well, while producers and
// consumers go on. No caller ever sees NOSCRIPT, from single calls or from the pipelines in which consumers settle and
// claim, and no job is lost or run twice. Enqueueing inside a caller's own transaction is not offered. The failover to a
// replica belongs to a later case.
func TestS39_AnEmptyScriptCacheIsSeenByNobody(t *testing.T) {
	t.Parallel()
	s := newFlushed(t, shape(1000, 10_000))
	flushing, every := shape(2*time.Second, 20*time.Second), shape(20*time.Millisecond, 100*time.Millisecond)
	made := s.produce(t, flushing+flushing/4) // also while the server is away

	admin := s.client(t)
	flushes := 0
	tick := time.NewTicker(every)
	defer tick.Stop()
	for end := time.After(flushing); end != nil; {
		select {
		case <-tick.C:
			require.NoError(t, admin.ScriptFlush(t.Context()).Err())
			flushes++
		case <-end:
			end = nil
		}
	}
	assert.Empty(t, s.book.callers(), "before the restart no call may fail at all")
	logged := s.book.logged()
	assert.NotContains(t, logged, "hook:", "nor any call in the background")
	assert.Equal(t, strings.Count(logged, " error="), strings.Count(logged, " error=once"), "errors that are no handler's")

	require.NoError(t, s.server.Terminate(t.Context()))
	require.NoError(t, s.server.Restart(t.Context()))
	made.Wait()
	awaitFrom(t, s.all, "all acks")
	assert.Empty(t, s.book.callers(), "nor over the restart: calls are repeated")
	assert.NotContains(t, s.book.logged(), "NOSCRIPT")
	assert.GreaterOrEqual(t, flushes, int(flushing/every)/4)
	counts := s.starts.counts(t)
	require.Len(t, counts, s.n)
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, n := range counts {
		want := 1
		if s.fails(id) {
			want = 2
		}
		require.Equal(t, want, n, "starts of %s", id)
		require.Equal(t, 1, s.done[id], "acks of %s", id)
	}
	stats, err := newStore(t, s.client(t), s.name).Stats(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, s.n, stats.Counters["enqueued"])
	assert.EqualValues(t, s.n, stats.Counters["acked"])
	assert.Zero(t, stats.Counters["expired"])
	assert.Zero(t, stats.Due+stats.Processing+stats.Dead+stats.Records)
	t.Logf("%d jobs, %d flushes", s.n, flushes)
}
