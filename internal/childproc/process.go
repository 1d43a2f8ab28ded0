package childproc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"
)

// killBound is how long a process may take to end after SIGKILL.
const killBound = 10 * time.Second

// ErrNoSignals is returned where the system has no SIGSTOP, SIGCONT or SIGTERM.
var ErrNoSignals = errors.New("this system has no such signals")

// A Process is one child. Its methods may be called from several goroutines at once.
type Process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	said  *tail
	done  chan struct{}
}

// Start starts cmd in a process group of its own, so that an interrupt typed at the terminal does not reach it. What
// it writes to standard error is kept (its end, see Said) unless cmd.Stderr is set; its standard input is a pipe that
// nobody writes to, open until Kill or the end of the parent.
func Start(cmd *exec.Cmd) (*Process, error) { return StartBy(cmd, cmd.Start) }

// StartBy is Start with a function that starts cmd in another way, in the thread that it is called in.
func StartBy(cmd *exec.Cmd, start func() error) (*Process, error) {
	p := &Process{cmd: cmd, said: &tail{}, done: make(chan struct{})}
	if cmd.Stderr == nil {
		cmd.Stderr = p.said
	}
	cmd.SysProcAttr = attributes()
	cmd.WaitDelay = time.Second
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.stdin = stdin
	started := make(chan error, 1)
	go func() {
		// The kernel takes the end of the thread that forked for the death of the parent.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in ProcessState
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		_ = stdin.Close()
		return nil, err
	}
	return p, nil
}

// Pid is its process ID.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended and was waited for.
func (p *Process) Done() <-chan struct{} { return p.done }

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// How says how an ended process ended, as in "exit status 1" or "signal: killed".
func (p *Process) How() string {
	if !p.Ended() {
		return "running"
	}
	return p.cmd.ProcessState.String()
}

// Success reports whether the process has ended with exit code 0.
func (p *Process) Success() bool { return p.Ended() && p.cmd.ProcessState.Success() }

// Said is the end of what the process wrote to standard error, without blanks around it.
func (p *Process) Said() string { return p.said.String() }

// Kill ends the process with SIGKILL, also one that stands still, and waits for its end. One that has ended is no error.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	over := time.NewTimer(killBound)
	defer over.Stop()
	select {
	case <-p.done:
		_ = p.stdin.Close()
		return nil
	case <-over.C:
		return fmt.Errorf("process %d does not end, although it was killed", p.Pid())
	}
}

// Freeze stops the process with SIGSTOP and returns when the signal is sent.
func (p *Process) Freeze() error { return freeze(p.cmd.Process) }

// Thaw lets a frozen process go on.
func (p *Process) Thaw() error { return thaw(p.cmd.Process) }

// Terminate asks the process to end with SIGTERM. It does not wait.
func (p *Process) Terminate() error { return terminate(p.cmd.Process) }

// A tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailBytes = 4096

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if len(t.text) > tailBytes {
		t.text = append([]byte(nil), t.text[len(t.text)-tailBytes:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}
