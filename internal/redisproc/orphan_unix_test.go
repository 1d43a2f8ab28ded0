//go:build unix

package redisproc

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// parent starts the test binary in a role and returns the line that it prints.
func parent(t *testing.T, role string) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), parentRole+"="+role, parentRole+"_DIR="+t.TempDir())
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	row, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.NotContains(t, row, "error:")
	return cmd, strings.TrimSpace(row)
}

func TestServerDiesWithAParentThatIsKilled(t *testing.T) {
	t.Parallel()
	needRedis(t)
	cmd, addr := parent(t, "server")
	require.NoError(t, cmd.Process.Kill())
	requireDown(t, addr)
}

// playWatcher starts a process that would last for a minute, sets the watchdog on it and prints its ID.
func playWatcher() error {
	sleeper := exec.Command("sleep", "60")
	if err := sleeper.Start(); err != nil {
		return err
	}
	if _, err := watch(sleeper.Process.Pid); err != nil {
		return err
	}
	fmt.Println(sleeper.Process.Pid)
	return nil
}

func TestWatchdogKillsWhenItsParentIsKilled(t *testing.T) {
	t.Parallel()
	cmd, pid := parent(t, "watcher")
	require.True(t, lives(t, pid))
	require.NoError(t, cmd.Process.Kill())
	require.Eventually(t, func() bool { return !lives(t, pid) }, 10*time.Second, 10*time.Millisecond)
}

func TestWatchdogLeavesAProcessAloneWhenReleased(t *testing.T) {
	t.Parallel()
	sleeper := exec.Command("sleep", "60")
	require.NoError(t, sleeper.Start())
	release, err := watch(sleeper.Process.Pid)
	require.NoError(t, err)
	release()
	assert.True(t, lives(t, fmt.Sprint(sleeper.Process.Pid)))
	require.NoError(t, sleeper.Process.Kill())
	_ = sleeper.Wait()
}

// lives says whether a process is there and not only waiting for its parent's wait.
func lives(t *testing.T, pid string) bool {
	t.Helper()
	state, err := exec.Command("ps", "-o", "state=", "-p", pid).Output()
	if err != nil {
		return false
	}
	return !strings.HasPrefix(strings.TrimSpace(string(state)), "Z")
}
