package script

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
)

const pollEvery = 2 * time.Millisecond

// A recorder notes the requests of one script in the order in which a proxy sees them.
type recorder struct {
	mu   sync.Mutex
	seen []request
}

// watch has a proxy note a script's requests and ask decide what to do with each, n being 1 for the first.
func watch(proxy *netfault.Proxy, s *Script, decide func(n int, r request) netfault.Action) *recorder {
	rec := &recorder{}
	proxy.Decide(func(cmd []string) netfault.Action {
		r, ok := asks(cmd, s)
		if !ok {
			return netfault.Pass
		}
		rec.mu.Lock()
		rec.seen = append(rec.seen, r)
		n := len(rec.seen)
		rec.mu.Unlock()
		return decide(n, r)
	})
	return rec
}

func (rec *recorder) requests() []request {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return append([]request(nil), rec.seen...)
}

func dropFirst(n int, _ request) netfault.Action {
	if n == 1 {
		return netfault.DropReply
	}
	return netfault.Pass
}

// withRepeats is a client that repeats what fails, as go-redis does unless it is told otherwise.
func withRepeats(o *redis.Options) { o.MaxRetries = 3 }

func TestTheClientDoesNotRepeatAScriptByItself(t *testing.T) {
	t.Parallel()
	d, proxy := faultyDesk(t, withRepeats)
	rec := watch(proxy, countScript, dropFirst)
	req := &Request{Script: countScript, Args: []any{"nobody", 1, "x"}}
	d.runner.Send(t.Context(), req)
	assert.Error(t, req.Err)
	assert.Nil(t, req.Reply)
	assert.Len(t, rec.requests(), 1)

	require.NoError(t, d.rdb.Ping(t.Context()).Err())
	rec = watch(proxy, countScript, dropFirst)
	two := []*Request{
		{Script: countScript, Args: []any{"nobody", 1, "x"}}, {Script: countScript, Args: []any{"nobody", 2, "x"}},
	}
	d.runner.Send(t.Context(), two...)
	assert.Error(t, two[0].Err, "nor a pipeline")
	assert.Error(t, two[1].Err)
	assert.LessOrEqual(t, len(rec.requests()), 2)
}

func TestTheClientDoesRepeatWhatIsNotOurs(t *testing.T) {
	t.Parallel()
	d, proxy := faultyDesk(t, withRepeats)
	drops := 0
	proxy.Decide(func(cmd []string) netfault.Action {
		if cmd[0] == "ping" {
			if drops++; drops == 1 {
				return netfault.DropReply
			}
		}
		return netfault.Pass
	})
	require.NoError(t, d.rdb.Ping(t.Context()).Err())
	assert.Equal(t, 2, drops, "the tests here are worth something only if this client repeats")
}

func TestSentAtIsBeforeTheTryThatWasAnswered(t *testing.T) {
	t.Parallel()
	d, proxy := faultyDesk(t, nil)
	var asked time.Time
	watch(proxy, countScript, func(n int, _ request) netfault.Action {
		asked = time.Now()
		return dropFirst(n, request{})
	})
	c := count("x")
	began := time.Now()
	require.NoError(t, d.Do(t.Context(), c))
	require.NoError(t, c.Err)
	assert.True(t, c.SentAt.Before(asked), "before the proxy saw the second try")
	assert.Greater(t, c.SentAt.Sub(began), firstWait/2, "and not before the first")
}

func TestRepeatEndsWithItsContextAndReturnsWhatFailed(t *testing.T) {
	t.Parallel()
	d, proxy := faultyDesk(t, nil)
	rec := watch(proxy, trimScript, func(int, request) netfault.Action { return netfault.DropRequest })
	proxy.Cut()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := d.runner.Repeat(ctx, &Request{Script: trimScript, Args: []any{"0", 1000, 10}})
	require.Error(t, err)
	assert.Empty(t, rec.requests())
	proxy.Restore()
	proxy.Decide(nil)
	_, _, err = d.Trim(t.Context(), "0", time.Hour)
	require.NoError(t, err, "it goes on when the network is back")
	require.ErrorIs(t, d.runner.Repeat(ctx, &Request{Script: trimScript}), context.DeadlineExceeded, "nothing is sent too late")
}
