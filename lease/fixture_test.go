package lease

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/internal/script"
)

const (
	patience  = 20 * time.Second // bounds every wait for a state that has to come
	pollEvery = 2 * time.Millisecond
)

// A bench is one queue of the test's own, seen by one process.
type bench struct {
	*Store
	rdb   *redis.Client // past any proxy
	queue string
}

// onBoth runs a test on a real Redis and on miniredis: each must keep the contract.
func onBoth(t *testing.T, test func(t *testing.T, b *bench)) {
	t.Helper()
	onBothWith(t, redistest.Mini, test)
}

// onBothWith is onBoth with another way to have a miniredis.
func onBothWith(t *testing.T, mini func(testing.TB) *redis.Client, test func(t *testing.T, b *bench)) {
	t.Helper()
	t.Parallel()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		redistest.NeedServer(t)
		test(t, onRedis(t))
	})
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		queue := redistest.Queue(t)
		rdb := mini(t)
		t.Cleanup(func() { redistest.CheckQueue(t, rdb, keys.DefaultPrefix, queue) })
		test(t, newBench(t, queue, rdb, rdb))
	})
}

// onRedis makes a bench on the shared server; the queue is checked when the test ends.
func onRedis(t testing.TB) *bench {
	t.Helper()
	queue := redistest.Queue(t)
	rdb := redistest.Client(t)
	return newBench(t, queue, rdb, rdb)
}

// behindProxy makes a bench on the shared server whose store goes through a proxy. change may alter the client's
// options; nil leaves them.
func behindProxy(t *testing.T, change func(*redis.Options)) (*bench, *netfault.Proxy) {
	t.Helper()
	queue := redistest.Queue(t)
	proxy := redistest.Proxy(t, redistest.Addr(t))
	o := redistest.Options(t)
	o.Addr, o.MaxRetries = proxy.Addr(), 3 // it repeats by itself, as clients do
	if change != nil {
		change(o)
	}
	through := redis.NewClient(o)
	t.Cleanup(func() { _ = through.Close() })
	b := newBench(t, queue, through, redistest.Client(t))
	loadScripts(t, b.rdb)
	return b, proxy
}

// intercept has a proxy ask what to do with each call of a script, n being 1 for the first, and returns how many there
// were.
func intercept(proxy *netfault.Proxy, sc *script.Script, decide func(n int64) netfault.Action) *atomic.Int64 {
	var seen atomic.Int64
	proxy.Decide(func(cmd []string) netfault.Action {
		if cmd[0] == "evalsha" && cmd[1] == sc.SHA() {
			return decide(seen.Add(1))
		}
		return netfault.Pass
	})
	return &seen
}

// first is an action for the first n calls.
func first(n int64, action netfault.Action) func(int64) netfault.Action {
	return func(i int64) netfault.Action {
		if i <= n {
			return action
		}
		return netfault.Pass
	}
}

// loadScripts makes each call one EVALSHA.
func loadScripts(t testing.TB, rdb *redis.Client) {
	t.Helper()
	for _, s := range Scripts() {
		require.NoError(t, rdb.ScriptLoad(t.Context(), s.Source()).Err())
	}
}

func newBench(t testing.TB, queue string, through, direct *redis.Client) *bench {
	t.Helper()
	b := &bench{rdb: direct, queue: queue}
	b.Store = b.another(t, through)
	return b
}

// another is the store of one more process on the same queue; nil goes the direct way.
func (b *bench) another(t testing.TB, through *redis.Client) *Store {
	t.Helper()
	if through == nil {
		through = b.rdb
	}
	s, err := NewStore(through, b.queue, &StoreOptions{Holder: "test/1", Stub: []byte("stub")})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, s.Close(ctx))
	})
	return s
}

func (b *bench) key(name string) string { return b.keys.Key(name) }

// record is what a job's record holds in these tests.
func record(id string) []byte { return []byte("record of " + id) }

// put enqueues jobs that are due at once.
func (b *bench) put(t testing.TB, ids ...string) {
	t.Helper()
	items := make([]Item, len(ids))
	for i, id := range ids {
		items[i] = Item{ID: id, Record: record(id), Size: len(id)}
	}
	b.putItems(t, items...)
}

func (b *bench) putItems(t testing.TB, items ...Item) {
	t.Helper()
	for len(items) > 0 {
		n := min(len(items), MaxBatch)
		results, err := b.Enqueue(t.Context(), items[:n])
		require.NoError(t, err)
		for _, result := range results {
			require.NoError(t, result)
		}
		items = items[n:]
	}
}

// take claims exactly n jobs.
func (b *bench) take(t testing.TB, n int) []Lease {
	t.Helper()
	return takeFrom(t, b.Store, n)
}

func takeFrom(t testing.TB, s *Store, n int) []Lease {
	t.Helper()
	got, err := s.Claim(t.Context(), n, nil)
	require.NoError(t, err)
	require.Len(t, got.Jobs, n)
	return got.Jobs
}

// settle ends leases, whatever the answers.
func (b *bench) settle(t testing.TB, verdicts ...Verdict) []Settled {
	t.Helper()
	got, err := b.Settle(t.Context(), verdicts)
	require.NoError(t, err)
	require.Len(t, got, len(verdicts))
	return got
}

func verdict(op Op, l Lease) Verdict { return Verdict{Op: op, ID: l.ID, Token: l.Token} }

// publish sets the queue's policy.
func (b *bench) publish(t testing.TB, p Policy) {
	t.Helper()
	_, err := b.Publish(t.Context(), &p)
	require.NoError(t, err)
}

// look inspects one job.
func (b *bench) look(t testing.TB, id string) Info {
	t.Helper()
	got, err := b.Inspect(t.Context(), []string{id})
	require.NoError(t, err)
	return got[0]
}

// count reads one counter.
func (b *bench) count(t testing.TB, name string) int {
	t.Helper()
	text, err := b.rdb.HGet(context.Background(), b.key("stats"), name).Result()
	if err == redis.Nil {
		return 0
	}
	require.NoError(t, err)
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

// score reads where a job stands in a place, in ms.
func (b *bench) score(t testing.TB, place Place, id string) int64 {
	t.Helper()
	score, err := b.rdb.ZScore(t.Context(), b.key(string(place)), id).Result()
	require.NoError(t, err)
	return int64(score)
}

// expireAll has the leases on these jobs run out now, and a sweep take them.
func (b *bench) expireAll(t testing.TB, leases ...Lease) Expired {
	t.Helper()
	b.runOut(t, leases...)
	got, err := b.Expire(t.Context(), MaxBatch, true)
	require.NoError(t, err)
	return got
}

// runOut moves the expiries of leases to Redis' now.
func (b *bench) runOut(t testing.TB, leases ...Lease) {
	t.Helper()
	now := b.now(t).UnixMilli()
	for _, l := range leases {
		// Deletes first, so that it works where memory is full.
		err := b.rdb.Eval(t.Context(), `
			redis.call('HDEL', KEYS[2], '')
			redis.call('ZADD', KEYS[1], 'XX', ARGV[1], ARGV[2])
			return redis.call('ZSCORE', KEYS[1], ARGV[2])`,
			[]string{b.key("processing"), b.key("sessions")}, now, l.ID).Err()
		require.NoError(t, err, "%s is not in processing", l.ID)
	}
}

// now is the server's clock.
func (b *bench) now(t testing.TB) time.Time {
	t.Helper()
	now, err := b.rdb.Time(t.Context()).Result()
	require.NoError(t, err)
	return now
}

// dump is all that the queue holds but for what a refused call may change.
func (b *bench) dump(t testing.TB) map[string]string {
	t.Helper()
	return redistest.Dump(t, b.rdb, keys.DefaultPrefix, b.queue, "stats", "sessions", "holders", "fence")
}

// wakeUps empties the wake list and says how many elements it held.
func (b *bench) wakeUps(t testing.TB) int64 {
	t.Helper()
	n, err := b.rdb.LLen(t.Context(), b.key("wake")).Result()
	require.NoError(t, err)
	require.NoError(t, b.rdb.Del(t.Context(), b.key("wake")).Err())
	return n
}

func names(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s%04d", prefix, i)
	}
	return out
}

func ptr[T any](v T) *T { return &v }

// Scores that nothing of ours writes.
var infinity, negativeInfinity = math.Inf(1), math.Inf(-1)
