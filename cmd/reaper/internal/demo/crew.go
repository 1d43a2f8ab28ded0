package demo

import (
	"encoding/json"
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

// A crew is the worker processes of one demonstration. It is used by one goroutine.
type crew struct {
	program string
	config  workerConfig // without the name
	all     []*worker
}

// A worker is one process.
type worker struct {
	name  string
	cmd   *exec.Cmd
	stdin io.Closer
	said  *tail         // what it wrote to standard error
	done  chan struct{} // closed when it has ended and was waited for

	frozen bool
	killed bool // by us, on purpose
	ending bool // asked to end
}

// hire starts one more worker. The names are A, B, C and so on.
func (c *crew) hire() (*worker, error) {
	config := c.config
	config.Name = string(rune('A' + len(c.all)))
	first, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	w := &worker{name: config.Name, said: &tail{}, done: make(chan struct{})}
	w.cmd = exec.Command(c.program, workerCommand)
	w.cmd.Stderr = w.said
	w.cmd.SysProcAttr = attributes()
	w.cmd.WaitDelay = time.Second
	stdin, err := w.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	w.stdin = stdin
	if err := w.start(); err != nil {
		return nil, fmt.Errorf("worker %s was not started: %w", w.name, err)
	}
	c.all = append(c.all, w)
	if _, err := stdin.Write(append(first, '\n')); err != nil {
		return nil, fmt.Errorf("worker %s does not listen: %w%s", w.name, err, w.said)
	}
	return w, nil
}

// start starts the process and waits for its end in a goroutine that keeps its thread until then: on Linux the kernel
// takes the end of the thread that forked for the death of the parent.
func (w *worker) start() error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := w.cmd.Start()
		started <- err
		if err == nil {
			_ = w.cmd.Wait() // how it ended is in ProcessState
			close(w.done)
		}
	}()
	return <-started
}

func (w *worker) pid() int { return w.cmd.Process.Pid }

func (w *worker) String() string { return fmt.Sprintf("%s (pid %d)", w.name, w.pid()) }

func (w *worker) ended() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// kill ends the worker with SIGKILL, also a frozen one, and waits for its end.
func (w *worker) kill() error {
	w.killed, w.frozen = true, false
	if err := w.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-w.done:
		return nil
	case <-time.After(killBound):
		return fmt.Errorf("worker %s does not end, although it was killed", w)
	}
}

func (w *worker) freeze() error {
	w.frozen = true
	return freeze(w.cmd.Process)
}

func (w *worker) thaw() error {
	w.frozen = false
	return thaw(w.cmd.Process)
}

// atWork returns the workers that run as they should: not killed, not frozen.
func (c *crew) atWork() []*worker {
	var list []*worker
	for _, w := range c.all {
		if !w.killed && !w.frozen && !w.ended() {
			list = append(list, w)
		}
	}
	return list
}

// killedPIDs returns the process IDs of those that were killed.
func (c *crew) killedPIDs() []int {
	var pids []int
	for _, w := range c.all {
		if w.killed {
			pids = append(pids, w.pid())
		}
	}
	return pids
}

// check returns an error if a worker ended that nobody ended.
func (c *crew) check() error {
	for _, w := range c.all {
		if w.ended() && !w.killed && !w.ending {
			return fmt.Errorf("worker %s ended by itself (%s)%s", w, w.cmd.ProcessState, w.said)
		}
	}
	return nil
}

// dismiss asks all workers to end, and kills those that have not when the time is over.
func (c *crew) dismiss(bound time.Duration) error {
	var problems []error
	for _, w := range c.all {
		if w.frozen {
			problems = append(problems, w.thaw())
		}
		w.ending = true
		_ = w.stdin.Close() // closed already where the worker has ended
	}
	over := time.NewTimer(bound)
	defer over.Stop()
	late := false
	for _, w := range c.all {
		if !late {
			select {
			case <-w.done:
			case <-over.C:
				late = true
			}
		}
		if !w.ended() {
			problems = append(problems, fmt.Errorf("worker %s did not end within %v and was killed%s", w, bound, w.said), w.kill())
			continue
		}
		if !w.killed && !w.cmd.ProcessState.Success() {
			problems = append(problems, fmt.Errorf("worker %s ended with an error (%s)%s", w, w.cmd.ProcessState, w.said))
		}
	}
	return errors.Join(problems...)
}

// end kills whoever is still there. It is what every way out comes by.
func (c *crew) end() error {
	var problems []error
	for _, w := range c.all {
		if !w.ended() {
			problems = append(problems, w.kill())
		}
		_ = w.stdin.Close()
	}
	return errors.Join(problems...)
}

// A tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailBytes = 2048

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if len(t.text) > tailBytes {
		t.text = append([]byte(nil), t.text[len(t.text)-tailBytes:]...)
	}
	return len(p), nil
}

// String returns the text for the end of an error, "" if there is none.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if text := strings.TrimSpace(string(t.text)); text != "" {
		return ": " + text
	}
	return ""
}
