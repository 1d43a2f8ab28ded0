package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

const listHelp = `Lists jobs of one place of a queue in its order: due jobs by their due time, those in processing by when their leases run
out, dead ones by when they died, and done ones, of which only the ID is kept (and the result, which 'reaper show' tells), by when
they were acked.

--kind, --older-than, --newer-than, --reason-has and, for dead jobs, --class narrow it down; they are applied page by page,
so a rare kind among millions takes a while, and can be interrupted. At most --limit jobs are shown; where there are more
it says with which --after to go on. What stays in the place comes exactly once in all pages together, whatever comes and
goes meanwhile. Payloads are not read: 'reaper show' tells one.

With --json the output is one object: {"queue", "place", "jobs": [{…}], "next"}; next is null after the last page.`

const listExample = `  reaper list orders
  reaper list orders --place processing
  reaper list orders --place due --older-than 10m --limit 1000 --json | jq -r '.jobs[].id'`

const deadHelp = `Lists the dead jobs of a queue, those that died first at the top, with the reason of each: its class in one word, and the
last error's text. The classes:

  discarded         its handler said that no further try makes sense
  retries-used-up   it failed once more than its limit
  leases-expired    its worker died, or hung, once more than its limit
  bad-payload       its payload does not decode into what its handler takes
  undecodable       its record does not decode; its bytes are kept
  no-record         its record was gone
  no-handler        no consumer had a handler for its kind
  too-late          its deadline had passed before it could start
  buried-by-hand    an operator put it there

--summary counts them by kind and class instead. The other flags are those of 'reaper list'. 'reaper show' tells everything
of one job, 'reaper edit --redrive' mends one, 'reaper redrive' puts jobs back to due.`

const deadExample = `  reaper dead refunds
  reaper dead refunds --summary
  reaper dead refunds --kind refund.pay --class bad-payload --newer-than 24h`

// listCommand is `reaper list`, and `reaper dead`.
type listCommand struct {
	jobFlags
	filter  filterFlags
	limit   int
	after   string
	summary bool
}

func newListCommand(a *App) *cobra.Command {
	c := &listCommand{jobFlags: jobFlags{app: a}}
	cmd := &cobra.Command{Use: "list QUEUE", Short: "List jobs of a queue", Long: listHelp, Example: listExample, Args: cobra.ExactArgs(1)}
	c.filter.add(cmd, reliable.Due, reliable.Due, reliable.Processing, reliable.Dead, reliable.Done)
	return c.finish(cmd)
}

func newDeadCommand(a *App) *cobra.Command {
	c := &listCommand{jobFlags: jobFlags{app: a}}
	cmd := &cobra.Command{Use: "dead QUEUE", Short: "List dead jobs, and why they are dead", Long: deadHelp, Example: deadExample, Args: cobra.ExactArgs(1)}
	c.filter.add(cmd, reliable.Dead, reliable.Dead)
	cmd.Flags().BoolVar(&c.summary, "summary", false, "count by kind and class")
	return c.finish(cmd)
}

func (c *listCommand) finish(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().IntVar(&c.limit, "limit", 50, "how many jobs to show at most")
	cmd.Flags().StringVar(&c.after, "after", "", "`position` that an earlier listing told, to go on behind it")
	return c.command(cmd, func(cmd *cobra.Command, args []string) error {
		switch {
		case c.limit < 1:
			return fmt.Errorf("--limit %d: want 1 or more", c.limit)
		case c.summary && c.after != "":
			return fmt.Errorf("--summary counts all: it has no --after")
		}
		if err := c.filter.check(); err != nil {
			return err
		}
		if _, err := reliable.ParsePosition(c.after); err != nil {
			return fmt.Errorf("--after: %w", err)
		}
		return c.prepare(cmd, args[0], 0)
	}, c.run)
}

func (c *listCommand) run(ctx context.Context) error {
	w, err := c.filter.begin(ctx, &c.jobFlags, false)
	if err != nil {
		return err
	}
	w.o.After, _ = reliable.ParsePosition(c.after)
	if c.summary {
		return c.summarize(ctx, w)
	}
	var jobs []reliable.Info
	more := false
	for len(jobs) < c.limit {
		if !c.filter.given() {
			w.batch = min(c.filter.batch, c.limit-len(jobs))
		}
		ok, err := w.next(ctx)
		if err != nil {
			return err
		}
		if more = w.page.More; !ok {
			break
		}
		jobs = append(jobs, w.page.Jobs...)
	}
	next := ""
	switch {
	case len(jobs) > c.limit: // the page held more than there was room for: go on behind the last that is shown
		jobs = jobs[:c.limit]
		next = lease.PositionOf(jobs[c.limit-1].At, jobs[c.limit-1].ID).String()
	case more:
		next = w.page.Next.String()
	}
	if len(jobs) == 0 {
		if err := c.known(ctx); err != nil {
			return err
		}
	}
	return c.tell(jobs, next)
}
