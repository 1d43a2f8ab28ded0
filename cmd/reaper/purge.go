package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/leaseq/leaseq/reliable"
)

const purgeHelp = `Deletes jobs of one place for good: those that are named, or with --all those that --kind, --class, --reason-has,
--older-than and --newer-than want. 'reaper export' keeps a copy first. Of due jobs --all takes those that are due by now; 'reaper queue
delete' deletes a whole queue. Jobs in processing are never touched.

It shows how many jobs would go (and ends there with --dry-run), and asks for the queue's name; without a terminal it wants
--yes. It goes in batches, and can be interrupted and run again. Idempotency records of jobs that are named, or found by
a filter, go with them; with --all alone they stay for their retention.

With --json the output is one object: {"queue", "dry_run", "done", "left"}.`

const purgeExample = `  reaper purge refunds --all --class no-handler --older-than 720h --dry-run
  reaper purge refunds --all --class no-handler --older-than 720h
  reaper purge refunds refund:10086 --yes`

func newPurgeCommand(a *App) *cobra.Command {
	c := &overFlags{jobFlags: jobFlags{app: a}}
	yes := false
	cmd := &cobra.Command{Use: "purge QUEUE (ID ... | --all)", Short: "Delete jobs of one place", Long: purgeHelp, Example: purgeExample}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c.finish(cmd, reliable.Dead, []reliable.Place{reliable.Dead, reliable.Due, reliable.Done}, func() error {
		if !yes && !c.dryRun && !isTerminal(c.in) {
			return errors.New("standard input is no terminal, so nobody can be asked: want --yes, or --dry-run")
		}
		return nil
	}, func(ctx context.Context) error {
		if !yes && !c.dryRun {
			if err := c.confirmPurge(ctx); err != nil {
				return err
			}
		}
		place := reliable.Place(c.filter.place)
		p := &passage{
			f: c, what: "purged", show: newProgress(a.err, -1),
			byID: func(ctx context.Context, ids []string) ([]error, error) { return c.q.Purge(ctx, place, ids...) },
			next: func(ctx context.Context, cursor *reliable.Cursor, n int) (int, error) {
				return c.q.PurgeNext(ctx, place, cursor, n)
			},
		}
		return p.end(ctx, p.run(ctx))
	})
}

// confirmPurge counts what would go, and asks for the queue's name.
func (f *overFlags) confirmPurge(ctx context.Context) error {
	look := *f
	look.dryRun = true
	p := &passage{f: &look, what: "purged", show: newProgress(f.app.err, -1)}
	if err := p.run(ctx); err != nil {
		return err
	}
	p.show.hide()
	if p.done == 0 {
		return errors.Join(errors.New("there is nothing to purge"), f.known(ctx))
	}
	question := fmt.Sprintf("%d jobs in %s would go. This cannot be undone. Type the queue's name to delete them: ", p.done, f.filter.place)
	return confirm(ctx, f.in, f.app.err, question, f.queue, "that is not its name")
}
