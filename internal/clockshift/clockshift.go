// Package clockshift starts a program as a child process whose wall clock is wrong, and steps it while the program runs.
//
// The program is an unchanged one. It learns the time from the kernel, through the code that the kernel lays into every
// process for that (the vDSO), and it is that code that is replaced, before the first instruction of the program runs.
// What time.Now, a log line, a deadline or a library shows as the time of day is off by the shift; the monotonic clock,
// and the time that passes, are not. It works for Linux on amd64, where a process may trace its own children.
//
//	clock, err := clockshift.Start(cmd, time.Hour)
//	…
//	defer clock.Close()
//	err = clock.Set(-time.Hour)
package clockshift

import (
	"errors"
	"os"
)

// ErrUnavailable is what [Available] and [Start] return where it cannot be done: the error's text says what is missing.
// Tests skip then.
var ErrUnavailable = errors.New("the wall clock of a process cannot be shifted here")

// A Clock is the wall clock of one process that was started by [Start].
type Clock struct {
	memory *os.File // of the process; nil where there is none
	offset int64    // the address of the shift in seconds, in the process
}

// Close ends what the Clock needs. The process goes on, with the clock that it has. Close twice is no error.
func (c *Clock) Close() error {
	if err := c.memory.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
