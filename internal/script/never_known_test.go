package script

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
)

func TestLostSessionIsReplacedOnTheFirstTry(t *testing.T) {
	t.Parallel()
	d := plainDesk(t)
	ctx := t.Context()
	first := count("x")
	require.NoError(t, d.Do(ctx, first))
	require.NoError(t, d.direct.Del(ctx, d.key("sessions"), d.key("holders")).Err())
	again := []*Call{count("x"), grab(2)}
	require.NoError(t, d.Do(ctx, again...))
	require.NoError(t, again[0].Err)
	require.NoError(t, again[1].Err)
	assert.NotEqual(t, first.Session, again[0].Session)
	assert.Equal(t, "2", again[0].Rest)
	assert.Equal(t, 2, d.stat(t, "grabbed"))
}

func TestSessionLostBetweenTwoTriesLeavesTheOutcomeUnknownForEver(t *testing.T) {
	t.Parallel()
	for _, action := range []netfault.Action{netfault.DropReply, netfault.DropRequest} {
		t.Run(action.String(), func(t *testing.T) {
			t.Parallel()
			d, proxy := faultyDesk(t, withRepeats)
			watch(proxy, countScript, func(n int, _ request) netfault.Action {
				if n == 1 {
					return action
				}
				if n == 2 {
					assert.NoError(t, d.direct.Del(context.Background(), d.key("sessions"), d.key("holders")).Err())
				}
				return netfault.Pass
			})
			c := count("x")
			require.NoError(t, d.Do(t.Context(), c))
			var unknown *UnknownError
			require.ErrorAs(t, c.Err, &unknown, "it may have run: nobody may take this for a refusal")
			require.ErrorIs(t, c.Err, ErrNeverKnown)
			require.ErrorIs(t, resolved(t, c.Err), ErrNeverKnown)

			proxy.Decide(nil)
			next := count("x")
			require.NoError(t, d.Do(t.Context(), next))
			require.NoError(t, next.Err, "the next call has a session of its own")
		})
	}
}

func TestSessionLostBeforeTheSealCanNeverBeKnown(t *testing.T) {
	t.Parallel()
	d, proxy := faultyDesk(t, withRepeats)
	ctx, cancel := context.WithCancel(t.Context())
	watch(proxy, countScript, func(int, request) netfault.Action {
		assert.NoError(t, d.direct.Del(context.Background(), d.key("sessions"), d.key("holders")).Err())
		cancel()
		return netfault.DropRequest
	})
	err := d.Do(ctx, count("x"))
	require.ErrorIs(t, resolved(t, err), ErrNeverKnown)
	assert.Zero(t, d.Waiting())
}

func TestSmallerNumberDoesNothing(t *testing.T) {
	t.Parallel()
	d := plainDesk(t)
	ctx := t.Context()
	c := count("x")
	require.NoError(t, d.Do(ctx, c))
	raise := fmt.Sprintf("%d %d later", c.Number+5, time.Now().UnixMilli())
	require.NoError(t, d.direct.HSet(ctx, d.key("sessions"), c.Session, raise).Err())
	for number := uint64(1); number < c.Number+5; number++ {
		req := &Request{Script: countScript, Args: []any{c.Session, number, "x"}}
		d.runner.Send(ctx, req)
		require.NoError(t, req.Err)
		assert.Equal(t, []any{"STALE"}, req.Reply)
		seal := &Request{Script: sealScript, Args: []any{c.Session, number}}
		d.runner.Send(ctx, seal)
		assert.Equal(t, []any{"STALE"}, seal.Reply)
	}
	assert.Equal(t, 1, d.stat(t, "x"))
	assert.Equal(t, raise, d.direct.HGet(ctx, d.key("sessions"), c.Session).Val())

	late := count("x") // numbers that others used: nothing can be said about this one
	require.NoError(t, d.Do(ctx, late))
	require.ErrorIs(t, late.Err, ErrNeverKnown)
	assert.Equal(t, 1, d.stat(t, "x"))
}

func TestRecordsOfAnyShapeAreAnswered(t *testing.T) {
	t.Parallel()
	d := plainDesk(t)
	ctx := t.Context()
	for record, want := range map[string]string{
		"": "NOSESSION", "nonsense": "NOSESSION", "1": "NOSESSION", "-1 5 x": "NOSESSION",
		"3 5": "AGAIN", "3 5 ": "AGAIN", "3 5 one\ntwo  three ": "AGAIN", "2 5 x": "OK", "4 5 x": "STALE",
	} {
		require.NoError(t, d.direct.HSet(ctx, d.key("sessions"), "s", record).Err())
		req := &Request{Script: countScript, Args: []any{"s", 3, "x"}}
		d.runner.Send(ctx, req)
		require.NoError(t, req.Err)
		assert.Equal(t, want, req.Status(), record)
		if record == "3 5 one\ntwo  three " {
			assert.Equal(t, []any{"AGAIN", "one\ntwo  three "}, req.Reply, "the rest is kept exactly")
		}
	}
	require.NoError(t, d.direct.HDel(ctx, d.key("sessions"), "s").Err())
}

func TestCallsBeyondTheLimitOfWaitingOnesAreAbandoned(t *testing.T) {
	t.Parallel()
	const more = 44
	d, proxy := faultyDesk(t, func(o *redis.Options) { o.PoolSize = MaxWaiting + more })
	var tried atomic.Int64
	sessions := map[string]bool{}
	proxy.Decide(func(cmd []string) netfault.Action {
		if r, ok := asks(cmd, countScript); ok {
			sessions[r.session] = true
			tried.Store(int64(len(sessions)))
			return netfault.DropRequest
		}
		if _, ok := asks(cmd, sealScript); ok {
			return netfault.DropRequest
		}
		return netfault.Pass
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var callers sync.WaitGroup
	errs := make([]error, MaxWaiting+more)
	for i := range errs {
		callers.Go(func() { errs[i] = d.Do(ctx, count("x")) })
	}
	require.Eventually(t, func() bool { return tried.Load() == int64(len(errs)) }, patience, pollEvery)
	cancel()
	callers.Wait()
	truths := make(chan error, len(errs))
	for _, err := range errs {
		go func() { truths <- err.(*UnknownError).Resolve(context.Background()) }()
	}
	for range more {
		require.ErrorIs(t, next(t, truths), ErrNeverKnown, "too many wait already")
	}
	assert.Equal(t, MaxWaiting, d.Waiting())
	proxy.Decide(nil)
	for range MaxWaiting {
		require.ErrorIs(t, next(t, truths), ErrNeverRan)
	}
	assert.LessOrEqual(t, d.stat(t, "x"), more, "only those of which it can never be known may have run")
	assert.Zero(t, d.Waiting())

	c := count("x")
	require.NoError(t, d.Do(t.Context(), c))
	require.NoError(t, c.Err)
}
