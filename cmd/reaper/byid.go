package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

// byIDCommand does something to jobs that are named.
type byIDCommand struct {
	jobFlags
	done string // what was done, as "promoted"
	ids  []string
	call func(ctx context.Context, ids []string) ([]outcome, error)
}

// An outcome is what became of one job.
type outcome struct {
	done string // if not as the command says
	err  error
}

func outcomes(errs []error, err error) ([]outcome, error) {
	out := make([]outcome, len(errs))
	for i := range errs {
		out[i].err = errs[i]
	}
	return out, err
}

const byIDHelp = `

Each job is told on a line of its own. One that was not there, or in another place, is told on standard error, and the exit
code is 1; the others are done all the same. With --json the output is one object: {"queue", "jobs": [{"id", "done",
"result", "place", "error"}]}.`

func (c *byIDCommand) finish(cmd *cobra.Command, check func() error) *cobra.Command {
	cmd.Args = cobra.MinimumNArgs(2)
	cmd.Long += byIDHelp
	return c.command(cmd, func(cmd *cobra.Command, args []string) error {
		c.ids = args[1:]
		if check != nil {
			if err := check(); err != nil {
				return err
			}
		}
		return c.prepare(cmd, args[0], 0)
	}, c.run)
}

func newRescheduleCommand(a *App) *cobra.Command {
	c := &byIDCommand{jobFlags: jobFlags{app: a}, done: "rescheduled"}
	var delay time.Duration
	c.call = func(ctx context.Context, ids []string) ([]outcome, error) {
		return outcomes(c.q.Reschedule(ctx, delay, ids...))
	}
	cmd := &cobra.Command{
		Use:     "reschedule QUEUE ID ... --delay D",
		Short:   "Give due jobs another due time",
		Long:    `Gives jobs in due another due time: --delay from now, by Redis' clock. Jobs in other places are left alone.`,
		Example: `  reaper reschedule orders close:10086 --delay 2h`,
	}
	cmd.Flags().DurationVar(&delay, "delay", 0, "how long from now until the jobs are due, as 30m")
	return c.finish(cmd, func() error {
		if delay <= 0 {
			return errors.New("--delay is missing, or not above 0, as 30m: 'reaper promote' makes jobs due at once")
		}
		return nil
	})
}

func newPromoteCommand(a *App) *cobra.Command {
	c := &byIDCommand{jobFlags: jobFlags{app: a}, done: "promoted"}
	c.call = func(ctx context.Context, ids []string) ([]outcome, error) { return outcomes(c.q.Promote(ctx, ids...)) }
	return c.finish(&cobra.Command{
		Use:     "promote QUEUE ID ...",
		Short:   "Make jobs due now",
		Long:    `Makes jobs in due claimable at once. One that is claimable already keeps its place in the order.`,
		Example: `  reaper promote orders close:10086 close:10087`,
	}, nil)
}

func newBuryCommand(a *App) *cobra.Command {
	c := &byIDCommand{jobFlags: jobFlags{app: a}, done: "buried"}
	var reason string
	c.call = func(ctx context.Context, ids []string) ([]outcome, error) {
		return outcomes(c.q.Bury(ctx, reason, ids...))
	}
	cmd := &cobra.Command{
		Use:     "bury QUEUE ID ... --reason R",
		Short:   "Put due jobs into dead",
		Long:    `Puts jobs in due into dead, from where 'reaper redrive' brings them back. It counts no failure; the reason is kept.`,
		Example: `  reaper bury orders close:10086 --reason 'customer asked us to wait'`,
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`text` that says why, for who finds the job")
	return c.finish(cmd, func() error {
		if reason == "" {
			return errors.New("--reason is missing: whoever finds the job among the dead ones will ask")
		}
		return nil
	})
}

func newCancelCommand(a *App) *cobra.Command {
	c := &byIDCommand{jobFlags: jobFlags{app: a}, done: "cancelled"}
	var yes, dryRun bool
	c.call = func(ctx context.Context, ids []string) ([]outcome, error) {
		if dryRun {
			return c.wouldCancel(ctx, ids)
		}
		removed, err := c.q.Cancel(ctx, ids...)
		out := make([]outcome, len(removed))
		for i := range removed {
			out[i].err = removed[i].Err
			if removed[i].Cancelling {
				out[i].done = "cancelling"
			}
		}
		return out, err
	}
	cmd := &cobra.Command{
		Use:   "cancel QUEUE ID ...",
		Short: "Remove jobs, wherever they are",
		Long: `Removes jobs for good, wherever they are. One that is being worked on is marked (cancelling): its handler's context ends at
the next heartbeat, and whatever ends its lease removes it. On a terminal it asks first.`,
		Example: `  reaper cancel orders close:10086
  reaper cancel orders close:10086 --dry-run`,
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "tell where the jobs are, and remove nothing")
	cmd = c.finish(cmd, nil)
	work := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !yes && !dryRun && isTerminal(c.in) {
			question := fmt.Sprintf("%d jobs go for good. Type yes to remove them: ", len(c.ids))
			if err := confirm(cmd.Context(), c.in, a.err, question, "yes", "that is not yes"); err != nil {
				return err
			}
		}
		return work(cmd, args)
	}
	return cmd
}

func (c *byIDCommand) wouldCancel(ctx context.Context, ids []string) ([]outcome, error) {
	infos, err := c.q.Inspect(ctx, ids...)
	out := make([]outcome, len(infos))
	for i := range infos {
		out[i].done = "would be cancelled in " + string(infos[i].Place)
		if infos[i].Place == reliable.Nowhere {
			out[i].err = reliable.ErrGone
		}
	}
	return out, err
}

// The JSON of a command about jobs that are named.
type byIDJSON struct {
	Queue string        `json:"queue"`
	Jobs  []outcomeJSON `json:"jobs"`
}

type outcomeJSON struct {
	ID     string         `json:"id"`
	Done   bool           `json:"done"`
	Result string         `json:"result,omitempty"` // as "promoted"
	Place  reliable.Place `json:"place,omitempty"`  // where the job is instead
	Error  string         `json:"error,omitempty"`
}

func (c *byIDCommand) run(ctx context.Context) error {
	out := byIDJSON{Queue: c.queue, Jobs: []outcomeJSON{}}
	failed := 0
	var failure error
	for at := 0; at < len(c.ids) && failure == nil; at += lease.MaxBatch {
		ids := c.ids[at:min(at+lease.MaxBatch, len(c.ids))]
		var results []outcome
		failure = c.jobFlags.call(ctx, func(ctx context.Context) (err error) {
			results, err = c.call(ctx, ids)
			return err
		})
		if failure != nil {
			break
		}
		truth := newTruths(c.timeout)
		for i, id := range ids {
			if results[i].err = truth.of(results[i].err); isUnknown(results[i].err) {
				failure = c.failed(results[i].err)
				break
			}
			one := c.outcome(id, results[i])
			if !one.Done {
				failed++
			}
			out.Jobs = append(out.Jobs, one)
		}
		truth.cancel()
	}
	errs := []error{failure, c.tell(&out)}
	if failed > 0 {
		errs = append(errs, fmt.Errorf("%d of %d jobs were left as they are", failed, len(c.ids)), c.known(ctx))
	}
	return errors.Join(errs...)
}

func (c *byIDCommand) outcome(id string, got outcome) outcomeJSON {
	one := outcomeJSON{ID: id, Done: got.err == nil, Result: c.done}
	if got.done != "" {
		one.Result = got.done
	}
	if got.err == nil {
		return one
	}
	one.Result, one.Error = "", "no such job: it was never enqueued, was acked, or was removed"
	var elsewhere *reliable.LostError
	if errors.As(got.err, &elsewhere) {
		one.Place, one.Error = elsewhere.Place, "it is in "+string(elsewhere.Place)
	}
	if isRefusal(got.err) {
		one.Error = got.err.Error()
	}
	return one
}

func (c *byIDCommand) tell(out *byIDJSON) error {
	if c.json {
		return writeJSONLine(c.app.out, out)
	}
	var err error
	for _, one := range out.Jobs {
		if one.Done {
			_, err = fmt.Fprintf(c.app.out, "%s  %s\n", plain(one.ID), one.Result)
		} else {
			fmt.Fprintf(c.app.err, "%s  %s\n", plain(one.ID), one.Error)
		}
	}
	return err
}
