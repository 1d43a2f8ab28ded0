package main

import (
	"math"

	"github.com/spf13/cobra"

	"github.com/leaseq/leaseq/cmd/reaper/internal/demo"
)

const rootHelp = `reaper looks after the queues of leaseq on a Redis server.

A worker that dies leaves jobs behind whose leases run out. Consumers put them back by themselves; the sidecar
('reaper run') does it too where consumers are down or were told not to. Any number of both work side by side.

Environment: each flag has a twin, LEASEQ_ and its name in capitals (--log-level: LEASEQ_LOG_LEVEL), which the help of
each command names. The flag beats the environment; an empty variable counts as unset. A password is better off in a
file (--password-file), or in the URL in LEASEQ_REDIS, than on the command line, where everybody on the machine can
read it.

Exit codes:
  0    it worked; for 'run': it was asked to end, and has ended cleanly
  1    the command failed, or was interrupted, and said why on standard error
  2    a wrong flag, argument or environment variable; nothing was done
  3    no access to Redis: it cannot be reached (all commands but 'run'), or TLS, credentials, database or, by its ACL, a
       command are refused; 'run' ends with it only before it was connected for the first time
  130, 143
       ended at once by a second SIGINT or SIGTERM; the first asks for a clean end`

const rootExample = `  reaper run                                        look after all queues of the Redis on this machine
  LEASEQ_REDIS=redis://:secret@redis:6379/0 reaper run
  reaper run --redis rediss://redis:6379/0 --user sidecar --password-file /etc/leaseq/password --tls-ca /etc/leaseq/ca.pem
  reaper queues
  reaper stats --json orders | jq '.queues[0].dead'
  reaper enqueue orders --kind order.close '{"id":"10086"}' --delay 30m
  reaper dead refunds                               list dead jobs, and why they are dead
  reaper edit refunds refund:10086 '{"amount":1250}' --redrive
  reaper redrive refunds --all --class leases-expired --rate 50
  reaper policy set orders max_length=100000 max_retries=5
  reaper pause orders --for 10m
  reaper queue delete orders --dry-run
  reaper chaos --report storm.html                  kill, freeze and cut off workers, and check every job
  reaper capacity --rate 10000 --delay 30m          how much Redis, memory and network that takes
  source <(reaper completion bash)                  complete commands, flags and names of queues`

func newRoot(a *App) *cobra.Command {
	root := &cobra.Command{
		Use:           "reaper",
		Short:         "Look after the queues of leaseq",
		Long:          rootHelp,
		Example:       rootExample,
		SilenceUsage:  true,
		SilenceErrors: true, // Main tells them
	}
	run, stats := newRunCommand(a), newStatsCommand(a)
	for _, cmd := range []*cobra.Command{run, stats} {
		cmd.ValidArgsFunction = completeQueues(a, math.MaxInt)
	}
	root.AddCommand(newJobCommands(a)...)
	root.AddCommand(run, newQueuesCommand(a), stats, newEnqueueCommand(a), newQueueCommand(a), newPolicyCommand(a), newChaosCommand(a), newCapacityCommand(a), newVersionCommand(a),
		demo.Command(a.out, a.err), demo.WorkerCommand())
	return root
}
