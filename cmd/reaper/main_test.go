package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/internal/wire"
	"github.com/leaseq/leaseq/lease"
)

func TestMain(m *testing.M) {
	logging.Disable() // as main does
	if os.Getenv(ownWorkerVariable) != "" {
		os.Exit(ownWorker())
	}
	redistest.Main(m, unbuild)
}

// within is the bound for what should take milliseconds: a loaded machine may need longer.
const within = time.Minute

// A pad is an output that can be read while it is written.
type pad struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *pad) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *pad) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// await waits for a line with all the parts.
func (p *pad) await(t *testing.T, parts ...string) {
	t.Helper()
	if !assert.Eventually(t, func() bool { return p.has(parts...) }, within, 5*time.Millisecond) {
		t.Fatalf("no line with %q in:\n%s", parts, p)
	}
}

func (p *pad) has(parts ...string) bool {
	for line := range strings.Lines(p.String()) {
		all := true
		for _, part := range parts {
			all = all && strings.Contains(line, part)
		}
		if all {
			return true
		}
	}
	return false
}

// A launched program is a run of the program inside of the test.
type launched struct {
	out, err pad
	cancel   context.CancelCauseFunc
	code     chan int
}

// launch runs the program with nothing but env in its environment.
func launch(t *testing.T, env map[string]string, args ...string) *launched {
	p := &launched{code: make(chan int, 1)}
	app := NewApp(&AppOptions{Out: &p.out, Err: &p.err, LookupEnv: func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}})
	ctx, cancel := context.WithCancelCause(context.Background())
	p.cancel = cancel
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.code <- app.Main(ctx, args)
	}()
	t.Cleanup(func() {
		cancel(nil)
		<-ended
	})
	return p
}

func (p *launched) wait(t *testing.T) (code int) {
	t.Helper()
	select {
	case code = <-p.code:
		return code
	case <-time.After(within):
		t.Fatalf("the program does not end; it said:\n%s", &p.err)
		return -1
	}
}

// invoke runs the program to its end.
func invoke(t *testing.T, env map[string]string, args ...string) (code int, out, errOut string) {
	t.Helper()
	p := launch(t, env, args...)
	code = p.wait(t)
	return code, p.out.String(), p.err.String()
}

func newPrefix() string { return fmt.Sprintf("cmd-%016x", rand.Uint64()) }

func serverURL(t *testing.T) string { return "redis://" + redistest.Addr(t) + "/0" }

// newStore makes a queue that is in the registry and has the given lease.
func newStore(t *testing.T, rdb redis.UniversalClient, prefix, queue string, length time.Duration) *lease.Store {
	t.Helper()
	store, err := lease.NewStore(rdb, queue, &lease.StoreOptions{Prefix: prefix, Stub: wire.Stub()})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		assert.NoError(t, store.Close(ctx))
	})
	_, err = store.Publish(t.Context(), &lease.Policy{Lease: length})
	require.NoError(t, err)
	require.NoError(t, store.Register(t.Context()))
	return store
}

func enqueue(t *testing.T, store *lease.Store, ids ...string) {
	t.Helper()
	record, err := wire.Append(nil, &wire.Envelope{Kind: "order.close", EnqueuedAt: time.Now()})
	require.NoError(t, err)
	items := make([]lease.Item, len(ids))
	for i, id := range ids {
		items[i] = lease.Item{ID: id, Record: record}
	}
	answers, err := store.Enqueue(t.Context(), items)
	require.NoError(t, err)
	for _, err := range answers {
		require.NoError(t, err)
	}
}

// claim leases n jobs, which must be due. A claim that is not answered in time, as on a busy machine, is followed by one
// for half as many, so it may take more than one.
func claim(t *testing.T, store *lease.Store, n int) (jobs []lease.Lease) {
	t.Helper()
	require.Eventually(t, func() bool {
		got, err := store.Claim(t.Context(), n-len(jobs), nil)
		if assert.NoError(t, err) {
			jobs = append(jobs, got.Jobs...)
		}
		return err != nil || len(jobs) == n
	}, within, 5*time.Millisecond)
	require.Len(t, jobs, n)
	return jobs
}

func settle(t *testing.T, store *lease.Store, op lease.Op, job *lease.Lease) {
	t.Helper()
	answers, err := store.Settle(t.Context(), []lease.Verdict{{Op: op, ID: job.ID, Token: job.Token, Reason: "why"}})
	require.NoError(t, err)
	require.NoError(t, answers[0].Err)
}

// awaitClaimable waits until exactly n jobs are claimable.
func awaitClaimable(t *testing.T, store *lease.Store, n int64) {
	t.Helper()
	require.Eventually(t, func() bool {
		stats, err := store.Stats(t.Context())
		return err == nil && stats.Claimable == n
	}, within, 5*time.Millisecond)
}
