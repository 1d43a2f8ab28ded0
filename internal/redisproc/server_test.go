package redisproc

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestStartedServerIsTheProcessThatAnswers(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	l, err := dial(t.Context(), s.Addr(), "")
	require.NoError(t, err)
	defer l.close()
	pid, err := l.pid()
	require.NoError(t, err)
	assert.Equal(t, s.Pid(), pid)
	host, port, err := net.SplitHostPort(s.Addr())
	require.NoError(t, err)
	assert.Equal(t, "127.0.0.1", host)
	n, err := strconv.Atoi(port)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, n, firstPort)
	assert.LessOrEqual(t, n, lastPort)
	assert.FileExists(t, filepath.Join(s.Dir(), logName))
}

func TestArgsReachTheServer(t *testing.T) {
	t.Parallel()
	s := start(t, &Options{Args: []string{"--maxmemory", "20mb", "--cluster-enabled", "yes", "--requirepass", "open sesame"}})
	assert.Contains(t, mustAsk(t, s, "INFO", "memory"), "maxmemory:20971520\r\n")
	assert.Contains(t, mustAsk(t, s, "INFO", "cluster"), "cluster_enabled:1")
}

func TestPathAndEnvironmentReachTheServer(t *testing.T) {
	t.Parallel()
	needRedis(t)
	if runtime.GOOS == "windows" {
		t.Skip("needs a shell")
	}
	path := filepath.Join(t.TempDir(), "wrapper")
	syscall.ForkLock.RLock() // a process started meanwhile would have the file open for writing, and then it cannot be run
	err := os.WriteFile(path, []byte("#!/bin/sh\nexec redis-server \"$@\" --maxmemory \"$REDISPROC_TEST_MEMORY\"\n"), 0o700)
	syscall.ForkLock.RUnlock()
	require.NoError(t, err)
	s := start(t, &Options{Path: path, Env: []string{"REDISPROC_TEST_MEMORY=30mb"}})
	assert.Contains(t, mustAsk(t, s, "INFO", "memory"), "maxmemory:31457280\r\n")
}

func TestServersStartedTogetherDoNotMeet(t *testing.T) {
	t.Parallel()
	needRedis(t)
	servers := make([]*Server, 6)
	errs := make([]error, len(servers))
	var wg sync.WaitGroup
	for i := range servers {
		wg.Go(func() { servers[i], errs[i] = Start(context.Background(), nil) })
	}
	wg.Wait()
	seen := map[string]bool{}
	for i, s := range servers {
		require.NoError(t, errs[i])
		assert.False(t, seen[s.Addr()], "two servers on %s", s.Addr())
		seen[s.Addr()] = true
	}
	for _, s := range servers {
		assert.NoError(t, s.Stop(context.Background()))
	}
}

func TestSomebodyElseOnThePortIsNotTakenForTheServer(t *testing.T) {
	t.Parallel()
	other := start(t, nil)
	options, err := (&Options{Dir: t.TempDir()}).settled()
	require.NoError(t, err)
	s := &Server{options: options, port: other.port}
	require.Error(t, s.run(t.Context()))
	assert.Zero(t, s.Pid())
	assert.Equal(t, "PONG", mustAsk(t, other, "PING"))
}

func TestRestartAfterKillLoadsTheAppendOnlyFile(t *testing.T) {
	t.Parallel()
	s := start(t, &Options{AppendOnly: true, AppendFsync: "always"})
	addr, dir, first := s.Addr(), s.Dir(), s.Pid()
	mustAsk(t, s, "SET", "k", "kept")

	require.NoError(t, s.Kill())
	assert.Zero(t, s.Pid())
	_, err := ask(s, "PING")
	require.Error(t, err)
	require.NoError(t, s.Kill(), "a second kill finds nothing to do")

	require.NoError(t, s.Restart(t.Context()))
	assert.Equal(t, "kept", mustAsk(t, s, "GET", "k"))
	assert.Equal(t, addr, s.Addr())
	assert.Equal(t, dir, s.Dir())
	assert.NotEqual(t, first, s.Pid())
	assert.NotZero(t, s.Pid())

	require.NoError(t, s.Terminate(t.Context()))
	require.NoError(t, s.Restart(t.Context()))
	assert.Equal(t, "kept", mustAsk(t, s, "GET", "k"))
}

func TestRestartWithoutAppendOnlyForgets(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	mustAsk(t, s, "SET", "k", "gone")
	require.NoError(t, s.Terminate(t.Context()))
	require.NoError(t, s.Restart(t.Context()))
	_, err := ask(s, "GET", "k")
	require.ErrorContains(t, err, "$-1")
}

func TestRestartWaitsUntilTheDataIsLoaded(t *testing.T) {
	t.Parallel()
	s := start(t, &Options{AppendOnly: true, Args: []string{"--aof-use-rdb-preamble", "no", "--enable-debug-command", "yes"}})
	mustAsk(t, s, "DEBUG", "POPULATE", "200000")
	mustAsk(t, s, "BGREWRITEAOF")
	require.Eventually(t, func() bool {
		info, err := ask(s, "INFO", "persistence")
		return err == nil && containsAll(info, "aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0")
	}, 20*time.Second, 10*time.Millisecond)
	require.NoError(t, s.Kill())
	require.NoError(t, s.Restart(t.Context()))
	assert.Equal(t, "value:199999", mustAsk(t, s, "GET", "key:199999"), "the first answer after Restart is not LOADING")
}

func TestRestartRefusesARunningServer(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	require.ErrorContains(t, s.Restart(t.Context()), "still runs")
	assert.Equal(t, "PONG", mustAsk(t, s, "PING"))
}

func TestRestartGivesUpWithTheContextWhileThePortIsTaken(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	require.NoError(t, s.Kill())
	taker, err := net.Listen("tcp", s.Addr())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, s.Restart(ctx), "no restart on "+s.Addr())
	assert.Zero(t, s.Pid())
	require.NoError(t, taker.Close())
	require.NoError(t, s.Restart(t.Context()))
	assert.Equal(t, "PONG", mustAsk(t, s, "PING"))
}

func TestServerOutlivesTheThreadsOfItsParent(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	pid := s.Pid()
	for range 50 {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		}()
		<-ended
	}
	assert.Equal(t, "PONG", mustAsk(t, s, "PING"))
	assert.Equal(t, pid, s.Pid())
}
