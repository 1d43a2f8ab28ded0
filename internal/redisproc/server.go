// Package redisproc starts redis-server processes of one's own and ends them: for tests and for the demonstration.
//
// A server listens on 127.0.0.1 only, works in a directory of its own, and is known by its process ID: [Start] and
// [Server.Restart] return when the process that they started answers, not just anybody on that port.
//
// A server does not outlive the process that started it. On Linux the kernel kills it when its parent dies, however
// that happens; on other Unix systems a small shell waits for the parent's end and kills it; elsewhere only Stop ends
// it. The temporary directory of a server whose parent crashed stays behind.
package redisproc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

const (
	// stopBound is how long Stop waits after SIGTERM before it kills.
	stopBound = 5 * time.Second

	// startBound bounds a start or restart where the context has no deadline.
	startBound = time.Minute

	// attempts is how many ports Start tries before it gives up.
	attempts = 8

	// pollEvery is the pause between two questions to a server that does not answer yet.
	pollEvery = 5 * time.Millisecond

	// Ports come from a range that no system gives out by itself. A port from the ephemeral range could be taken by any
	// outgoing connection while the server is down, even by a client's dial to that very port, which then is connected
	// to itself. The bus port of a cluster node, 10000 higher, stays below the ephemeral range of Linux too.
	firstPort, lastPort = 12000, 21999
)

// errForeign means that somebody else answers on the port.
var errForeign = errors.New("another process answers on the port")

// ErrStopped is returned by every call that needs a server after Stop.
var ErrStopped = errors.New("redisproc: the server has been stopped")

// ErrNotRunning is returned where a running server is needed and there is none, as after Kill.
var ErrNotRunning = errors.New("redisproc: the server is not running")

// A Server is a redis-server process and what is needed to start it again. Its methods may be called from several
// goroutines at once.
type Server struct {
	options Options
	port    int
	tlsPort int  // 0: no TLS
	temp    bool // the directory is ours

	restarting sync.Mutex // held by Restart, so that there is one at a time

	mu      sync.Mutex
	proc    *process
	stopped bool
}

// Start starts a server and waits until it answers a PING, loading of its data included. A nil o means all defaults.
//
// The context bounds the start only, not the server's life; without a deadline a minute is the bound. After an error
// no process and no temporary directory is left; the error holds the end of the server's log.
func Start(ctx context.Context, o *Options) (*Server, error) {
	options, err := o.settled()
	if err != nil {
		return nil, fmt.Errorf("redisproc: %w", err)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()

	s := &Server{options: options, temp: options.Dir == ""}
	if s.temp {
		s.options.Dir, err = os.MkdirTemp("", "leaseq-redis-")
	} else {
		err = os.MkdirAll(s.options.Dir, 0o700)
	}
	if err == nil {
		err = writeSentinel(&s.options)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("redisproc: %w", err), s.removeTemp())
	}
	// A port can be lost between its choice and the server's bind. Then the server ends at once, or somebody else
	// answers: both are tried again with another port. A wrong setting fails the same way, some milliseconds a try.
	for range attempts {
		if err = s.takePorts(); err != nil {
			break
		}
		if err = s.run(ctx); err == nil {
			return s, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	tail := s.logTail()
	_ = s.removeTemp()
	return nil, fmt.Errorf("redisproc: %s did not start: %w%s", s.options.Path, err, tail)
}

// Restart starts the server again after Kill, Terminate or a crash: same port, same directory, same settings. It
// returns when the server answers a PING, so when its data is loaded.
//
// While the port is taken by somebody else it tries again until the context ends (without a deadline: for a minute).
// It refuses a server that runs.
func (s *Server) Restart(ctx context.Context) error {
	s.restarting.Lock()
	defer s.restarting.Unlock()
	ctx, cancel := bounded(ctx)
	defer cancel()
	if p, err := s.running(); err == nil {
		return fmt.Errorf("redisproc: the server still runs with process ID %d: Kill or Terminate it first", p.pid())
	} else if errors.Is(err, ErrStopped) {
		return err
	}
	for {
		err := s.run(ctx)
		if err == nil || errors.Is(err, ErrStopped) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("redisproc: no restart on %s: %w%s", s.Addr(), err, s.logTail())
		case <-time.After(10 * pollEvery):
		}
	}
}

// run launches one process and waits until it answers. After an error the process is gone.
func (s *Server) run(ctx context.Context) error {
	p, err := launch(&s.options, s.port, s.tlsPort)
	if err != nil {
		return err
	}
	if err := s.await(ctx, p); err != nil {
		return errors.Join(err, p.kill())
	}
	s.mu.Lock()
	stopped := s.stopped
	if !stopped {
		s.proc = p
	}
	s.mu.Unlock()
	if stopped {
		return errors.Join(ErrStopped, p.kill())
	}
	return nil
}

// await polls until the process answers a PING, has ended, or the context ends.
func (s *Server) await(ctx context.Context, p *process) error {
	var last error
	for {
		if last = s.answers(ctx, p.pid()); last == nil || errors.Is(last, errForeign) {
			return last
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (last answer: %w)", ctx.Err(), last)
		case <-p.done:
			return fmt.Errorf("the process ended: %s", p.cmd.ProcessState)
		case <-time.After(pollEvery):
		}
	}
}

// answers is nil if the process with this ID answers a PING.
func (s *Server) answers(ctx context.Context, pid int) error {
	password, _ := s.options.setting("requirepass")
	l, err := dial(ctx, s.Addr(), password)
	if err != nil {
		return err
	}
	defer l.close()
	told, err := l.pid()
	if err != nil {
		return err
	}
	if told != pid {
		return fmt.Errorf("%w: %d, not %d", errForeign, told, pid)
	}
	_, err = l.ask("PING")
	return err
}

// Addr returns the address in the form 127.0.0.1:port. It stays the same over restarts.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// TLSAddr returns the address for TLS in the form 127.0.0.1:port, or "" where Options.TLS is not set. As Addr it stays
// the same over restarts.
func (s *Server) TLSAddr() string {
	if s.tlsPort == 0 {
		return ""
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.tlsPort))
}

// Dir returns the server's directory.
func (s *Server) Dir() string { return s.options.Dir }

// Pid returns the process ID, or 0 while no process runs.
func (s *Server) Pid() int {
	p, err := s.running()
	if err != nil {
		return 0
	}
	return p.pid()
}

// running returns the process, or why there is none.
func (s *Server) running() (*process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stopped:
		return nil, ErrStopped
	case s.proc == nil || s.proc.over():
		return nil, ErrNotRunning
	}
	return s.proc, nil
}

// logTail returns the last lines of the log, for an error's text.
func (s *Server) logTail() string {
	const most = 2048
	log, err := os.ReadFile(filepath.Join(s.options.Dir, logName))
	if err != nil || len(log) == 0 {
		return ""
	}
	if len(log) > most {
		log = log[len(log)-most:]
	}
	return "\nend of the server's log:\n" + string(log)
}

// bounded gives the context a deadline where it has none.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, startBound)
}

// takePorts chooses the port, and a second one for TLS.
func (s *Server) takePorts() (err error) {
	if s.port, err = freePort(); err != nil || s.options.TLS == nil {
		return err
	}
	for s.tlsPort = s.port; s.tlsPort == s.port; {
		if s.tlsPort, err = freePort(); err != nil {
			return err
		}
	}
	return nil
}

// removeTemp removes the directory if it is ours.
func (s *Server) removeTemp() error {
	if !s.temp || s.options.Dir == "" {
		return nil
	}
	return os.RemoveAll(s.options.Dir)
}

// freePort returns a port that nobody listened on a moment ago.
func freePort() (int, error) {
	var err error
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("no free port from %d to %d: %w", firstPort, lastPort, err)
}
