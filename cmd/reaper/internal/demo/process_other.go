//go:build !unix

package demo

import (
	"errors"
	"os"
	"syscall"
)

// canFreeze says whether this system can stop a process and let it go on.
const canFreeze = false

var errNoFreeze = errors.New("this system has no SIGSTOP and SIGCONT")

func freeze(*os.Process) error { return errNoFreeze }

func thaw(*os.Process) error { return errNoFreeze }

// attributes puts a worker into a process group of its own, so that an interrupt typed at the console reaches the
// demonstration alone, which then ends its workers.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
