package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/leaseq/leaseq/chaos/record"
	"github.com/leaseq/leaseq/internal/childproc"
	"github.com/leaseq/leaseq/internal/netfault"
)

// A Post is the place of a worker: one process after another works there, each with a name and a history of its own, all
// over one link to Redis. A fault that takes a Post has it for itself.
type Post struct {
	number int
	storm  *storm
	link   *netfault.Proxy // nil where there is none, as with TLS

	mu      sync.Mutex
	process *childproc.Process
	name    string
	count   int
	asked   map[*childproc.Process]bool // those that somebody has asked to end, or killed
	taken   bool
}

// Name is that of the process that works there now, in the history, or of the last one.
func (p *Post) Name() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.name
}

// Busy is how many handlers run there now, or ran when the process was killed, by what it has written until now.
func (p *Post) Busy() int { return p.storm.follow.busy(p.Name()) }

// Start starts the next process there. The one before must have ended.
func (p *Post) Start() error { return p.startAs(nil) }

// A variant of a worker process.
type variant struct {
	command []string                                    // another program
	start   func(*exec.Cmd) (*childproc.Process, error) // another way to start it
}

func (p *Post) startAs(v *variant) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process != nil && !p.process.Ended() {
		return fmt.Errorf("worker %s still runs", p.name)
	}
	p.count++
	p.name = fmt.Sprintf("worker-%d.%d", p.number, p.count)
	file := filepath.Join(p.storm.histories, p.name+".jsonl")
	cmd := p.storm.childCommand(roleWorker, p.url(), p.name, file)
	start := childproc.Start
	if v != nil && v.command != nil {
		env := cmd.Env
		cmd = exec.Command(v.command[0], v.command[1:]...)
		cmd.Env = env
	}
	if v != nil && v.start != nil {
		start = v.start
	}
	process, err := start(cmd)
	if err != nil {
		return fmt.Errorf("worker %s was not started: %w", p.name, err)
	}
	p.process = process
	p.storm.follow.add(p.name, file)
	go p.watch(process, p.name)
	return nil
}

// watch notices a process that ends by itself.
func (p *Post) watch(process *childproc.Process, name string) {
	<-process.Done()
	p.mu.Lock()
	asked := p.asked[process]
	delete(p.asked, process)
	p.mu.Unlock()
	if !asked {
		p.storm.problem("worker %s ended by itself (%s): %s", name, process.How(), process.Said())
	}
}

func (p *Post) url() string {
	if p.link == nil {
		return p.storm.server.url
	}
	return p.storm.server.through(p.link.Addr())
}

func (p *Post) current(ending bool) (*childproc.Process, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process == nil || p.process.Ended() {
		return nil, fmt.Errorf("no process works at post %d", p.number)
	}
	if ending {
		if p.asked == nil {
			p.asked = map[*childproc.Process]bool{}
		}
		p.asked[p.process] = true
	}
	return p.process, nil
}

// Kill ends the process with SIGKILL and waits for its end.
func (p *Post) Kill() error {
	process, err := p.current(true)
	if err != nil {
		return err
	}
	return process.Kill()
}

// Freeze stops the process with SIGSTOP.
func (p *Post) Freeze() error {
	process, err := p.current(false)
	if err != nil {
		return err
	}
	return process.Freeze()
}

// Thaw lets it go on with SIGCONT.
func (p *Post) Thaw() error {
	process, err := p.current(false)
	if err != nil {
		return err
	}
	return process.Thaw()
}

// endBound is how long a worker may take from SIGTERM to its end, beside the drain's lease.
const endBound = 15 * time.Second

// Terminate ends the process with SIGTERM and waits for its end, which must be in order (exit code 0) and within the
// drain time, a lease, and 15 s. A process that was just started is given the time to open its history first.
func (p *Post) Terminate(ctx context.Context) error {
	process, err := p.current(true)
	if err != nil {
		return err
	}
	if !childproc.Signals {
		return process.Kill()
	}
	p.storm.follow.await(ctx, p.Name(), endBound) // before that it may not listen for the signal yet
	if err := process.Terminate(); err != nil {
		return err
	}
	over := time.NewTimer(p.storm.Lease + endBound)
	defer over.Stop()
	select {
	case <-process.Done():
		if !process.Success() {
			return fmt.Errorf("worker %s did not end in order after SIGTERM (%s): %s", p.Name(), process.How(), process.Said())
		}
		return nil
	case <-over.C:
		return errors.Join(fmt.Errorf("worker %s did not end within %v of SIGTERM: %s", p.Name(), p.storm.Lease+endBound, process.Said()), process.Kill())
	}
}

// alive reports whether a process works there.
func (p *Post) alive() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.process != nil && !p.process.Ended()
}

// childCommand makes the command of a child. The program is the worker's, if there is one of the user's, or this one.
func (s *storm) childCommand(role, url, name, file string) *exec.Cmd {
	program, args := s.self, s.selfArgs
	if role == roleWorker && len(s.Command) > 0 {
		program, args = s.Command[0], s.Command[1:]
	}
	cmd := exec.Command(program, args...)
	cmd.Stdout = nil
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(pair string) bool { return strings.HasPrefix(pair, "LEASEQ_CHAOS_") }),
		envRole+"="+role, envRun+"="+s.name, envSeed+"="+strconv.FormatUint(s.Seed, 10),
		record.EnvURL+"="+url, record.EnvPrefix+"="+s.Prefix, record.EnvQueue+"="+s.Queue,
		record.EnvSlots+"="+strconv.Itoa(s.Concurrency), record.EnvLease+"="+s.Lease.String(),
		record.EnvHistory+"="+file, record.EnvProcess+"="+name,
	)
	return cmd
}
