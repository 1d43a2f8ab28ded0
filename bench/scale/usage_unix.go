//go:build unix

package main

import (
	"syscall"
	"time"
)

// clientCPU is what this process has spent since its start, in its own code and in the kernel.
func clientCPU() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
