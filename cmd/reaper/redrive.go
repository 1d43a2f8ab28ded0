package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/leaseq/leaseq/reliable"
)

const redriveHelp = `Puts dead jobs back to due: those that are named, or with --all those that --kind, --class, --reason-has, --older-than and
--newer-than want. A redriven job is due at once, begins with fresh counters, and keeps its ID, payload, headers, limits and
last errors; one redrive is counted.

--all takes those that are dead when it begins, and so ends though jobs die again meanwhile. It goes in batches, each one
short call; --rate bounds how many jobs a second come back, so that workers are not flooded. It can be interrupted, and even
killed, anywhere: each job is dead or due. Run it again to go on. Ages are counted from when it is run: jobs that died again
since then are taken, too, unless --older-than leaves them out.

With --json the output is one object: {"queue", "dry_run", "done", "left"}.`

const redriveExample = `  reaper redrive refunds refund:10086
  reaper redrive refunds --all --class leases-expired --dry-run
  reaper redrive refunds --all --rate 50 --older-than 1h`

func newRedriveCommand(a *App) *cobra.Command {
	c := &overFlags{jobFlags: jobFlags{app: a}}
	return c.finish(&cobra.Command{
		Use: "redrive QUEUE (ID ... | --all)", Short: "Put dead jobs back to due", Long: redriveHelp, Example: redriveExample,
	}, reliable.Dead, []reliable.Place{reliable.Dead}, nil, func(ctx context.Context) error {
		p := &passage{
			f: c, what: "redriven", show: newProgress(a.err, -1),
			byID: func(ctx context.Context, ids []string) ([]error, error) { return c.q.Redrive(ctx, ids...) },
			next: c.redriveNext,
		}
		return p.end(ctx, p.run(ctx))
	})
}

func (f *overFlags) redriveNext(ctx context.Context, cursor *reliable.Cursor, n int) (int, error) {
	return f.q.RedriveNext(ctx, cursor, n)
}
