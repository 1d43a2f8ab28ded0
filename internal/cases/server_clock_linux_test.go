package cases

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redisproc"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/internal/servershim"
)

// A serverClock is the wall clock of a redis-server of the test's own, which is an unchanged program with a shim.
type serverClock struct {
	shim *servershim.Shim
	rdb  *redis.Client
	off  time.Duration
}

// clockedServer starts a redis-server whose wall clock can be stepped, and shows the true time at first.
func clockedServer(t testing.TB) (*redisproc.Server, *serverClock) {
	t.Helper()
	shim, err := servershim.Build("")
	if errors.Is(err, servershim.ErrUnavailable) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, shim.Close()) })
	c := &serverClock{shim: shim}
	server := redistest.Server(t, &redisproc.Options{Env: shim.Env()})
	c.rdb = redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = c.rdb.Close() })
	return server, c
}

// step moves the clock from what it shows, and sees to it that scripts see that too.
func (c *serverClock) step(t testing.TB, by time.Duration) {
	t.Helper()
	c.off += by
	require.NoError(t, c.shim.Shift(c.off))
	for _, script := range []bool{false, true} {
		shown := c.shown(t, script)
		require.InDelta(t, c.off, time.Until(shown), float64(time.Second), "what the server's clock is off by; in a script: %v", script)
	}
}

// shown is the server's clock, as TIME answers it, in a script or not.
func (c *serverClock) shown(t testing.TB, script bool) time.Time {
	t.Helper()
	if !script {
		now, err := c.rdb.Time(t.Context()).Result()
		require.NoError(t, err)
		return now
	}
	now, err := c.rdb.Eval(t.Context(), "local t = redis.call('TIME') return t[1] * 1000 + math.floor(t[2] / 1000)", nil).Int64()
	require.NoError(t, err)
	return time.UnixMilli(now)
}
