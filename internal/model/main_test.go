package model

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// large picks the bounds of `make model` instead of those of `make test`.
func large() bool { return os.Getenv("LEASEQ_MODEL") == "full" }
