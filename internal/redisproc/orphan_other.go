//go:build !unix

package redisproc

import "syscall"

// attributes puts the server into a process group of its own, so that an interrupt typed at the console does not end
// it before its parent is done with it.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// guardOrphan does nothing: a server outlives a parent that crashed.
func guardOrphan(int) (release func(), err error) { return func() {}, nil }
