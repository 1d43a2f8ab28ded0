package lease

import (
	"flag"
	"testing"

	"github.com/leaseq/leaseq/internal/redistest"
)

func TestMain(m *testing.M) {
	_ = flag.Set("rapid.checks", "50") // of 30 calls or so each; -rapid.checks asks for more
	redistest.Main(m)
}
