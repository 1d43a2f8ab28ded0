package reaper_test

import (
	"os"
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/leaseq/leaseq/internal/redistest"
)

// TestMain is also the main function of processes that tests start: some are to end themselves.
func TestMain(m *testing.M) {
	if os.Getenv(exitingCallback) != "" {
		os.Exit(sweepWithExitingCallback())
	}
	logging.Disable() // the client's own: servers are killed here
	redistest.Main(m)
}
