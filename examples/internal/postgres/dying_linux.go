package postgres

import "syscall"

// dying are attributes of a process in a group of its own, which the kernel ends with its parent.
func dying() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGQUIT}
}
