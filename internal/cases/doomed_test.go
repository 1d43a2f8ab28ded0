package cases

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// doomed runs a worker process that is about to end by itself, and returns its exit code and its standard error, which
// a report of Go's runtime fills: startChild would show that as the test's own.
func (s *crashSite) doomed(t testing.TB) (code int, stderr string) {
	t.Helper()
	config, err := json.Marshal(s.crashConfig)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"=crash-worker", configVariable+"="+string(config),
		"GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	in, open, err := os.Pipe() // a child ends with its standard input
	require.NoError(t, err)
	defer in.Close()
	defer open.Close()
	cmd.Stdin = in
	var report strings.Builder
	cmd.Stderr = &report
	err = cmd.Run()
	var exit *exec.ExitError
	require.True(t, errors.As(err, &exit) && ctx.Err() == nil, "it was to end by itself: %v", err)
	return exit.ExitCode(), report.String()
}
