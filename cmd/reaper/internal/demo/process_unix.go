//go:build unix

package demo

import (
	"os"
	"syscall"
)

// canFreeze says whether this system can stop a process and let it go on.
const canFreeze = true

func freeze(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func thaw(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
