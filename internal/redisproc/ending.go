package redisproc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// Stop ends the server for good: SIGTERM, and SIGKILL after 5 s or when the context ends. A frozen server is thawed
// first. When Stop returns no process is left; a temporary directory is removed, and the only error is that this
// failed. Stop of a stopped server does nothing.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	p, again := s.proc, s.stopped
	s.stopped = true
	s.mu.Unlock()
	if p != nil {
		ctx, cancel := context.WithTimeout(ctx, stopBound)
		defer cancel()
		if err := s.terminate(ctx, p); err != nil {
			if err := p.kill(); err != nil {
				return fmt.Errorf("redisproc: process %d is left: %w", p.pid(), err)
			}
		}
	}
	if again {
		return nil
	}
	if err := s.removeTemp(); err != nil {
		return fmt.Errorf("redisproc: %w", err)
	}
	return nil
}

// Kill ends the server with SIGKILL and waits for it: nothing more is written or flushed, as in a crash of the process
// (not of the machine). The directory stays. A server that does not run is no error.
func (s *Server) Kill() error {
	p, err := s.running()
	if errors.Is(err, ErrNotRunning) {
		return nil
	} else if err != nil {
		return err
	}
	if err := p.kill(); err != nil {
		return fmt.Errorf("redisproc: kill: %w", err)
	}
	return nil
}

// Terminate ends the server with SIGTERM, which lets it write its append-only file to the end, and waits for it. The
// directory stays. A frozen server is thawed, since it could not end otherwise. If the context ends first, its error
// is returned and the server may still be about to end. A server that does not run is no error.
func (s *Server) Terminate(ctx context.Context) error {
	p, err := s.running()
	if errors.Is(err, ErrNotRunning) {
		return nil
	} else if err != nil {
		return err
	}
	return s.terminate(ctx, p)
}

func (s *Server) terminate(ctx context.Context, p *process) error {
	if err := s.askToEnd(ctx, p); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("redisproc: terminate: %w", err)
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("redisproc: process %d has not ended yet: %w", p.pid(), ctx.Err())
	}
}

// freezeBound is how long Freeze waits until the process has stopped.
const freezeBound = 5 * time.Second

// Freeze stops the process with SIGSTOP, and returns when it stands still: its port accepts connections (the kernel
// does), and nothing is answered until Thaw. On Windows it returns an error that says that this cannot be done.
func (s *Server) Freeze() error {
	p, err := s.running()
	if err != nil {
		return err
	}
	if err := freeze(p); err != nil {
		return fmt.Errorf("redisproc: freeze: %w", err)
	}
	return nil
}

// Thaw lets a frozen server go on with SIGCONT. What waits in its sockets is then run. A server that is not frozen
// goes on. On Windows it returns an error.
func (s *Server) Thaw() error {
	p, err := s.running()
	if err != nil {
		return err
	}
	if err := thaw(p); err != nil {
		return fmt.Errorf("redisproc: thaw: %w", err)
	}
	return nil
}
