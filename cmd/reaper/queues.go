package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/leaseq/leaseq/lease"
)

const queuesHelp = `Shows all queues of the registry, one line each: jobs that are due and of these due now; how long the oldest of them has
been due; jobs in processing, and of these with a lease that ran out and that nobody has swept yet (expired); dead jobs;
the lease that the queue has published, 15s where it has published none; and how many jobs were ever enqueued, acked,
and died. One that is paused says so. 'reaper stats' shows more of one queue.

It only reads, two small answers for each queue, at most 8 queues at a time. With --json the output is one object:
{"redis", "prefix", "queues": [{…}]}, where each queue has the fields of 'reaper stats --json', and lease_ms and
lease_published.`

const queuesExample = `  reaper queues
  reaper queues --json | jq -r '.queues[] | select(.claimable > 1000 or .expired > 0) | .queue'`

// queuesAside is how many queues are read at a time.
const queuesAside = 8

// queuesCommand is `reaper queues`.
type queuesCommand struct {
	app *App
	lookFlags
}

func newQueuesCommand(a *App) *cobra.Command {
	c := &queuesCommand{app: a}
	cmd := &cobra.Command{
		Use:     "queues",
		Short:   "List all queues",
		Long:    queuesHelp,
		Example: queuesExample,
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return c.prepare(c.app) },
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
	}
	flags := cmd.Flags()
	c.lookFlags.add(flags)
	return cmd
}

func (c *queuesCommand) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	names, err := c.registered(ctx)
	if err != nil {
		return err
	}
	overviews, errs := c.readAll(ctx, names)
	if c.json {
		err = writeQueuesJSON(c.app.out, c.endpoint.told, c.connection.prefix, overviews)
	} else {
		err = writeQueuesTable(c.app.out, c.endpoint.told, c.connection.prefix, overviews, len(errs) == 0)
	}
	return errors.Join(c.failures(errs, len(names)), err)
}

// An overview is what is shown of one queue.
type overview struct {
	queueStats
	Lease     time.Duration
	Published bool
}

// queueFailure says which queue could not be read.
type queueFailure struct {
	queue string
	err   error
}

// readAll reads some queues at a time. What could be read comes back in the order of the names.
func (c *queuesCommand) readAll(ctx context.Context, names []string) (read []overview, failed []queueFailure) {
	all, errs := make([]overview, len(names)), make([]error, len(names))
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(queuesAside, len(names)) {
		workers.Go(func() {
			for i := range next {
				all[i], errs[i] = c.read(ctx, names[i])
			}
		})
	}
	for i := range names {
		next <- i
	}
	close(next)
	workers.Wait()
	for i := range names {
		if errs[i] != nil {
			failed = append(failed, queueFailure{names[i], errs[i]})
		} else {
			read = append(read, all[i])
		}
	}
	return read, failed
}

func (c *queuesCommand) read(ctx context.Context, queue string) (overview, error) {
	out := overview{queueStats: queueStats{Queue: queue, Registered: true}}
	store, err := lease.NewStore(c.rdb, queue, &lease.StoreOptions{Prefix: c.connection.prefix})
	if err != nil {
		return out, err
	}
	defer store.Close(ctx) // nothing is open: it is only read
	policy, err := store.PolicyState(ctx)
	if err != nil {
		return out, err
	}
	out.Policies = policy.Mismatch()
	out.Lease, out.Published = policy.Lease, policy.Lease > 0
	if !out.Published {
		out.Lease = lease.DefaultLease
	}
	out.Stats, err = store.Stats(ctx)
	return out, err
}

// mostFailures bounds how many queues are named that could not be read.
const mostFailures = 5

func (c *queuesCommand) failures(failed []queueFailure, of int) error {
	var errs []error
	for _, f := range failed[:min(len(failed), mostFailures)] {
		errs = append(errs, fmt.Errorf("queue %s: %w", f.queue, c.endpoint.failed(f.err)))
	}
	if len(failed) > mostFailures {
		errs = append(errs, fmt.Errorf("%d of %d queues could not be read", len(failed), of))
	}
	return errors.Join(errs...)
}
