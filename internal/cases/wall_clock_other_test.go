//go:build unix && !(linux && amd64)

package cases

import (
	"testing"
	"time"
)

// A wallClock is the wall clock of one child process. Here it cannot be shifted.
type wallClock struct{}

func startShifted(t testing.TB, _ string, _ any, _ time.Duration) (*process, *wallClock) {
	t.Helper()
	t.Skip("the wall clock of a process cannot be shifted here: only on Linux on amd64")
	return nil, nil
}

func (*wallClock) step(testing.TB, time.Duration) {}
