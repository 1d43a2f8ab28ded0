package reaper_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/wire"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reaper"
)

// within is the bound for what should take milliseconds: a loaded machine may need longer.
const within = 20 * time.Second

// newPrefix keeps the registry of a test apart from those of others.
func newPrefix() string { return fmt.Sprintf("reaper-%016x", rand.Uint64()) }

// newStore makes a queue that is in the registry and has the given lease.
func newStore(t *testing.T, rdb *redis.Client, prefix, queue string, length time.Duration) *lease.Store {
	t.Helper()
	store, err := lease.NewStore(rdb, queue, &lease.StoreOptions{Prefix: prefix, Stub: wire.Stub()})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		assert.NoError(t, store.Close(ctx))
	})
	_, err = store.Publish(t.Context(), &lease.Policy{Lease: length, MaxExpiries: new(1000)})
	require.NoError(t, err)
	require.NoError(t, store.Register(t.Context()))
	return store
}

func enqueue(t *testing.T, store *lease.Store, n int) {
	t.Helper()
	record, err := wire.Append(nil, &wire.Envelope{Kind: "order.close", EnqueuedAt: time.Now()})
	require.NoError(t, err)
	for done := 0; done < n; {
		items := make([]lease.Item, min(n-done, lease.MaxBatch))
		for i := range items {
			items[i] = lease.Item{ID: fmt.Sprintf("job-%06d", done+i), Record: record}
		}
		answers, err := store.Enqueue(t.Context(), items)
		require.NoError(t, err)
		for _, err := range answers {
			require.NoError(t, err)
		}
		done += len(items)
	}
}

// abandon claims n jobs and never comes back.
func abandon(t *testing.T, store *lease.Store, n int) []lease.Lease {
	t.Helper()
	var all []lease.Lease
	for len(all) < n {
		got, err := store.Claim(t.Context(), min(n-len(all), lease.MaxBatch), nil)
		require.NoError(t, err)
		require.NotEmpty(t, got.Jobs, "not all jobs are due: %d of %d", len(all), n)
		all = append(all, got.Jobs...)
	}
	return all
}

func statsOf(t *testing.T, store *lease.Store) lease.Stats {
	t.Helper()
	stats, err := store.Stats(t.Context())
	require.NoError(t, err)
	return stats
}

// awaitDue waits until exactly n jobs of the queue are claimable.
func awaitDue(t *testing.T, store *lease.Store, n int64) {
	t.Helper()
	require.Eventually(t, func() bool {
		stats, err := store.Stats(t.Context())
		return err == nil && stats.Claimable == n
	}, within, 5*time.Millisecond, "%d jobs should become claimable", n)
}

// start runs a reaper until the test ends, or the function returned is called, which gives Run's error.
func start(t *testing.T, r *reaper.Reaper) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	var err error
	go func() {
		defer close(ended)
		err = r.Run(ctx)
	}()
	stop = func() error {
		cancel()
		select {
		case <-ended:
			return err
		case <-time.After(within):
			t.Error("Run does not end")
			return nil
		}
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

func newReaper(t *testing.T, rdb redis.UniversalClient, o *reaper.Options) *reaper.Reaper {
	t.Helper()
	r, err := reaper.New(rdb, o)
	require.NoError(t, err)
	return r
}

// A journal is a log that can be waited for.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

// count is how many lines hold all the parts.
func (j *journal) count(parts ...string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := 0
	for line := range strings.Lines(j.text.String()) {
		all := true
		for _, part := range parts {
			all = all && strings.Contains(line, part)
		}
		if all {
			n++
		}
	}
	return n
}

func (j *journal) await(t *testing.T, parts ...string) {
	t.Helper()
	require.Eventually(t, func() bool { return j.count(parts...) > 0 }, within, 5*time.Millisecond, "a line of the log with %q", parts)
}
