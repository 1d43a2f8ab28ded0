package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/leaseq/leaseq/cmd/reaper/internal/capacity"
)

const capacityHelp = `Computes what a load needs: memory, cores and nodes of Redis, partitions, network, and cores of your own programs.
It multiplies costs that were measured, and contacts nobody. What it assumes is printed with the answer, as are the
machine on which the costs were measured and the command that measured them. Nodes, memory, consumers and client cores
have the headroom in them: with --headroom 2 they are half used.

Jobs that wait are rate × delay, or --waiting. --work is how long a handler takes: the longer, the more consumers there
are, each with fewer jobs in a round trip, and the more leases are extended. Producers that enqueue one job a call, each by itself, are
the dearest; calls of several jobs, and callers that share a Queue, cost less: --enqueue-batch.

With --json the output is one object: {"plan", "costs": {"command", "machine"}, "assumptions": […], "answer": {…}}.`

const capacityExample = `  reaper capacity --rate 10000 --payload 200 --delay 30m --concurrency 50
  reaper capacity --rate 10000 --waiting 1000000000       a billion jobs that wait
  reaper capacity --rate 100000 --enqueue-batch 50 --json | jq .answer.nodes
  reaper capacity --table                                 the table of docs/capacity.md`

// capacityCommand is `reaper capacity`.
type capacityCommand struct {
	app         *App
	plan        capacity.Plan
	file        string
	json, table bool

	costs *capacity.Costs
}

func newCapacityCommand(a *App) *cobra.Command {
	c := &capacityCommand{app: a, plan: capacity.DefaultPlan()}
	cmd := &cobra.Command{
		Use:     "capacity",
		Short:   "Compute what a load of jobs needs",
		Long:    capacityHelp,
		Example: capacityExample,
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return c.prepare() },
		RunE:    func(*cobra.Command, []string) error { return c.run() },
	}
	flags, p := cmd.Flags(), &c.plan
	flags.Float64Var(&p.Rate, "rate", p.Rate, "`jobs` a second")
	flags.IntVar(&p.Payload, "payload", p.Payload, "`bytes` of payload of each job")
	flags.IntVar(&p.ID, "id", p.ID, "`bytes` of the ID of each job; 26 are the library's own")
	flags.DurationVar(&p.Delay, "delay", 0, "before each job is due")
	flags.Int64Var(&p.Waiting, "waiting", 0, "`jobs` that wait, instead of rate × delay")
	flags.IntVar(&p.Concurrency, "concurrency", p.Concurrency, "`handlers` at a time in each consumer")
	flags.DurationVar(&p.Work, "work", p.Work, "that a handler takes")
	flags.DurationVar(&p.Lease, "lease", p.Lease, "of the queue")
	flags.DurationVar(&p.RoundTrip, "round-trip", p.RoundTrip, "between your programs and Redis")
	flags.IntVar(&p.EnqueueBatch, "enqueue-batch", p.EnqueueBatch, "`jobs` a call of a producer")
	flags.Float64Var(&p.Headroom, "headroom", p.Headroom, "how many `times` what is computed is to be there")
	flags.IntVar(&p.NodeMemory, "node-memory", p.NodeMemory, "`GiB` of each Redis node")
	flags.IntVar(&p.Partition, "partition", p.Partition, "`jobs` that wait in each partition at most")
	flags.StringVar(&c.file, "costs", "", "`file` with costs of your own, as 'go run ./scale -costs file' in bench/ writes it; default: those in the program")
	flags.BoolVar(&c.table, "table", false, "print the Markdown table of docs/capacity.md; the other flags but --costs do nothing then")
	flags.BoolVar(&c.json, "json", false, "print one JSON object on standard output")
	return cmd
}

func (c *capacityCommand) prepare() error {
	if c.table && c.json {
		return errors.New("--table and --json: want one of them")
	}
	if err := c.plan.Check(); err != nil {
		return err
	}
	var err error
	if c.file == "" {
		c.costs, err = capacity.Measured()
		return err
	}
	text, err := os.ReadFile(c.file)
	if err == nil {
		c.costs, err = capacity.Parse(text)
	}
	if err != nil {
		return fmt.Errorf("--costs %s: %w", c.file, err)
	}
	return nil
}

func (c *capacityCommand) run() error {
	if c.table {
		return writeCapacityTable(c.app.out, c.costs)
	}
	answer, err := c.costs.Compute(&c.plan)
	if err != nil {
		return err
	}
	if !c.json {
		return writeCapacity(c.app.out, c.costs, &c.plan, answer)
	}
	return json.NewEncoder(c.app.out).Encode(newCapacityJSON(c.costs, &c.plan, answer))
}
