//go:build unix

package cases

import (
	"errors"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/clockshift"
)

// A wallClock is the wall clock of one child process, which shows what the test wants.
type wallClock struct{ *clockshift.Clock }

// startShifted starts a registered program whose wall clock is off by so much from its first instruction on.
func startShifted(t testing.TB, name string, config any, by time.Duration) (*process, *wallClock) {
	t.Helper()
	clock := &wallClock{}
	p := startChildBy(t, name, config, func(cmd *exec.Cmd) (err error) {
		clock.Clock, err = clockshift.Start(cmd, by)
		if errors.Is(err, clockshift.ErrUnavailable) {
			t.Skip(err)
		}
		return err
	})
	t.Cleanup(func() { _ = clock.Close() })
	return p, clock
}

// step is set for a test.
func (c *wallClock) step(t testing.TB, by time.Duration) {
	t.Helper()
	require.NoError(t, c.Set(by))
}
