//go:build !(linux && amd64)

package clockshift

import (
	"fmt"
	"os/exec"
	"runtime"
	"time"
)

// Available says why the clock of a process cannot be shifted here.
func Available() error {
	return fmt.Errorf("%w: only on Linux on amd64, and this is %s on %s", ErrUnavailable, runtime.GOOS, runtime.GOARCH)
}

// Start returns an error that matches [ErrUnavailable].
func Start(*exec.Cmd, time.Duration) (*Clock, error) { return nil, Available() }

// Set returns an error that matches [ErrUnavailable].
func (*Clock) Set(time.Duration) error { return Available() }
