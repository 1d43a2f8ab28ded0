//go:build unix

package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
)

// A child is the program as a process.
type child struct {
	cmd      *exec.Cmd
	out, err pad
	ended    chan struct{}
}

// spawn starts the program with LEASEQ_REDIS, and no other of our variables, in its environment.
func spawn(t *testing.T, url string, args ...string) *child {
	t.Helper()
	return spawnWith(t, []string{"LEASEQ_REDIS=" + url}, args...)
}

// spawnWith starts the program with some variables, and no other of ours, in its environment.
func spawnWith(t *testing.T, env []string, args ...string) *child {
	t.Helper()
	path, err := build()
	require.NoError(t, err)
	c := &child{cmd: exec.Command(path, args...), ended: make(chan struct{})}
	c.cmd.Env = append(slices.DeleteFunc(os.Environ(), func(pair string) bool { return strings.HasPrefix(pair, "LEASEQ_") }), env...)
	c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.err
	require.NoError(t, c.cmd.Start())
	go func() {
		defer close(c.ended)
		_ = c.cmd.Wait() // its state tells
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill() // that of a process which has ended is refused
		<-c.ended
	})
	return c
}

func (c *child) exitCode(t *testing.T) int {
	t.Helper()
	select {
	case <-c.ended:
		return c.cmd.ProcessState.ExitCode()
	case <-time.After(within):
		t.Fatalf("the process does not end; it said:\n%s", &c.err)
		return -1
	}
}

func TestTheSidecarAsAProcessRedeliversAnAbandonedJobAndEndsCleanlyAtSIGTERM(t *testing.T) {
	t.Parallel()
	rdb, prefix := redistest.Client(t), newPrefix()
	store := newStore(t, rdb, prefix, redistest.Queue(t), 2*time.Second) // nobody extends the second lease: it must outlast the test
	c := spawn(t, serverURL(t), "run", "--prefix", prefix)
	c.err.await(t, "sweeping begins", store.Queue())

	enqueue(t, store, "close:10086")
	first := claim(t, store, 1)[0]
	awaitClaimable(t, store, 1)
	assert.False(t, time.Now().Before(first.Deadline), "not before the lease ran out")
	second := claim(t, store, 1)[0]
	assert.Equal(t, first.ID, second.ID)
	assert.Equal(t, 2, second.Attempt())
	assert.Greater(t, second.Fence, first.Fence)
	answers, err := store.Settle(t.Context(), []lease.Verdict{{Op: lease.Ack, ID: first.ID, Token: first.Token}})
	require.NoError(t, err)
	require.ErrorIs(t, answers[0].Err, lease.ErrLost, "the one that was taken for dead")
	settle(t, store, lease.Ack, &second)

	require.NoError(t, c.cmd.Process.Signal(syscall.SIGTERM))
	assert.Equal(t, exitOK, c.exitCode(t), &c.err)
	assert.True(t, c.err.has("reaper has ended"))
	assert.True(t, c.err.has("asked to end", "terminated"))
	assert.Empty(t, c.out.String())
}

func TestASecondSignalEndsTheProcessAtOnceWhileRedisIsSilent(t *testing.T) {
	t.Parallel()
	prefix := newPrefix()
	store := newStore(t, redistest.Client(t), prefix, redistest.Queue(t), time.Minute)
	proxy := redistest.Proxy(t, redistest.Addr(t))
	held := make(chan struct{}, 100)
	proxy.Decide(func(cmd []string) netfault.Action {
		if len(cmd) > 0 && strings.EqualFold(cmd[0], "evalsha") {
			held <- struct{}{}
			return netfault.Hold
		}
		return netfault.Pass
	})
	c := spawn(t, "redis://"+proxy.Addr()+"?read_timeout=1h", "run", "--prefix", prefix, store.Queue())
	select {
	case <-held:
	case <-time.After(within):
		t.Fatal("no sweep came")
	}
	require.NoError(t, c.cmd.Process.Signal(os.Interrupt))
	c.err.await(t, "asked to end", "interrupt")
	select {
	case <-c.ended:
		t.Fatal("it waits for the call under way")
	default:
	}
	require.NoError(t, c.cmd.Process.Signal(syscall.SIGTERM))
	assert.Equal(t, 143, c.exitCode(t))
}

func TestTheProgramExitsWithTwoForWrongUsage(t *testing.T) {
	t.Parallel()
	c := spawn(t, "redis://127.0.0.1:6379", "run", "--batch", "5000")
	assert.Equal(t, exitUsage, c.exitCode(t))
	assert.Contains(t, c.err.String(), "want 1 to 1000")
}
