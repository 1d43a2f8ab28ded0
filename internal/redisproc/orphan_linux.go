package redisproc

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

// attributes puts the server into a process group of its own, so that an interrupt typed at the terminal does not end
// it before its parent is done with it, and has the kernel kill it when its parent dies. The signal is SIGKILL, which
// ends a frozen server too. See launch for the thread that this depends on.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// guardOrphan has nothing to do here: the kernel does it.
func guardOrphan(int) (release func(), err error) { return func() {}, nil }

// standsStill says whether the main thread of a process is stopped by a signal. A server runs its commands there.
func standsStill(pid int) (bool, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false, err
	}
	// The state follows the program's name, which is in parentheses and may hold anything.
	_, rest, found := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	if !found || len(rest) == 0 {
		return false, fmt.Errorf("cannot read the state of process %d from %q", pid, stat)
	}
	return rest[0] == 'T', nil
}
