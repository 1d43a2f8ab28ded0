package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/lease"
)

const queueHelp = `What is done to a queue as a whole.`

const queueExample = `  reaper queue delete orders --dry-run`

func newQueueCommand(a *App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "queue",
		Short:   "Do something to a queue as a whole",
		Long:    queueHelp,
		Example: queueExample,
		Args:    cobra.NoArgs, // so that a command which does not exist is an error
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newDeleteCommand(a))
	return cmd
}

const deleteHelp = `Deletes everything of a queue, for good: its jobs in every place with their payloads, its counters, policy, sessions and
idempotency records, of all its partitions, and its name in the registry.

It first shows what would go (and ends there with --dry-run), and asks for the queue's name; without a terminal it wants
--yes. While jobs are in processing it refuses: end the consumers, or wait until the jobs are done. With --force they are
deleted too; whoever works on one finds at its next heartbeat that its lease is lost, and its effects stay.

Jobs are deleted in batches, each one short call, and the keys when no job is left. It can be interrupted, and run again
to go on: no job is ever deleted in part. Idempotency records, and partitions, are looked for among all keys of the
server, about 1,000 at a time.

End producers and consumers first. A job that is enqueued meanwhile goes too, or stays whole; then the queue stays with
it, and the exit code is 1. A producer that goes on after the end makes the queue anew, and puts it into the
registry again within a minute of use, as consumers do. A call that is under way while the keys go can get the answer
that its outcome can never be known. A sidecar notices within some seconds that the queue has gone: that
is waited for, up to --wait, since until then it makes a key of its own again and again.`

const deleteExample = `  reaper queue delete orders --dry-run
  reaper queue delete orders
  reaper queue delete orders --yes --force`

// deleteCommand is `reaper queue delete`.
type deleteCommand struct {
	app               *App
	connection        connectionFlags
	yes, force        bool
	dryRun            bool
	batch             int
	timeout, patience time.Duration

	queue    string
	in       io.Reader
	endpoint *endpoint
	rdb      redis.UniversalClient
}

func newDeleteCommand(a *App) *cobra.Command {
	c := &deleteCommand{app: a}
	cmd := &cobra.Command{
		Use:     "delete QUEUE",
		Short:   "Delete everything of a queue",
		Long:    deleteHelp,
		Example: deleteExample,
		Args:    cobra.ExactArgs(1),
		PreRunE: func(cmd *cobra.Command, args []string) error {
			c.in = cmd.InOrStdin()
			return c.prepare(args[0])
		},
		RunE:              func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
		ValidArgsFunction: completeQueues(a, 1),
	}
	flags := cmd.Flags()
	c.connection.add(flags)
	flags.BoolVar(&c.yes, "yes", false, "do not ask")
	flags.BoolVar(&c.force, "force", false, "delete jobs in processing too")
	flags.BoolVar(&c.dryRun, "dry-run", false, "show what would go, and delete nothing")
	flags.IntVar(&c.batch, "batch", lease.DefaultBatch, fmt.Sprintf("jobs that one call deletes at most, 1 to %d", lease.MaxBatch))
	flags.DurationVar(&c.timeout, "timeout", 10*time.Second, "how long one call may take, Redis being away included")
	flags.DurationVar(&c.patience, "wait", 10*time.Second, "how long to wait at the end for sidecars to notice; 0: not at all")
	return cmd
}

func (c *deleteCommand) prepare(queue string) (err error) {
	c.queue = queue
	switch {
	case c.batch < 1 || c.batch > lease.MaxBatch:
		return fmt.Errorf("--batch %d: want 1 to %d", c.batch, lease.MaxBatch)
	case c.timeout <= 0:
		return fmt.Errorf("--timeout %v: want more than 0, as 10s", c.timeout)
	case c.patience < 0:
		return fmt.Errorf("--wait %v: want 0 or more, as 10s", c.patience)
	case !c.yes && !c.dryRun && !isTerminal(c.in):
		return errors.New("standard input is no terminal, so nobody can be asked: want --yes, or --dry-run")
	}
	if err := keys.ValidateName("queue name", queue); err != nil {
		return err
	}
	if c.endpoint, err = c.connection.parse(); err != nil {
		return err
	}
	c.rdb = c.app.open(c.endpoint, true)
	return nil
}

func (c *deleteCommand) run(ctx context.Context) error {
	s, err := c.survey(ctx)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("nothing was deleted: %w", context.Cause(ctx))
	case err != nil:
		return err
	case s.empty():
		return c.nothingThere(ctx)
	}
	if err := s.print(c.app.out, c.endpoint.told, c.connection.prefix); err != nil {
		return err
	}
	n := s.sum.Processing
	switch {
	case c.dryRun && n > 0 && !c.force:
		_, err := fmt.Fprintf(c.app.out, "Nothing would be deleted, since %d jobs are in processing: --force deletes these too.\n", n)
		return err
	case c.dryRun:
		return nil
	case n > 0 && !c.force:
		return busy(c.queue, n)
	}
	if !c.yes {
		if err := c.confirm(ctx); err != nil {
			return err
		}
	}
	d := &deletion{c: c, survey: s, show: newProgress(c.app.err, s.jobs(c.force))}
	err = d.run(ctx)
	d.show.hide()
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("stopped: %w (deleted so far: %s): run it again to go on", context.Cause(ctx), d.books())
	case err != nil:
		return fmt.Errorf("%w (deleted so far: %s)", err, d.books())
	}
	_, err = fmt.Fprintf(c.app.out, "Deleted: %s\n", d.books())
	return err
}

func busy(queue string, n int64) error {
	return fmt.Errorf("queue %s has %d jobs in processing, and nothing was deleted: end its consumers, or wait until the jobs are done; "+
		"--force deletes these too", queue, n)
}

// nothingThere says that there is no such queue.
func (c *deleteCommand) nothingThere(ctx context.Context) error {
	known, err := c.known(ctx)
	if err != nil {
		return err
	}
	return fmt.Errorf("there is nothing of a queue %s under prefix %s; known are: %s", c.queue, c.connection.prefix, list(known))
}

// failed says what an error of Redis, or of the way to it, means.
func (c *deleteCommand) failed(err error) error {
	switch {
	case err == nil:
		return nil
	case isUnknown(err):
		return &ExitError{Code: exitRedis, Err: fmt.Errorf("it is not known whether the last batch was deleted: run this again: %w", err)}
	}
	return c.endpoint.failed(err)
}
