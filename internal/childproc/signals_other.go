//go:build !unix

package childproc

import (
	"os"
	"syscall"
)

// Signals says whether this system has SIGSTOP, SIGCONT and SIGTERM.
const Signals = false

func freeze(*os.Process) error { return ErrNoSignals }

func thaw(*os.Process) error { return ErrNoSignals }

func terminate(*os.Process) error { return ErrNoSignals }

func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
