//go:build unix

package redisproc

import (
	"io"
	"os/exec"
	"strconv"
	"syscall"
)

// watch starts a small shell that kills a process when this one has died. It reads from a pipe that only this process
// can write: a line means that all is well and ends the shell, the end of the pipe without one that the writer died.
// release ends the shell; the process should be over then, so that its number cannot mean another one.
//
// It is used where the kernel cannot do the same.
func watch(pid int) (release func(), err error) {
	shell := exec.Command("/bin/sh", "-c", `read -r well || kill -9 "$1"`, "sh", strconv.Itoa(pid))
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt at the terminal must not end it first
	pipe, err := shell.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := shell.Start(); err != nil {
		return nil, err
	}
	return func() {
		_, _ = io.WriteString(pipe, "well\n")
		_ = pipe.Close()
		_ = shell.Wait()
	}, nil
}
