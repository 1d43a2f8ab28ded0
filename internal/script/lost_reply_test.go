package script

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
)

func TestReplyDroppedAfterTheScriptRanIsAskedForUnderTheSameNumber(t *testing.T) {
	t.Parallel()
	d, proxy := faultyDesk(t, withRepeats)
	rec := watch(proxy, countScript, func(n int, _ request) netfault.Action {
		if n <= 3 {
			return netfault.DropReply
		}
		return netfault.Pass
	})
	c := count("x")
	require.NoError(t, d.Do(t.Context(), c))
	require.NoError(t, c.Err)
	assert.Equal(t, "1", c.Rest, "the first answer, also for a repeat")
	assert.Nil(t, c.Reply, "of which only what was stored is known")
	assert.Equal(t, 1, d.stat(t, "x"))

	seen := rec.requests()
	require.Len(t, seen, 4)
	for _, r := range seen {
		assert.Equal(t, request{session: c.Session, number: strconv.FormatUint(c.Number, 10), args: "x "}, r)
	}
	next := count("x")
	require.NoError(t, d.Do(t.Context(), next))
	assert.Equal(t, "2", next.Rest)
	assert.Equal(t, c.Session, next.Session, "the session is used again")
	assert.Equal(t, c.Number+1, next.Number)
	require.Len(t, next.Reply, 2)
}

func TestRequestLostBeforeTheScriptRanIsRepeatedAndRunsOnce(t *testing.T) {
	t.Parallel()
	d, proxy := faultyDesk(t, withRepeats)
	rec := watch(proxy, countScript, func(n int, _ request) netfault.Action {
		if n <= 2 {
			return netfault.DropRequest
		}
		return netfault.Pass
	})
	c := count("x")
	require.NoError(t, d.Do(t.Context(), c))
	require.NoError(t, c.Err)
	assert.Len(t, rec.requests(), 3)
	assert.Equal(t, 1, d.stat(t, "x"))
}

// The client marks all commands of a broken pipeline as failed, also those whose replies it had read.
func TestACallOfABrokenPipelineThatRanKeepsItsFirstAnswer(t *testing.T) {
	t.Parallel()
	d, proxy := faultyDesk(t, withRepeats)
	rec := watch(proxy, countScript, func(n int, r request) netfault.Action {
		if n == 2 {
			return netfault.DropReply
		}
		return netfault.Pass
	})
	calls := []*Call{count("x"), count("x")}
	require.NoError(t, d.Do(t.Context(), calls...))
	assert.NotEqual(t, calls[0].Session, calls[1].Session, "two calls of one pipeline borrow two sessions")
	assert.ElementsMatch(t, []string{"1", "2"}, []string{calls[0].Rest, calls[1].Rest})
	assert.Equal(t, 2, d.stat(t, "x"))

	seen := rec.requests()
	require.Greater(t, len(seen), 2, "the one without an answer was asked again")
	for _, r := range seen[2:] {
		assert.Contains(t, seen[:2], r, "byte for byte the same")
	}
}

func TestLostReplyOfAnOpeningCostsOneUnusedSession(t *testing.T) {
	t.Parallel()
	d, proxy := faultyDesk(t, withRepeats)
	var opened atomic.Int64 // on a busy machine more than two: one that is not answered for a second is asked again
	proxy.Decide(func(cmd []string) netfault.Action {
		if cmd[0] == "evalsha" && cmd[1] == openScript.SHA() && opened.Add(1) == 1 {
			return netfault.DropReply
		}
		return netfault.Pass
	})
	c := count("x")
	require.NoError(t, d.Do(t.Context(), c))
	require.NoError(t, c.Err)
	assert.Equal(t, uint64(1), c.Number)
	sessions := d.direct.HGetAll(t.Context(), d.key("sessions")).Val()
	assert.GreaterOrEqual(t, len(sessions), 2)
	assert.LessOrEqual(t, int64(len(sessions)), opened.Load(), "each opening makes one")
	assert.Contains(t, sessions, c.Session)
	for _, holder := range d.direct.HGetAll(t.Context(), d.key("holders")).Val() {
		assert.Equal(t, "test/1", holder)
	}
}

// A storm: a quarter of all requests and replies is lost, connections with them, and the client repeats by itself.
func TestEveryCallOfAStormRunsExactlyOnce(t *testing.T) {
	t.Parallel()
	d, proxy := faultyDesk(t, func(o *redis.Options) { o.MaxRetries = 3; o.PoolSize = 8 })
	lost := 0
	proxy.Decide(func(cmd []string) netfault.Action {
		if cmd[0] != "evalsha" {
			return netfault.Pass
		}
		switch rand.N(8) {
		case 0:
			lost++
			return netfault.DropReply
		case 1:
			return netfault.DropRequest
		}
		return netfault.Pass
	})
	const callers, each = 6, 30
	var all sync.WaitGroup
	var mu sync.Mutex
	answers := map[string]bool{}
	for range callers {
		all.Go(func() {
			for range each {
				calls := []*Call{count("x")}
				if rand.N(2) == 0 {
					calls = append(calls, count("x"))
				}
				if !assert.NoError(t, d.Do(context.Background(), calls...)) {
					return
				}
				mu.Lock()
				for _, c := range calls {
					assert.NoError(t, c.Err)
					assert.False(t, answers[c.Rest], "%s was answered twice", c.Rest)
					answers[c.Rest] = true
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	proxy.Decide(nil)
	assert.Equal(t, len(answers), d.stat(t, "x"), "one number a call, and none that nobody was told")
	assert.Greater(t, lost, 20)
}
