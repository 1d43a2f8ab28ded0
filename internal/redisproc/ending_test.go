package redisproc

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func containsAll(s string, parts ...string) bool {
	for _, part := range parts {
		if !strings.Contains(s, part) {
			return false
		}
	}
	return true
}

// busy has the server run a script without end: it hears no SIGTERM then.
func busy(t *testing.T, s *Server) {
	t.Helper()
	l, err := dial(t.Context(), s.Addr(), "")
	require.NoError(t, err)
	defer l.close()
	require.NoError(t, l.conn.SetDeadline(time.Now().Add(100*time.Millisecond)))
	_, err = l.ask("EVAL", "while true do end", "0")
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

func TestStopEndsTheProcessAndRemovesATemporaryDirectory(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	require.DirExists(t, s.Dir())
	require.NoError(t, s.Stop(t.Context()))
	requireDown(t, s.Addr())
	assert.NoDirExists(t, s.Dir())
	assert.Zero(t, s.Pid())

	require.NoError(t, s.Stop(t.Context()), "a second stop finds nothing to do")
	assert.ErrorIs(t, s.Kill(), ErrStopped)
	assert.ErrorIs(t, s.Terminate(t.Context()), ErrStopped)
	assert.ErrorIs(t, s.Restart(t.Context()), ErrStopped)
	assert.ErrorIs(t, s.Freeze(), ErrStopped)
	assert.ErrorIs(t, s.Thaw(), ErrStopped)
}

func TestStopKeepsADirectoryThatWasGiven(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made", "by", "start")
	s := start(t, &Options{Dir: dir, AppendOnly: true})
	assert.Equal(t, dir, s.Dir())
	require.NoError(t, s.Stop(t.Context()))
	assert.FileExists(t, filepath.Join(dir, logName))
	assert.DirExists(t, filepath.Join(dir, "appendonlydir"))
}

func TestStopEndsServersThatDoNotListen(t *testing.T) {
	t.Parallel()
	frozen := func(t *testing.T, s *Server) {
		if runtime.GOOS == "windows" {
			t.Skip("no SIGSTOP")
		}
		require.NoError(t, s.Freeze())
	}
	killed := func(t *testing.T, s *Server) { require.NoError(t, s.Kill()) }
	for name, make := range map[string]func(*testing.T, *Server){"frozen": frozen, "busy": busy, "killed": killed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, nil)
			make(t, s)
			begun := time.Now()
			require.NoError(t, s.Stop(t.Context()))
			assert.Less(t, time.Since(begun), stopBound+5*time.Second)
			requireDown(t, s.Addr())
		})
	}
}

func TestStopKillsWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	busy(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	begun := time.Now()
	require.NoError(t, s.Stop(ctx))
	assert.Less(t, time.Since(begun), stopBound)
	requireDown(t, s.Addr())
}

func TestTerminateReturnsWithTheContextWhenTheServerDoesNotEnd(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	busy(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.Terminate(ctx), context.DeadlineExceeded)
	require.NoError(t, s.Kill())
	requireDown(t, s.Addr())
}

func TestFrozenServerAnswersNothingUntilThawed(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	if runtime.GOOS == "windows" {
		require.Error(t, s.Freeze())
		require.Error(t, s.Thaw())
		return
	}
	l, err := dial(t.Context(), s.Addr(), "")
	require.NoError(t, err)
	defer l.close()
	require.NoError(t, s.Freeze())

	require.NoError(t, l.conn.SetDeadline(time.Now().Add(100*time.Millisecond)))
	_, err = l.ask("INCR", "n")
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)

	require.NoError(t, s.Thaw())
	require.Eventually(t, func() bool {
		n, err := ask(s, "GET", "n")
		return err == nil && n == "1" // what waited in the socket has run
	}, 10*time.Second, 5*time.Millisecond)
	require.NoError(t, s.Thaw(), "a server that runs goes on")
}

func TestFreezeAndThawNeedARunningServer(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	require.NoError(t, s.Kill())
	assert.ErrorIs(t, s.Freeze(), ErrNotRunning)
	assert.ErrorIs(t, s.Thaw(), ErrNotRunning)
	assert.NoError(t, s.Terminate(t.Context()))
}
