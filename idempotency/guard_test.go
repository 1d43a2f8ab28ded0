package idempotency_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/idempotency"
	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redistest"
)

func TestAnEffectIsFreshThenInFlightThenDoneWithItsResult(t *testing.T) {
	t.Parallel()
	g := newGuard(t, nil)
	first := begin(t, g, "coupon:1")
	require.False(t, first.Done)
	require.False(t, first.InDoubt)
	require.NoError(t, first.Permit.Context().Err())

	var busy *idempotency.InFlightError
	_, err := g.Begin(t.Context(), "coupon:1", nil)
	require.ErrorAs(t, err, &busy)
	assert.Equal(t, "coupon:1", busy.Key)
	assert.InDelta(t, 15, busy.Wait.Seconds(), 5)

	result := []byte("any bytes\x00\n\xff")
	require.NoError(t, first.Permit.Commit(t.Context(), result))
	require.Error(t, first.Permit.Context().Err())
	for range 2 {
		again := begin(t, g, "coupon:1")
		assert.True(t, again.Done)
		assert.Nil(t, again.Permit)
		assert.Equal(t, result, again.Result)
		assert.WithinDuration(t, time.Now(), again.Since, time.Minute)
	}
	require.NoError(t, first.Permit.Commit(t.Context(), result), "a repeat")
	require.ErrorIs(t, first.Permit.Commit(t.Context(), []byte("another result")), idempotency.ErrNotOwner)
	assert.Equal(t, result, begin(t, g, "coupon:1").Result)
}

func TestWhatWasAbortedIsFreshAgain(t *testing.T) {
	t.Parallel()
	rdb, name := redistest.Client(t), redistest.Queue(t)
	g := guardOn(t, rdb, name, nil)
	a := begin(t, g, "k")
	require.NoError(t, a.Permit.Abort(t.Context()))
	assert.Empty(t, dump(t, rdb, "leaseq:v1:{"+name+"}:guard:*"), "nothing is left")
	assert.False(t, begin(t, g, "k").InDoubt)
}

// A holder that is silent leaves a key that is in doubt, never one that is absent.
func TestAHolderThatDiesLeavesAKeyInDoubt(t *testing.T) {
	t.Parallel()
	rdb, name := redistest.Client(t), redistest.Queue(t)
	dead := guardOn(t, rdb, name, &idempotency.Options{Lease: 1500 * time.Millisecond})
	begun := begin(t, dead, "k")
	require.NoError(t, dead.Close(t.Context()))
	require.ErrorIs(t, context.Cause(begun.Permit.Context()), idempotency.ErrClosed)

	var told atomic.Int64
	o := short()
	o.InDoubt, o.OnInDoubt = idempotency.Ask, func(key string, _ time.Time) {
		assert.Equal(t, "k", key)
		told.Add(1)
	}
	g := guardOn(t, rdb, name, o)
	var a *idempotency.Answer
	require.Eventually(t, func() bool {
		var err error
		a, err = g.Begin(t.Context(), "k", nil)
		if err != nil {
			require.ErrorAs(t, err, new(*idempotency.InFlightError))
		}
		return err == nil
	}, 10*time.Second, 20*time.Millisecond)
	assert.True(t, a.InDoubt)
	assert.EqualValues(t, 1, told.Load())
	require.NoError(t, a.Permit.Commit(t.Context(), []byte("found out")))

	before := dump(t, rdb, "leaseq:v1:{"+name+"}:*")
	require.ErrorIs(t, begun.Permit.Commit(t.Context(), []byte("late")), idempotency.ErrClosed)
	assert.Equal(t, before, dump(t, rdb, "leaseq:v1:{"+name+"}:*"))
}

func TestALateHolderIsNotTheOwnerAndChangesNothing(t *testing.T) {
	t.Parallel()
	proxy := redistest.Proxy(t, redistest.Addr(t))
	cut := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ReadTimeout: 200 * time.Millisecond})
	t.Cleanup(func() { _ = cut.Close() })
	rdb, name := redistest.Client(t), redistest.Queue(t)
	zombie := begin(t, guardOn(t, cut, name, short()), "k").Permit
	proxy.BlackHole(true)
	<-zombie.Context().Done()
	require.ErrorIs(t, context.Cause(zombie.Context()), idempotency.ErrNotOwner)
	proxy.BlackHole(false)

	g := guardOn(t, rdb, name, short())
	var a *idempotency.Answer
	require.Eventually(t, func() bool {
		var err error
		a, err = g.Begin(t.Context(), "k", nil)
		return err == nil
	}, 10*time.Second, 10*time.Millisecond)
	require.True(t, a.InDoubt)
	require.NoError(t, a.Permit.Commit(t.Context(), []byte("mine")))
	before := dump(t, rdb, "leaseq:v1:{"+name+"}:*")
	require.ErrorIs(t, zombie.Commit(t.Context(), []byte("late")), idempotency.ErrNotOwner)
	require.ErrorIs(t, zombie.Abort(t.Context()), idempotency.ErrNotOwner)
	require.ErrorIs(t, zombie.Abandon(t.Context()), idempotency.ErrNotOwner)
	assert.Equal(t, before, dump(t, rdb, "leaseq:v1:{"+name+"}:*"))
}

// Nothing is tuned to how long the effect takes: the guard keeps the record.
func TestAPermitThatIsHeldForManyLeasesStaysItsOwn(t *testing.T) {
	t.Parallel()
	rdb, name := redistest.Client(t), redistest.Queue(t)
	const lease = 2 * time.Second
	o := &idempotency.Options{Lease: lease}
	g, other := guardOn(t, rdb, name, o), guardOn(t, rdb, name, o)
	var permits []*idempotency.Permit
	for i := range 300 { // more than one batch
		permits = append(permits, begin(t, g, string(rune('a'+i%26))+strings.Repeat("x", i/26)).Permit)
	}
	held := time.Now()
	for time.Since(held) < 9*lease/4 {
		_, err := other.Begin(t.Context(), permits[0].Key(), nil)
		require.ErrorAs(t, err, new(*idempotency.InFlightError))
	}
	for _, p := range permits {
		require.NoError(t, p.Context().Err())
		require.NoError(t, p.Commit(t.Context(), nil))
	}
}

func TestARecordLivesForTheRetentionFromItsLastChange(t *testing.T) {
	t.Parallel()
	rdb, name := redistest.Client(t), redistest.Queue(t)
	g := guardOn(t, rdb, name, &idempotency.Options{Lease: 300 * time.Millisecond, Retention: 5 * time.Second})
	key := "leaseq:v1:{" + name + "}:guard:k"
	a := begin(t, g, "k")
	lives := func() time.Duration {
		ttl, err := rdb.PTTL(t.Context(), key).Result()
		require.NoError(t, err)
		return ttl
	}
	began := time.Now()
	require.Eventually(t, func() bool { return time.Since(began) > 1200*time.Millisecond && lives() > 4*time.Second },
		10*time.Second, 5*time.Millisecond, "the heartbeat renews it")
	require.NoError(t, a.Permit.Commit(t.Context(), []byte("r")))
	assert.InDelta(t, 5, lives().Seconds(), 1)
	ends, err := rdb.HGet(t.Context(), key, "until").Result()
	require.NoError(t, err)
	assert.Equal(t, "0", ends, "no beat that comes late makes it live longer")
}

func TestAnotherRequestUnderTheSameKeyIsRefused(t *testing.T) {
	t.Parallel()
	g := newGuard(t, nil)
	a, err := g.Begin(t.Context(), "k", &idempotency.BeginOptions{Request: []byte("10 EUR")})
	require.NoError(t, err)
	for _, request := range [][]byte{[]byte("20 EUR"), nil} {
		var other *idempotency.OtherRequestError
		_, err = g.Begin(t.Context(), "k", &idempotency.BeginOptions{Request: request})
		require.ErrorAs(t, err, &other)
		assert.Equal(t, "k", other.Key)
	}
	require.NoError(t, a.Permit.Commit(t.Context(), nil))
	_, err = g.Begin(t.Context(), "k", &idempotency.BeginOptions{Request: []byte("20 EUR")})
	require.ErrorAs(t, err, new(*idempotency.OtherRequestError))
	done, err := g.Begin(t.Context(), "k", &idempotency.BeginOptions{Request: []byte("10 EUR")})
	require.NoError(t, err)
	assert.True(t, done.Done)
}

func TestWithoutRedisNothingIsFresh(t *testing.T) {
	t.Parallel()
	proxy := redistest.Proxy(t, redistest.Addr(t))
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	g := guardOn(t, rdb, redistest.Queue(t), nil)
	proxy.Cut()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	a, err := g.Begin(ctx, "k", nil)
	require.Error(t, err)
	require.Nil(t, a)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	proxy.Restore()
}

// Every second reply is dropped, of each kind of call: each step acts once, and says what it did.
func TestLostRepliesMakeNoStepActTwice(t *testing.T) {
	t.Parallel()
	proxy := redistest.Proxy(t, redistest.Addr(t))
	n := 0
	proxy.Decide(func(cmd []string) netfault.Action {
		if cmd[0] == "evalsha" {
			if n++; n%2 == 0 {
				return netfault.DropReply
			}
		}
		return netfault.Pass
	})
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	g := guardOn(t, rdb, redistest.Queue(t), nil)
	for i := range 40 {
		key := strings.Repeat("k", i+1)
		a := begin(t, g, key)
		require.False(t, a.Done || a.InDoubt, "fresh")
		if i%4 == 0 {
			require.NoError(t, a.Permit.Abort(t.Context()))
			a = begin(t, g, key)
			require.False(t, a.Done || a.InDoubt, "fresh again")
		}
		require.NoError(t, a.Permit.Commit(t.Context(), []byte(key)))
		done := begin(t, g, key)
		require.True(t, done.Done)
		require.Equal(t, key, string(done.Result))
	}
	proxy.Decide(nil)
	require.Greater(t, n, 100)
}

// A caller leaves while the answer of its Begin is on its way, and learns what became of it.
func TestABeginOfUnknownOutcomeIsResolved(t *testing.T) {
	t.Parallel()
	proxy := redistest.Proxy(t, redistest.Addr(t))
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	g := guardOn(t, rdb, redistest.Queue(t), nil)
	require.NoError(t, begin(t, g, "other").Permit.Abort(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := true
	proxy.Decide(func(cmd []string) netfault.Action {
		if cmd[0] == "evalsha" && first {
			first = false
			cancel()
			return netfault.DropReply
		}
		return netfault.Pass
	})
	_, err := g.Begin(ctx, "k", nil)
	var unknown *idempotency.UnknownError
	require.ErrorAs(t, err, &unknown)
	require.NoError(t, unknown.Resolve(t.Context()), "it ran")
	require.Eventually(t, func() bool {
		a, err := g.Begin(t.Context(), "k", nil)
		if err != nil {
			require.ErrorAs(t, err, new(*idempotency.InFlightError))
			return false
		}
		require.False(t, a.InDoubt, "it is certain that nobody ran the effect")
		return true
	}, 10*time.Second, time.Millisecond, "what nobody waited for is taken back long before the lease is over")
}

// A zombie and a new holder race for one key: one of them is fresh.
func TestOfTwoThatRaceForAKeyOneIsFresh(t *testing.T) {
	t.Parallel()
	pairs := 200
	if os.Getenv("LEASEQ_CASES") == "full" {
		pairs = 5000
	}
	rdb, name := redistest.Client(t), redistest.Queue(t)
	guards := [2]*idempotency.Guard{guardOn(t, rdb, name, nil), guardOn(t, rdb, name, nil)}
	others := map[string]int{}
	for i := range pairs {
		key := "pair:" + strings.Repeat("i", i%100) + string(rune('a'+i%26)) + time.Now().Format("150405.000000000")
		var start, both sync.WaitGroup
		var fresh atomic.Int64
		answers := [2]string{}
		start.Add(2)
		for k, g := range guards {
			both.Go(func() {
				start.Done()
				start.Wait()
				a, err := g.Begin(t.Context(), key, nil)
				switch {
				case err != nil && errors.As(err, new(*idempotency.InFlightError)):
					answers[k] = "in flight"
				case err != nil:
					assert.NoError(t, err)
				case a.Done:
					assert.Equal(t, key, string(a.Result))
					answers[k] = "done"
				default:
					assert.False(t, a.InDoubt)
					fresh.Add(1)
					assert.NoError(t, a.Permit.Commit(t.Context(), []byte(key)))
				}
			})
		}
		both.Wait()
		require.EqualValues(t, 1, fresh.Load(), "pair %d", i)
		others[answers[0]+answers[1]]++
	}
	t.Logf("%d pairs; the other was %v", pairs, others)
	require.Equal(t, pairs, others["in flight"]+others["done"])
}

func TestResultsAndKeysAreBounded(t *testing.T) {
	t.Parallel()
	g := newGuard(t, &idempotency.Options{ResultLimit: 10})
	a := begin(t, g, "k")
	var large *idempotency.TooLargeError
	require.ErrorAs(t, a.Permit.Commit(t.Context(), make([]byte, 11)), &large)
	assert.Equal(t, idempotency.TooLargeError{Size: 11, Limit: 10}, *large)
	require.NoError(t, a.Permit.Context().Err(), "nothing was sent")
	require.NoError(t, a.Permit.Commit(t.Context(), make([]byte, 10)))
	for _, key := range []string{"", strings.Repeat("k", 257), "a\nb", "\xff"} {
		_, err := g.Begin(t.Context(), key, nil)
		require.ErrorContains(t, err, "idempotency key", "%q", key)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	_, err := idempotency.New(nil, "a b", &idempotency.Options{Lease: time.Minute, Retention: 119 * time.Second, InDoubt: 7, ResultLimit: 2 << 20, Holder: "a\nb"})
	for _, want := range []string{"Retention is 1m59s and Lease is 1m0s", "InDoubt is 7", "ResultLimit is 2097152", "holder \"a", "client is nil", `queue name "a b"`} {
		require.ErrorContains(t, err, want)
	}
	_, err = idempotency.New(redistest.Client(t), "q", &idempotency.Options{Lease: time.Millisecond})
	require.ErrorContains(t, err, "Lease is 1ms: want at least 100ms")
}

func TestAClosedGuardRefuses(t *testing.T) {
	t.Parallel()
	g := newGuard(t, nil)
	a := begin(t, g, "k")
	require.NoError(t, g.Close(t.Context()))
	require.ErrorIs(t, context.Cause(a.Permit.Context()), idempotency.ErrClosed)
	_, err := g.Begin(t.Context(), "l", nil)
	require.ErrorIs(t, err, idempotency.ErrClosed)
	require.ErrorIs(t, a.Permit.Commit(t.Context(), nil), idempotency.ErrClosed)
}
