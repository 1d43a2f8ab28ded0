package reaper_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reaper"
)

// Variables of the process whose callback calls runtime.Goexit.
const (
	exitingCallback = "LEASEQ_EXITING_CALLBACK"
	exitingAddr     = "LEASEQ_EXITING_ADDR"
	exitingQueue    = "LEASEQ_EXITING_QUEUE"
)

// sweepWithExitingCallback sweeps one queue, with a callback that calls runtime.Goexit. It would return 0 if the process
// went on.
func sweepWithExitingCallback() int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	o := &reaper.Options{Queues: []string{os.Getenv(exitingQueue)}}
	switch os.Getenv(exitingCallback) {
	case "OnSweep": // of the grace with which a queue's first sweep begins
		o.OnSweep = func(string, lease.Expired) { runtime.Goexit() }
	case "OnError":
		o.OnError = func(string, error) { runtime.Goexit() }
	}
	rdb := redis.NewClient(&redis.Options{Addr: os.Getenv(exitingAddr), MaxRetries: -1})
	r, err := reaper.New(rdb, o)
	if err == nil {
		err = r.Run(ctx)
	}
	fmt.Fprintln(os.Stderr, "Run has returned:", err)
	return 0
}

func TestACallbackThatCallsGoexitEndsTheProcessAndIsNamed(t *testing.T) {
	t.Parallel()
	redistest.NeedServer(t)
	for callback, addr := range map[string]string{"OnSweep": redistest.Addr(t), "OnError": "127.0.0.1:1"} {
		t.Run(callback, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
			defer cancel()
			cmd := exec.CommandContext(ctx, os.Args[0])
			cmd.Env = append(os.Environ(), exitingCallback+"="+callback, exitingAddr+"="+addr, exitingQueue+"="+redistest.Queue(t))
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			require.Error(t, cmd.Run(), out.String())
			require.Equal(t, 2, cmd.ProcessState.ExitCode(), out.String())
			require.Contains(t, out.String(), callback+" has called runtime.Goexit")
			require.NotContains(t, out.String(), "Run has returned")
		})
	}
}
