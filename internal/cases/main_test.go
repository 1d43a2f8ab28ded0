package cases

import (
	"os"
	"testing"

	"github.com/leaseq/leaseq/internal/redistest"
)

// TestMain is also the main function of the child processes that cases start: workers that are killed.
func TestMain(m *testing.M) {
	if name := os.Getenv(childVariable); name != "" {
		os.Exit(runChild(name))
	}
	redistest.Main(m)
}
