package main

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain is also the worker process that is killed.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-worker" {
		main()
		os.Exit(0) // a worker that failed has ended with 1
	}
	goleak.VerifyTestMain(m)
}
