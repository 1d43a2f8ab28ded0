//go:build unix

package reliable_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

func init() { reliable.Programs["serve"] = serveForSignals }

// serveForSignals is a worker as the README shows it. Its handlers say when they begin, and when they are told to stop;
// the ones of kind "hangs" go on for ever.
func serveForSignals() int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if os.Getenv("LEASEQ_SERVE_TELL") != "" { // else a second signal would do nothing
		heard := make(chan os.Signal, 1)
		signal.Notify(heard, syscall.SIGTERM)
		go func() { fmt.Println("heard", <-heard) }()
	}
	rdb := redis.NewClient(&redis.Options{Addr: os.Getenv("LEASEQ_SERVE_ADDR")})
	q, err := reliable.New(rdb, os.Getenv("LEASEQ_SERVE_QUEUE"), &reliable.QueueOptions{Lease: time.Second})
	if err != nil {
		return fail(err)
	}
	err = serve(q, reliable.HandlerFunc(func(ctx context.Context, j *reliable.Job) error {
		fmt.Println("began", j.Kind)
		if j.Kind == "hangs" {
			select {}
		}
		var line string
		_, err := fmt.Scanln(&line) // until the test lets it go on
		return err
	}))
	if err != nil {
		return fail(err)
	}
	fmt.Println("Run has returned")
	return 0
}

// startServe starts the worker, and returns its lines.
func startServe(t *testing.T, queue, tell string) (cmd *exec.Cmd, lines *bufio.Scanner, input func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
	cmd = exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), reliable.ProgramVariable+"=serve",
		"LEASEQ_SERVE_ADDR="+redistest.Addr(t), "LEASEQ_SERVE_QUEUE="+queue, "LEASEQ_SERVE_TELL="+tell, "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
	})
	return cmd, bufio.NewScanner(out), func() {
		_, err := fmt.Fprintln(in, "on")
		require.NoError(t, err)
	}
}

func TestTheFirstSignalDrainsAndCostsNothing(t *testing.T) {
	t.Parallel()
	redistest.NeedServer(t)
	q := newQueue(t, &reliable.QueueOptions{Lease: time.Second})
	put(t, q, job("ends"))
	cmd, lines, goOn := startServe(t, q.Name(), "tell")
	require.True(t, lines.Scan())
	require.Equal(t, "began ends", lines.Text())
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.True(t, lines.Scan())
	require.Equal(t, "heard terminated", lines.Text())
	goOn()
	require.True(t, lines.Scan())
	require.Equal(t, "Run has returned", lines.Text())
	require.NoError(t, cmd.Wait())
	s, err := q.Stats(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, s.Counters["acked"])
	require.Zero(t, s.Counters["nacked"]+s.Counters["expired"]+s.Counters["released"])
	require.Zero(t, s.Due+s.Processing+s.Dead)
}

func TestASecondSignalEndsTheProcessAtOnceAndCostsOneExpiry(t *testing.T) {
	t.Parallel()
	redistest.NeedServer(t)
	q := newQueue(t, &reliable.QueueOptions{Lease: time.Second})
	ids := put(t, q, job("hangs"))
	cmd, lines, _ := startServe(t, q.Name(), "")
	require.True(t, lines.Scan())
	require.Equal(t, "began hangs", lines.Text())
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var err error
	require.Eventually(t, func() bool { // the first one may not have been noticed yet: the second comes after it, whenever
		select {
		case err = <-ended:
			return true
		default:
			_ = cmd.Process.Signal(syscall.SIGTERM)
			return false
		}
	}, 15*time.Second, 50*time.Millisecond, "long before the drain is over")
	require.Error(t, err)
	require.True(t, strings.Contains(err.Error(), "signal: terminated"), err.Error())

	again := make(chan *reliable.Job, 1)
	runConsumer(t, q, reliable.HandlerFunc(func(_ context.Context, j *reliable.Job) error {
		again <- j
		return nil
	}), nil)
	got := receive(t, again)
	require.Equal(t, ids[0], got.ID)
	require.Equal(t, 1, got.Expiries)
	require.Zero(t, got.Failures)
	await(t, q, "acked", func(s reliable.Stats) bool { return s.Counters["acked"] == 1 })
}
