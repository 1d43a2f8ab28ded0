//go:build !unix

package main

import "time"

// clientCPU is not known.
func clientCPU() time.Duration { return 0 }
