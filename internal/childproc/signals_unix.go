//go:build unix

package childproc

import (
	"os"
	"syscall"
)

// Signals says whether this system has SIGSTOP, SIGCONT and SIGTERM.
const Signals = true

func freeze(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func thaw(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
