//go:build unix && !linux

package redisproc

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// attributes puts the server into a process group of its own, so that an interrupt typed at the terminal does not end
// it before its parent is done with it.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// guardOrphan sets a watchdog on the process, since the kernel has no such thing here.
func guardOrphan(pid int) (release func(), err error) { return watch(pid) }

// standsStill says whether a process is stopped by a signal.
func standsStill(pid int) (bool, error) {
	state, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return false, err
	}
	return strings.HasPrefix(strings.TrimSpace(string(state)), "T"), nil
}
