// Package redistest gives tests a Redis: one server that all tests of a process share, servers of a test's own, a faulty
// proxy, an in-process Redis, and the checks that a queue is in order.
//
// The shared server is chosen once, when it is first asked for:
//
//   - what the environment variable LEASEQ_TEST_REDIS says: a URL of a server that is there (redis://host:port/db), or
//     one of the words "redis-server", "docker" and "miniredis" to have just that and fail if it cannot be had;
//   - else a redis-server on PATH, as an own process on a free port of 127.0.0.1 without persistence;
//   - else the image redis:7 in Docker, on a free port of 127.0.0.1;
//   - else a miniredis in this process, with a line on standard error. Tests that need more than it can do call
//     [NeedServer].
//
// [Main] ends it. A server of ours does not outlive a test process that crashed or was killed either: the kernel kills
// the process on Linux (see package redisproc), and the container ends by itself after half an hour and is removed.
//
// Nothing here flushes a database. Tests share it by names: each takes queues of its own from [Queue].
package redistest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Main runs the tests, ends the shared server, fails if a goroutine is left, does what is given, and exits. It is for
// TestMain.
func Main(m *testing.M, after ...func()) {
	code := run(m)
	for _, do := range after {
		do()
	}
	os.Exit(code)
}

// patience is for goroutines of the client that end by themselves: one that tries whether a server is back sleeps for a
// second between two tries, and finds only then that its client was closed.
const patience = 3 * time.Second

func leaked(patience time.Duration) (err error) {
	for began := time.Now(); time.Since(began) < patience; {
		if err = goleak.Find(); err == nil {
			return nil
		}
	}
	return err
}

func run(m interface{ Run() int }) int {
	code := m.Run()
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "redistest: ending the shared server:", err)
		code = max(code, 1)
	}
	if code != 0 {
		return code // a failed test may well leave goroutines, and they would only hide it
	}
	if err := leaked(patience); err != nil {
		fmt.Fprintln(os.Stderr, "redistest: goroutines are left:", err)
		return 1
	}
	return 0
}
