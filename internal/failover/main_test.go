package failover

import (
	"os"
	"testing"

	"github.com/leaseq/leaseq/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// shape picks the number for `make test` or for `make cases`.
func shape[T any](small, large T) T {
	if os.Getenv("LEASEQ_CASES") == "full" {
		return large
	}
	return small
}
