//go:build !unix

package redisproc

import (
	"context"
	"errors"
	"io"
)

var errNoSignals = errors.New("this system cannot stop a process and let it go on (no SIGSTOP and SIGCONT)")

// askToEnd sends SHUTDOWN, which does what SIGTERM does elsewhere.
func (s *Server) askToEnd(ctx context.Context, p *process) error {
	if p.over() {
		return nil
	}
	password, _ := s.options.setting("requirepass")
	l, err := dial(ctx, s.Addr(), password)
	if err != nil {
		return err
	}
	defer l.close()
	var refused errReply
	if _, err := l.ask("SHUTDOWN"); err != nil && errors.As(err, &refused) && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

func freeze(*process) error { return errNoSignals }

func thaw(*process) error { return errNoSignals }
