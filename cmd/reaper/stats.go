package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/lease"
)

const statsHelp = `Shows in detail how queues are doing ('reaper queues' is the overview): jobs that are due (of these claimable now), in
processing (of these with a lease that ran out and that nobody has swept yet), and dead; how long the oldest due job has
been claimable; when the queue was last swept; and its counters, which only grow.

Without arguments all queues of the registry are shown. A named queue that nobody has ever used is an error. With
--json the output is one object: {"redis", "prefix", "queues": [{"queue", "registered", "due", "claimable",
"processing", "expired", "dead", "done", "records", "sessions", "oldest_due_ms", "next_expiry_ms", "since_sweep_ms",
"paused", "pause_left_ms", "counters", "policies_differ"}]}; times are null where there is none. A queue that is paused
('reaper pause') is told, and deployments that are live and publish different limits ('reaper policy show'). It only reads.`

const statsExample = `  reaper stats
  reaper stats --redis redis://redis:6379/0 orders mail
  reaper stats --json | jq -r '.queues[] | select(.dead > 0) | .queue'`

// statsCommand is `reaper stats`.
type statsCommand struct {
	app *App
	lookFlags
	queues []string // nil: all
}

func newStatsCommand(a *App) *cobra.Command {
	c := &statsCommand{app: a}
	cmd := &cobra.Command{
		Use:     "stats [queue ...]",
		Short:   "Show in detail how queues are doing",
		Long:    statsHelp,
		Example: statsExample,
		PreRunE: func(_ *cobra.Command, args []string) error { return c.prepareArgs(args) },
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
	}
	flags := cmd.Flags()
	c.lookFlags.add(flags)
	return cmd
}

func (c *statsCommand) prepareArgs(args []string) error {
	for i, queue := range args {
		if err := keys.ValidateName("queue name", queue); err != nil {
			return err
		}
		if slices.Contains(args[:i], queue) {
			return fmt.Errorf("queue %q is named twice: name each queue once", queue)
		}
	}
	if len(args) > 0 {
		c.queues = args
	}
	return c.lookFlags.prepare(c.app)
}

func (c *statsCommand) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	known, err := c.registered(ctx)
	if err != nil {
		return err
	}
	names := c.queues
	if names == nil {
		names = known
	}
	shown := []queueStats{} // never null in JSON
	var errs []error
	for _, queue := range names {
		got, err := c.read(ctx, queue)
		registered := slices.Contains(known, queue)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("queue %s: %w", queue, c.endpoint.failed(err)))
		case !registered && unused(&got.Stats):
			errs = append(errs, fmt.Errorf("queue %s: nobody has used it under prefix %s; known are: %s", queue, c.connection.prefix, list(known)))
		default:
			got.Queue, got.Registered = queue, registered
			shown = append(shown, got)
		}
	}
	if c.json {
		err = writeJSON(c.app.out, c.endpoint.told, c.connection.prefix, shown)
	} else {
		err = writeTables(c.app.out, c.endpoint.told, c.connection.prefix, shown, len(errs) == 0)
	}
	return errors.Join(append(errs, err)...)
}

func (c *statsCommand) read(ctx context.Context, queue string) (out queueStats, err error) {
	store, err := lease.NewStore(c.rdb, queue, &lease.StoreOptions{Prefix: c.connection.prefix})
	if err != nil {
		return out, err
	}
	defer store.Close(ctx) // nothing is open: it was only read
	policy, err := store.PolicyState(ctx)
	if err != nil {
		return out, err
	}
	out.Policies = policy.Mismatch()
	out.Stats, err = store.Stats(ctx)
	return out, err
}

// unused reports whether nothing of a queue is in Redis.
func unused(s *lease.Stats) bool {
	return s.Due+s.Processing+s.Dead+s.Done+s.Records+s.Sessions == 0 && s.SinceSweep < 0 && len(s.Counters) == 0
}

// list joins names for an error's text, not too many of them.
func list(names []string) string {
	switch {
	case len(names) == 0:
		return "none"
	case len(names) > maxNames:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), len(names)-maxNames)
	}
	return strings.Join(names, ", ")
}
