package main

import (
	"github.com/spf13/cobra"

	"github.com/leaseq/leaseq/cmd/reaper/internal/demo"
)

const rootHelp = `reaper looks after the queues of leaseq on a Redis server.

A worker that dies leaves jobs behind whose leases run out. Consumers put them back by themselves; the sidecar
('reaper run') does it too where consumers are down or were told not to. Any number of both work side by side.

Environment: each flag has a twin, LEASEQ_ and its name in capitals (--log-level: LEASEQ_LOG_LEVEL), which the help of
each command names. The flag beats the environment; an empty variable counts as unset. A URL with a password is
better off in LEASEQ_REDIS than on the command line, where everybody on the machine can read it.

Exit codes:
  0    it worked; for 'run': it was asked to end, and has ended cleanly
  1    the command failed, and said why on standard error
  2    a wrong flag, argument or environment variable; nothing was done
  3    Redis cannot be reached (stats), or refuses the credentials
  130, 143
       ended at once by a second SIGINT or SIGTERM; the first asks for a clean end`

const rootExample = `  reaper run                                        look after all queues of the Redis on this machine
  LEASEQ_REDIS=redis://:secret@redis:6379/0 reaper run
  reaper stats --json orders | jq '.queues[0].dead'`

func newRoot(a *App) *cobra.Command {
	root := &cobra.Command{
		Use:           "reaper",
		Short:         "Look after the queues of leaseq",
		Long:          rootHelp,
		Example:       rootExample,
		SilenceUsage:  true,
		SilenceErrors: true, // Main tells them
	}
	root.AddCommand(newRunCommand(a), newStatsCommand(a), newVersionCommand(a), demo.Command(a.out, a.err), demo.WorkerCommand())
	return root
}
