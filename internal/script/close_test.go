package script

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redistest"
)

func TestCloseForgetsItsSessionsAndNoOthers(t *testing.T) {
	t.Parallel()
	d := plainDesk(t)
	ctx := t.Context()
	other := newDesk(t, d.keys.Queue(), d.rdb, d.rdb)
	for _, one := range []*desk{d, other} {
		calls := []*Call{count("x"), count("x"), grab(1)}
		require.NoError(t, one.Do(ctx, calls...))
	}
	require.Len(t, d.direct.HGetAll(ctx, d.key("sessions")).Val(), 6)
	require.Len(t, d.direct.HGetAll(ctx, d.key("holders")).Val(), 6)

	require.NoError(t, other.Close(ctx))
	assert.Len(t, d.direct.HGetAll(ctx, d.key("sessions")).Val(), 3)
	assert.Len(t, d.direct.HGetAll(ctx, d.key("holders")).Val(), 3)
	require.NoError(t, other.Close(ctx), "closing again does nothing")
	require.ErrorIs(t, other.Do(ctx, count("x")), ErrClosed)

	c := count("x")
	require.NoError(t, d.Do(ctx, c))
	require.NoError(t, c.Err)
	assert.Equal(t, "5", c.Rest)
}

func TestCloseOfAProcessThatDidNothingAsksNothing(t *testing.T) {
	t.Parallel()
	d, proxy := faultyDesk(t, nil)
	proxy.Cut()
	require.NoError(t, d.Close(t.Context()))
	assert.Zero(t, proxy.Commands())
}

func TestCloseForgetsMoreThanAThousandSessions(t *testing.T) {
	t.Parallel()
	d := plainDesk(t)
	ctx := t.Context()
	for range 3 {
		calls := make([]*Call, 701)
		for i := range calls {
			calls[i] = count("x")
		}
		require.NoError(t, d.Do(ctx, calls...))
	}
	other := newDesk(t, d.keys.Queue(), d.rdb, d.rdb)
	calls := make([]*Call, 1203)
	for i := range calls {
		calls[i] = count("x")
	}
	require.NoError(t, other.Do(ctx, calls...))
	require.EqualValues(t, 1904, d.direct.HLen(ctx, d.key("sessions")).Val(), "sessions are used again")
	require.NoError(t, other.Close(ctx))
	assert.EqualValues(t, 701, d.direct.HLen(ctx, d.key("sessions")).Val())
}

func TestCloseWaitsForCallsUnderWayAndSealed(t *testing.T) {
	t.Parallel()
	d, proxy := faultyDesk(t, endless)
	watch(proxy, countScript, func(n int, _ request) netfault.Action { return netfault.Hold })
	ctx, cancel := context.WithCancel(t.Context())
	left, stays := count("left"), count("stays")
	gone := make(chan error, 1)
	go func() { gone <- d.Do(ctx, left) }()
	require.Eventually(t, func() bool { return proxy.Held() == 1 }, patience, pollEvery)
	cancel()
	err := next(t, gone)
	done := make(chan error, 1)
	go func() { done <- d.Do(context.Background(), stays) }()
	require.Eventually(t, func() bool { return proxy.Held() == 2 }, patience, pollEvery)

	closed := make(chan error, 1)
	go func() { closed <- d.Close(context.Background()) }()
	require.Eventually(t, func() bool { return d.Do(context.Background()) == ErrClosed }, patience, pollEvery, "nothing new is taken")
	proxy.Decide(nil)
	require.Empty(t, closed)
	proxy.ReleaseHeld()
	require.NoError(t, next(t, done))
	require.NoError(t, stays.Err)
	require.NoError(t, resolved(t, err))
	require.NoError(t, next(t, closed))
	assert.Zero(t, d.direct.Exists(t.Context(), d.key("sessions"), d.key("holders")).Val())
}

func TestCloseThatMayNotWaitSaysThatTheRestIsNeverKnown(t *testing.T) {
	t.Parallel()
	queue := redistest.Queue(t)
	proxy := redistest.Proxy(t, redistest.Addr(t))
	rdb := through(t, proxy, func(o *redis.Options) { o.ReadTimeout, o.MaxRetries = 50*time.Millisecond, 3 })
	d := newDesk(t, queue, rdb, redistest.Client(t))
	require.NoError(t, d.Do(t.Context(), count("x"), count("x"), grab(1)))
	proxy.BlackHole(true)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	left := d.Do(ctx, count("x"))
	late := grab(3)
	claim := d.Do(ctx, late)
	stays := count("x")
	done := make(chan error, 1)
	go func() { done <- d.Do(context.Background(), stays) }()
	require.Eventually(t, func() bool { return d.Waiting() > 0 }, patience, pollEvery)

	short, end := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer end()
	require.ErrorIs(t, d.Close(short), context.DeadlineExceeded)
	assert.ErrorIs(t, resolved(t, left), ErrNeverKnown)
	assert.Error(t, truthOf(t, claim, late), "never ran, if it had not been sent yet")
	require.NoError(t, next(t, done))
	var unknown *UnknownError
	require.ErrorAs(t, stays.Err, &unknown, "its caller is still there, and must not take it for a refusal")
	assert.ErrorIs(t, stays.Err, ErrNeverKnown)
	proxy.BlackHole(false)
}
