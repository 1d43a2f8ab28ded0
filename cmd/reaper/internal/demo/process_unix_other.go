//go:build unix && !linux

package demo

import "syscall"

// attributes puts a worker into a process group of its own, so that an interrupt typed at the terminal reaches the
// demonstration alone, which then ends its workers. When the demonstration dies such a group is orphaned, and the
// system sends SIGHUP and SIGCONT to one that is frozen (POSIX, _exit), which ends it.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
