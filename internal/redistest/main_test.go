package redistest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// roleEnv is the environment variable that turns the test binary into a test process of another kind.
const roleEnv = "REDISTEST_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(run(player(role)))
	}
	Main(m)
}

// A player stands for the tests of a process. It starts the shared server and prints its address.
type player string

func (p player) Run() int {
	b, err := shared.get()
	if err != nil {
		fmt.Println("error:", err)
		return 3
	}
	fmt.Println(b.options.Addr)
	switch p {
	case "leak":
		go func() { select {} }()
	case "fail":
		return 2
	case "crash":
		panic("as a test may")
	}
	return 0
}

// play runs the test binary in a role and returns how it ended, the shared server's address, and what it said.
func play(t *testing.T, role string) (code int, addr, said string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	// A process that crashes leaves its server's directory behind.
	cmd.Env = append(os.Environ(), roleEnv+"="+role, "TMPDIR="+t.TempDir())
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var ended *exec.ExitError
	if err != nil {
		require.ErrorAs(t, err, &ended)
	}
	addr = strings.TrimSpace(out.String())
	require.NotContains(t, addr, "error:")
	return cmd.ProcessState.ExitCode(), addr, errs.String()
}

func TestMainEndsTheSharedServerAndFindsLeaks(t *testing.T) {
	t.Parallel()
	if need(t).kind == kindURL {
		_, addr, _ := play(t, "clean")
		assert.Equal(t, Addr(t), addr, "a server that is not ours goes on")
		require.NoError(t, Client(t).Ping(t.Context()).Err())
		return
	}
	for role, want := range map[string]int{"clean": 0, "leak": 1, "fail": 2, "crash": 2} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			code, addr, said := play(t, role)
			assert.Equal(t, want, code, said)
			assert.Equal(t, role == "leak", strings.Contains(said, "goroutines are left"), said)
			if role == "crash" && need(t).kind == kindDocker {
				return // the container ends later, by itself
			}
			require.Eventually(t, func() bool {
				conn, err := net.DialTimeout("tcp", addr, time.Second)
				if err == nil {
					_ = conn.Close()
				}
				return err != nil
			}, stopBound, 10*time.Millisecond, "the server has ended")
		})
	}
}
