package reliable

import (
	"os"
	"testing"

	"github.com/leaseq/leaseq/internal/redistest"
)

// ProgramVariable names one of Programs in the environment of a process that a test starts.
const ProgramVariable = "LEASEQ_RELIABLE_PROGRAM"

// Programs are main functions of processes that tests start: some of them are to end themselves. They return the exit
// code.
var Programs = map[string]func() int{"exiting-hook": consumeWithExitingHook}

func TestMain(m *testing.M) {
	if program := os.Getenv(ProgramVariable); program != "" {
		os.Exit(Programs[program]())
	}
	redistest.Main(m)
}
