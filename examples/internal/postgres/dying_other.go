//go:build unix && !linux

package postgres

import "syscall"

// dying are attributes of a process in a group of its own. Here it outlives a parent that is killed.
func dying() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
