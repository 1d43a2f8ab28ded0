package demo

import (
	"fmt"
	"os"
	"testing"

	"github.com/spf13/cobra"

	"github.com/leaseq/leaseq/internal/redistest"
)

// TestMain makes the test binary the program whose demo and workers are tested: the demonstration starts itself again.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "demo" || os.Args[1] == workerCommand) {
		root := &cobra.Command{Use: "reaper", SilenceErrors: true}
		root.AddCommand(Command(os.Stdout, os.Stderr), WorkerCommand())
		if err := root.Execute(); err != nil {
			fmt.Fprintln(os.Stderr, "Error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	redistest.Main(m)
}
