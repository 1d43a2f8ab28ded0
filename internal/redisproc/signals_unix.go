//go:build unix

package redisproc

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// askToEnd sends SIGTERM, and SIGCONT so that a frozen process gets it.
func (s *Server) askToEnd(_ context.Context, p *process) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return p.cmd.Process.Signal(syscall.SIGCONT)
}

// freeze sends SIGSTOP and waits until the process stands still: kill(2) returns before that.
func freeze(p *process) error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	bound := time.After(freezeBound)
	for {
		still, err := standsStill(p.pid())
		if err != nil {
			return err
		}
		if still {
			return nil
		}
		select {
		case <-p.done:
			return errors.New("the process has ended")
		case <-bound:
			return fmt.Errorf("process %d did not stop within %s", p.pid(), freezeBound)
		case <-time.After(time.Millisecond):
		}
	}
}

func thaw(p *process) error { return p.cmd.Process.Signal(syscall.SIGCONT) }
