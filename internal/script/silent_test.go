package script

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
)

// never is how long the client would wait for an answer by itself: longer than any test.
func never(o *redis.Options) { o.ReadTimeout, o.PoolTimeout = time.Hour, time.Hour }

func TestACallIntoADeadConnectionIsRepeatedOnAnother(t *testing.T) {
	t.Parallel()
	d, proxy := faultyDesk(t, never)
	require.NoError(t, d.Do(t.Context(), count("x"), grab(1)))
	rec := watch(proxy, countScript, func(n int, _ request) netfault.Action {
		if n == 1 {
			return netfault.Hold
		}
		return netfault.Pass
	})
	c := count("x")
	require.NoError(t, d.Do(t.Context(), c))
	require.NoError(t, c.Err)
	requests := rec.requests()
	require.Len(t, requests, 2)
	assert.Equal(t, requests[0], requests[1], "under the same number")

	proxy.ReleaseHeld()
	require.Eventually(t, func() bool { return proxy.Held() == 0 }, patience, pollEvery)
	require.NoError(t, d.Do(t.Context(), count("y")))
	assert.Equal(t, 2, d.stat(t, "x"), "the first request, when it came at last, did nothing")
}

func TestAClaimIntoADeadConnectionIsAskedForUnderTheNextNumber(t *testing.T) {
	t.Parallel()
	d, proxy := faultyDesk(t, never)
	t.Cleanup(func() { proxy.ReleaseHeld() })
	require.NoError(t, d.Do(t.Context(), grab(4)))
	rec := watch(proxy, grabScript, func(n int, _ request) netfault.Action {
		if n == 1 {
			return netfault.Hold
		}
		return netfault.Pass
	})
	c := grab(4)
	require.NoError(t, d.Do(t.Context(), c))
	require.NoError(t, c.Err)
	requests := rec.requests()
	require.Len(t, requests, 2)
	assert.Equal(t, requests[0].session, requests[1].session)
	assert.NotEqual(t, requests[0].number, requests[1].number)
	_, n := grabbed(c.Reply)
	assert.Equal(t, 2, n, "half as many")
}

func TestACallGoesOnWhereTheUsersPoolIsTaken(t *testing.T) {
	t.Parallel()
	t.Run("calls wait", func(t *testing.T) {
		t.Parallel()
		callBesideABlockedPool(t, func(o *redis.Options) { never(o); o.PoolSize = 1 })
	})
	t.Run("calls are refused", func(t *testing.T) {
		t.Parallel()
		callBesideABlockedPool(t, func(o *redis.Options) { never(o); o.MaxActiveConns = 1 })
	})
}

func callBesideABlockedPool(t *testing.T, change func(*redis.Options)) {
	d, _ := faultyDesk(t, change)
	ctx, release := context.WithCancel(t.Context())
	blocked := make(chan error, 1)
	key := d.key("wake") // read by nobody else here
	go func() { blocked <- d.rdb.BLPop(ctx, 0, key).Err() }()
	require.Eventually(t, func() bool { return d.rdb.PoolStats().TotalConns == 1 && d.rdb.PoolStats().IdleConns == 0 }, patience, pollEvery)
	c := count("x")
	require.NoError(t, d.Do(t.Context(), c))
	require.NoError(t, c.Err)
	require.NoError(t, d.direct.LPush(t.Context(), key, "1").Err())
	require.NoError(t, next(t, blocked))
	release()
}

func TestAPoolOfDeadConnectionsIsFoundOutAtOnce(t *testing.T) {
	t.Parallel()
	const connections, calls = 20, 40
	d, proxy := faultyDesk(t, func(o *redis.Options) { o.PoolSize, o.MinIdleConns = connections, connections })
	require.Eventually(t, func() bool { return d.rdb.PoolStats().IdleConns == connections }, patience, pollEvery)
	require.NoError(t, d.Do(t.Context(), count("x")))
	proxy.Silence()
	began := time.Now()
	for range calls {
		c := count("x")
		require.NoError(t, d.Do(t.Context(), c))
		require.NoError(t, c.Err)
	}
	assert.Less(t, time.Since(began), connections*silence/2, "not a second for each of the connections")
	assert.Equal(t, calls+1, d.stat(t, "x"))
}

func TestASilentServerIsAskedAFewTimesOnly(t *testing.T) {
	t.Parallel()
	d, proxy := faultyDesk(t, never)
	require.NoError(t, d.Do(t.Context(), count("x")))
	var asked atomic.Int64
	proxy.Decide(func(cmd []string) netfault.Action {
		if _, ok := asks(cmd, countScript); ok {
			asked.Add(1)
			return netfault.Hold
		}
		return netfault.Pass
	})
	c := count("x")
	done := make(chan error, 1)
	go func() { done <- d.Do(t.Context(), c) }()
	require.Eventually(t, func() bool { return asked.Load() == mostAttempts }, patience, pollEvery)
	assert.Never(t, func() bool { return asked.Load() > mostAttempts }, 3*silence, 50*time.Millisecond)
	proxy.Decide(nil)
	proxy.ReleaseHeld()
	require.NoError(t, next(t, done))
	require.NoError(t, c.Err)
	assert.Equal(t, 2, d.stat(t, "x"), "all of them ran, once")
}

// A server, or a way to it, that takes a little more than a second for every answer: the client itself waits three.
func TestASlowServerIsStillWorkedWith(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func() *Call{"call": func() *Call { return count("x") }, "claim": func() *Call { return grab(4) }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, proxy := faultyDesk(t, nil)
			require.NoError(t, d.Do(t.Context(), call()))
			t.Cleanup(func() { proxy.Delay(0) })
			proxy.Delay(600 * time.Millisecond)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			c := call()
			require.NoError(t, d.Do(ctx, c))
			require.NoError(t, c.Err)
			assert.Greater(t, time.Duration(d.lastTrip.Load()), silence)

			rec := watch(proxy, map[string]*Script{"call": countScript, "claim": grabScript}[name], func(int, request) netfault.Action { return netfault.Pass })
			c = call()
			require.NoError(t, d.Do(ctx, c))
			require.NoError(t, c.Err)
			assert.Len(t, rec.requests(), 1, "it is known to be slow")
		})
	}
}
