package chaos

import (
	"os"
	"testing"

	"github.com/leaseq/leaseq/internal/redistest"
)

// workerVariable is set in the environment of a process that a test starts to be a worker.
const workerVariable = "LEASEQ_CHAOS_WORKER"

func TestMain(m *testing.M) {
	if orders := os.Getenv(workerVariable); orders != "" {
		os.Exit(workAs(orders))
	}
	if len(os.Args) > 1 && os.Args[1] == commandWorker {
		os.Exit(playCommand())
	}
	redistest.Main(m)
}
