package reaper_test

import (
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/leaseq/leaseq/internal/redistest"
)

func TestMain(m *testing.M) {
	logging.Disable() // the client's own: servers are killed here
	redistest.Main(m)
}
