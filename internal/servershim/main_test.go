package servershim

import (
	"testing"

	"github.com/leaseq/leaseq/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }
