package reliable_test

import (
	"context"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

func isScript(cmd []string) bool {
	return len(cmd) > 5 && strings.HasPrefix(strings.ToLower(cmd[0]), "eval")
}

// through makes a client of a server behind a proxy.
func through(t *testing.T, addr string) (*redis.Client, *netfault.Proxy) {
	t.Helper()
	proxy := redistest.Proxy(t, addr)
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb, proxy
}

func TestScansCountExactlyWhereRepliesAreLost(t *testing.T) {
	t.Parallel()
	redistest.NeedServer(t)
	name := redistest.Queue(t)
	rdb, proxy := through(t, redistest.Addr(t))
	q := queueOn(t, rdb, name, nil)
	put(t, q, closing(7))
	calls, lost := 0, 0
	proxy.Decide(func(cmd []string) netfault.Action {
		if isScript(cmd) {
			if calls++; calls%3 == 0 {
				lost++
				return netfault.DropReply
			}
		}
		return netfault.Pass
	})
	var created, there int64
	var mu sync.Mutex
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			p, err := newReconcile(t, q, overdue(3000), &reliable.ReconcileOptions{Rate: 1_000_000, Batch: 100}).Pass(t.Context())
			assert.NoError(t, err)
			requireEachCountedOnce(t, p)
			assert.Zero(t, p.Unknown)
			mu.Lock()
			defer mu.Unlock()
			created, there = created+p.Created, there+p.There[reliable.Due]
		})
	}
	both.Wait()
	proxy.Decide(nil)
	require.EqualValues(t, 2999, created)
	require.EqualValues(t, 3001, there)
	require.Greater(t, lost, 10)
	s, err := q.Stats(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 3000, s.Due)
}

func TestAScanThatIsEndedLearnsWhatBecameOfItsLastCall(t *testing.T) {
	t.Parallel()
	redistest.NeedServer(t)
	name := redistest.Queue(t)
	rdb, proxy := through(t, redistest.Addr(t))
	q := queueOn(t, rdb, name, nil)
	put(t, q, closing(0))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := false
	proxy.Decide(func(cmd []string) netfault.Action {
		if isScript(cmd) && !ended {
			ended = true
			cancel()
			return netfault.DropReply
		}
		return netfault.Pass
	})
	p, err := newReconcile(t, q, overdue(1000), fast()).Pass(ctx)
	require.ErrorIs(t, err, context.Canceled)
	requireEachCountedOnce(t, p)
	require.Zero(t, p.Unknown, "the call is known when Pass returns")
	s, err := q.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, s.Due-1, p.Created)
}

// Redis forgets everything at item 1,000 while one reply in three is lost too. Whatever the first pass could not know, it
// says so, and the second makes exactly what is missing.
func TestAScanIsExactAlthoughRedisForgetsEverythingInTheMiddleOfIt(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, nil)
	plain := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = plain.Close() })
	rdb, proxy := through(t, server.Addr())
	q := queueOn(t, rdb, "orders", nil)
	calls := 0
	proxy.Decide(func(cmd []string) netfault.Action {
		if isScript(cmd) {
			if calls++; calls%3 == 0 {
				return netfault.DropReply
			}
		}
		return netfault.Pass
	})
	forgetful := func(ctx context.Context) iter.Seq2[reliable.Item, error] {
		return func(yield func(reliable.Item, error) bool) {
			read := 0
			for item, err := range overdue(2000)(ctx) {
				if read++; read == 1000 {
					assert.NoError(t, plain.FlushAll(ctx).Err())
				}
				if !yield(item, err) {
					return
				}
			}
		}
	}
	p, err := newReconcile(t, q, forgetful, &reliable.ReconcileOptions{Rate: 1_000_000, Batch: 50}).Pass(t.Context())
	require.NoError(t, err)
	requireEachCountedOnce(t, p)
	require.Zero(t, p.Unsent)
	require.GreaterOrEqual(t, p.Created+p.Unknown+p.There[reliable.Due], int64(2000))
	require.LessOrEqual(t, p.Unknown, int64(100), "at most the calls whose reply was lost when Redis forgot")
	proxy.Decide(nil)

	before, err := q.Stats(t.Context())
	require.NoError(t, err)
	second, err := newReconcile(t, q, overdue(2000), fast()).Pass(t.Context())
	require.NoError(t, err)
	requireEachCountedOnce(t, second)
	require.EqualValues(t, 2000-before.Due, second.Created)
	require.Equal(t, before.Due, second.There[reliable.Due])
}

// A call whose first try had no answer is refused, since memory is full: it did nothing, and is no fault of the items.
func TestAPassCountsWhatAFullServerDidNotTakeAsUnsent(t *testing.T) {
	t.Parallel()
	rdb, proxy := behindProxy(t, 3*time.Second)
	q := queueOn(t, rdb, redistest.Queue(t), nil)
	put(t, q, job("k"))
	r, err := reliable.NewReconcile(q, func(context.Context) iter.Seq2[reliable.Item, error] {
		return func(yield func(reliable.Item, error) bool) { yield(reliable.Item{Kind: "k", ID: "a"}, nil) }
	}, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	enqueue := shaOf(t, "enqueue")
	var tries atomic.Int64
	proxy.Decide(func(cmd []string) netfault.Action {
		switch {
		case cmd[0] != "evalsha":
			return netfault.Pass
		case cmd[1] != enqueue:
			if tries.Load() >= 2 { // the call is sealed
				cancel()
			}
			return netfault.Pass
		case tries.Add(1) == 1:
			return netfault.DropRequest
		}
		return netfault.Answer("-OOM command not allowed when used memory > 'maxmemory'.\r\n")
	})
	p, err := r.Pass(ctx)
	require.Error(t, err)
	proxy.Decide(nil)
	require.EqualValues(t, 1, p.Read)
	require.Zero(t, p.Refused, "%v", p.Refusals)
	require.EqualValues(t, 1, p.Unsent+p.Unknown)
}
