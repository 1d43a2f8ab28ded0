//go:build unix

package demo

import (
	"bufio"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A demonstration that is killed cannot end its workers, one of which stands still.
func TestWorkersEndWhenTheDemoIsKilled(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0], "demo", "--miniredis")
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	pids := map[string]bool{}
	text := bufio.NewScanner(stdout)
	frozen := ""
	for (frozen == "" || len(pids) <= workers) && text.Scan() { // on a busy machine the fourth one comes late
		for _, found := range regexp.MustCompile(`[A-Z] \(pid (\d+)\)`).FindAllStringSubmatch(text.Text(), -1) {
			pids[found[1]] = true
			if strings.Contains(text.Text(), "SIGSTOP") {
				frozen = found[1]
			}
		}
	}
	require.Len(t, pids, workers+1)
	require.True(t, lives(frozen))
	require.NoError(t, cmd.Process.Kill())
	for pid := range pids {
		require.Eventually(t, func() bool { return !lives(pid) }, 15*time.Second, 20*time.Millisecond, "worker %s is left", pid)
	}
}

// lives says whether a process is there, and not only waiting for its parent's wait.
func lives(pid string) bool {
	state, err := exec.Command("ps", "-o", "state=", "-p", pid).Output()
	return err == nil && !strings.HasPrefix(strings.TrimSpace(string(state)), "Z")
}
