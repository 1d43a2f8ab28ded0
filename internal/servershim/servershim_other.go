//go:build !linux

package servershim

import (
	"fmt"
	"runtime"
	"time"
)

// Build returns an error that matches [ErrUnavailable]: a shim needs Linux.
func Build(string) (*Shim, error) {
	return nil, fmt.Errorf("servershim: %w: needs Linux, and this is %s", ErrUnavailable, runtime.GOOS)
}

// Env is nothing here.
func (*Shim) Env() []string { return nil }

// Shift returns an error here.
func (*Shim) Shift(time.Duration) error { return fmt.Errorf("servershim: %w", ErrUnavailable) }

// StallSyncs returns an error here.
func (*Shim) StallSyncs(bool) error { return fmt.Errorf("servershim: %w", ErrUnavailable) }

// State returns an error here.
func (*Shim) State() (State, error) { return State{}, fmt.Errorf("servershim: %w", ErrUnavailable) }

// CutToSynced returns an error here.
func (*Shim) CutToSynced(string) (int64, error) {
	return 0, fmt.Errorf("servershim: %w", ErrUnavailable)
}

// Close has nothing to do here.
func (*Shim) Close() error { return nil }
