package script

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redistest"
)

// endless is a client whose tries never end by themselves.
func endless(o *redis.Options) { o.ReadTimeout = -1 }

func TestContextEndedWhileTheServerIsSilentReturnsAtOnce(t *testing.T) {
	t.Parallel()
	d, proxy := faultyDesk(t, endless)
	ctx, cancel := context.WithCancel(t.Context())
	watch(proxy, countScript, func(int, request) netfault.Action {
		cancel()
		return netfault.Hold
	})
	c := count("x")
	err := d.Do(ctx, c) // would wait for ever
	var unknown *UnknownError
	require.ErrorAs(t, err, &unknown)
	require.ErrorIs(t, err, context.Canceled)
	require.EqualError(t, err, "count: outcome unknown: context canceled")

	short, end := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer end()
	require.ErrorIs(t, unknown.Resolve(short), context.DeadlineExceeded, "not known yet")

	proxy.Decide(nil)
	proxy.ReleaseHeld()
	require.NoError(t, resolved(t, err), "it ran after all, and its answer came")
	assert.Equal(t, "1", c.Rest)
	assert.Equal(t, 1, d.stat(t, "x"))
}

func TestCallWhoseReplyWasLostResolvesToItsAnswer(t *testing.T) {
	t.Parallel()
	d, proxy := faultyDesk(t, withRepeats)
	ctx, cancel := context.WithCancel(t.Context())
	rec := watch(proxy, countScript, func(int, request) netfault.Action {
		cancel()
		return netfault.DropReply
	})
	c := count("x")
	require.NoError(t, truthOf(t, d.Do(ctx, c), c))
	assert.Equal(t, "1", c.Rest, "the seal tells what the call answered")
	assert.Nil(t, c.Reply)
	require.Len(t, rec.requests(), 1, "it is sealed, not repeated")
	assert.Equal(t, uint64(1), c.Number)
	assert.Equal(t, 1, d.stat(t, "x"))

	next := count("x") // the session is free again, two numbers further
	proxy.Decide(nil)
	require.NoError(t, d.Do(t.Context(), next))
	require.NoError(t, next.Err)
	assert.Equal(t, c.Session, next.Session)
	assert.Equal(t, uint64(3), next.Number)
}

func TestCallThatNeverReachedTheServerResolvesToErrNeverRan(t *testing.T) {
	t.Parallel()
	d, proxy := faultyDesk(t, withRepeats)
	ctx, cancel := context.WithCancel(t.Context())
	watch(proxy, countScript, func(int, request) netfault.Action {
		cancel()
		return netfault.DropRequest
	})
	c := count("x")
	err := d.Do(ctx, c)
	if err == nil { // the truth was known before its caller looked
		err = c.Err
	}
	require.ErrorIs(t, resolved(t, err), ErrNeverRan)
	assert.Zero(t, d.stat(t, "x"))
}

func TestReplyOfTheSealLostTooIsAskedForAgain(t *testing.T) {
	t.Parallel()
	d, proxy := faultyDesk(t, withRepeats)
	ctx, cancel := context.WithCancel(t.Context())
	seals := 0
	proxy.Decide(func(cmd []string) netfault.Action {
		if _, ok := asks(cmd, countScript); ok {
			cancel()
			return netfault.DropReply
		}
		if r, ok := asks(cmd, sealScript); ok {
			assert.Equal(t, "2", r.number)
			if seals++; seals < 4 {
				return netfault.DropReply
			}
		}
		return netfault.Pass
	})
	c := count("x")
	require.NoError(t, truthOf(t, d.Do(ctx, c), c))
	assert.Equal(t, "1", c.Rest)
	assert.Equal(t, 4, seals)
}

func TestNothingIsSentForACallThatComesTooLate(t *testing.T) {
	t.Parallel()
	d, proxy := faultyDesk(t, nil)
	rec := watch(proxy, countScript, func(int, request) netfault.Action { return netfault.Pass })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 { // either way of noticing is right, and both tell the truth
		c := count("x")
		err := d.Do(ctx, c)
		if err == nil {
			err = c.Err
		}
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, resolved(t, err), ErrNeverRan)
	}
	assert.Empty(t, rec.requests())
	assert.Zero(t, d.Waiting())
}

// The request lies in a socket, the caller leaves, the outcome is fixed, and then the request arrives.
func TestRequestThatArrivesAfterItsSealNeverRuns(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, nil)
	proxy := redistest.Proxy(t, server.Addr())
	direct := redis.NewClient(&redis.Options{Addr: server.Addr()})
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ReadTimeout: 100 * time.Millisecond})
	t.Cleanup(func() { _, _ = direct.Close(), rdb.Close() })
	d := newDesk(t, "held", rdb, direct)
	first := count("x")
	require.NoError(t, d.Do(t.Context(), first))

	ctx, cancel := context.WithCancel(t.Context())
	watch(proxy, countScript, func(int, request) netfault.Action {
		cancel()
		return netfault.Hold
	})
	c := count("x")
	require.ErrorIs(t, truthOf(t, d.Do(ctx, c), c), ErrNeverRan)
	before := scriptsRun(t, direct)
	require.Equal(t, 1, proxy.ReleaseHeld())
	require.Eventually(t, func() bool { return scriptsRun(t, direct) > before }, patience, pollEvery, "it arrives")
	assert.Equal(t, 1, d.stat(t, "x"), "and does nothing")

	proxy.Decide(nil)
	next := count("x")
	require.NoError(t, d.Do(t.Context(), next))
	assert.Equal(t, "2", next.Rest)
	assert.Equal(t, first.Session, next.Session)
	require.NoError(t, d.Close(t.Context()))
}

// scriptsRun is how many EVALSHA a server has run.
func scriptsRun(t *testing.T, rdb *redis.Client) string {
	t.Helper()
	info, err := rdb.Info(context.Background(), "commandstats").Result()
	require.NoError(t, err)
	_, rest, _ := strings.Cut(info, "cmdstat_evalsha:")
	calls, _, _ := strings.Cut(rest, ",")
	return strings.Repeat(" ", 30-len(calls)) + calls // so that texts compare as numbers
}

func TestEndOfTheContextWhileWaitingForTheNextTrySealsAtOnce(t *testing.T) {
	t.Parallel()
	d, proxy := faultyDesk(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	rec := watch(proxy, countScript, func(n int, _ request) netfault.Action {
		if n == 5 {
			time.AfterFunc(5*time.Millisecond, cancel) // the pause behind this try has 32 ms or more
		}
		return netfault.DropReply
	})
	c := count("x")
	require.NoError(t, truthOf(t, d.Do(ctx, c), c))
	assert.Equal(t, "1", c.Rest)
	assert.Equal(t, 1, d.stat(t, "x"))
	assert.Len(t, rec.requests(), 5)
}

func TestRefusalAfterALostTryIsToldOnlyWhenThatTryIsKnown(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, nil)
	proxy := redistest.Proxy(t, server.Addr())
	direct := redis.NewClient(&redis.Options{Addr: server.Addr()})
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	t.Cleanup(func() { _, _ = direct.Close(), rdb.Close() })
	d := newDesk(t, "refused", rdb, direct)
	script, err := loadText(pour)
	require.NoError(t, err)
	require.NoError(t, direct.ScriptLoad(t.Context(), script.Source()).Err())

	for _, ran := range []bool{false, true} {
		require.NoError(t, direct.ConfigSet(t.Context(), "maxmemory", "0").Err())
		watch(proxy, script, func(n int, _ request) netfault.Action {
			switch {
			case n == 1 && ran:
				return netfault.DropReply
			case n == 1:
				return netfault.DropRequest
			}
			assert.NoError(t, direct.ConfigSet(context.Background(), "maxmemory", "1").Err())
			return netfault.Pass
		})
		c := &Call{Op: "pour", Script: script, Args: []any{"x"}}
		require.NoError(t, d.Do(t.Context(), c))
		if ran { // the repeat finds the stored answer, full memory or not
			require.NoError(t, c.Err)
			assert.Equal(t, "1", c.Rest)
			continue
		}
		require.ErrorIs(t, c.Err, ErrOutOfMemory)
		assert.Zero(t, d.stat(t, "x"), "and it stays so, since the call was sealed")
	}
	require.NoError(t, d.Close(t.Context()))
}
