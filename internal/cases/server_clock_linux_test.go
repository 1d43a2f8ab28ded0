package cases

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redisproc"
	"github.com/leaseq/leaseq/internal/redistest"
)

// A serverClock is the wall clock of a redis-server of the test's own, which is an unchanged program with
// testdata/wallclock.c preloaded.
type serverClock struct {
	file *os.File
	rdb  *redis.Client
	off  time.Duration
}

// clockedServer starts a redis-server whose wall clock can be stepped, and shows the true time at first.
func clockedServer(t testing.TB) (*redisproc.Server, *serverClock) {
	t.Helper()
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("needs cc, to make a redis-server whose clock can be stepped")
	}
	dir := t.TempDir()
	library, path := filepath.Join(dir, "wallclock.so"), filepath.Join(dir, "clock")
	out, err := exec.Command(compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, filepath.Join("testdata", "wallclock.c")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.WriteFile(path, make([]byte, 8), 0o600))
	c := &serverClock{}
	c.file, err = os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.file.Close() })
	server := redistest.Server(t, &redisproc.Options{Env: []string{"LD_PRELOAD=" + library, "LEASEQ_CLOCK=" + path}})
	c.rdb = redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = c.rdb.Close() })
	return server, c
}

// step moves the clock from what it shows, and sees to it that scripts see that too.
func (c *serverClock) step(t testing.TB, by time.Duration) {
	t.Helper()
	c.off += by
	var offset [8]byte
	binary.NativeEndian.PutUint64(offset[:], uint64(c.off.Microseconds()))
	_, err := c.file.WriteAt(offset[:], 0)
	require.NoError(t, err)
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
