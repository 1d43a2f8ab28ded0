package demo

import "syscall"

// attributes puts a worker into a process group of its own, so that an interrupt typed at the terminal reaches the
// demonstration alone, which then ends its workers. The kernel kills a worker whose parent died: one that is frozen at
// that time could not end by itself.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
