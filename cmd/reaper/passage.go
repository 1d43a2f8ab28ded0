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

// overFlags are what commands take that do something to many jobs: those that are named, or all that a filter wants.
type overFlags struct {
	jobFlags
	filter filterFlags
	all    bool
	dryRun bool
	rate   float64
	ids    []string
}

func (f *overFlags) finish(cmd *cobra.Command, place reliable.Place, places []reliable.Place, check func() error, work func(ctx context.Context) error) *cobra.Command {
	flags := cmd.Flags()
	f.filter.add(cmd, place, places...)
	flags.BoolVar(&f.all, "all", false, "all jobs of the place that the flags below want, instead of named ones")
	flags.BoolVar(&f.dryRun, "dry-run", false, "count the jobs, and leave them as they are")
	flags.Float64Var(&f.rate, "rate", 0, "jobs a second at most; 0: as fast as it goes")
	cmd.Args = cobra.MinimumNArgs(1)
	return f.command(cmd, func(cmd *cobra.Command, args []string) error {
		f.ids = args[1:]
		switch {
		case f.all == (len(f.ids) > 0):
			return errors.New("want either IDs, or --all")
		case !f.all && f.filter.given():
			return errors.New("--kind, --class, --reason-has, --older-than and --newer-than are for --all")
		case f.rate < 0:
			return fmt.Errorf("--rate %v: want 0 or more", f.rate)
		}
		if err := f.filter.check(); err != nil {
			return err
		}
		f.in = cmd.InOrStdin()
		if check != nil {
			if err := check(); err != nil {
				return err
			}
		}
		return f.prepare(cmd, args[0], 0)
	}, work)
}

// A passage is one run over many jobs, and its books.
type passage struct {
	f    *overFlags
	show *progress
	what string // as "redriven"

	done, left int64
	unsure     bool // a call was done whose answer was lost for good, and with it how many jobs it was about
	began      time.Time
	byID       func(ctx context.Context, ids []string) ([]error, error)
	next       func(ctx context.Context, cursor *reliable.Cursor, n int) (int, error) // for all, without a filter
}

// batch is how many jobs the next call takes, so that a slow rate is not one of bursts.
func (p *passage) batch() int {
	if p.f.rate == 0 {
		return p.f.filter.batch
	}
	return max(1, min(p.f.filter.batch, int(p.f.rate/4)))
}

// pace waits until so many jobs may have been done.
func (p *passage) pace(ctx context.Context) error {
	if p.f.rate == 0 || p.done == 0 {
		return nil
	}
	due := p.began.Add(time.Duration(float64(p.done) / p.f.rate * float64(time.Second)))
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stopped: %w", context.Cause(ctx))
	}
}

// run does it to all.
func (p *passage) run(ctx context.Context) error {
	p.began = time.Now()
	switch {
	case !p.f.all:
		return p.named(ctx, p.f.ids, true)
	case p.f.filter.given() || p.f.dryRun:
		return p.filtered(ctx)
	}
	for cursor := (reliable.Cursor{}); !cursor.Done; {
		if err := p.pace(ctx); err != nil {
			return err
		}
		err := p.f.call(ctx, func(ctx context.Context) error {
			n, err := p.next(ctx, &cursor, p.batch())
			p.done += int64(n)
			p.unsure = p.unsure || isUnknown(err)
			return err
		})
		if err != nil {
			return err
		}
		p.progress()
	}
	return nil
}

func (p *passage) progress() { p.show.update(p.done, "%d jobs %s", p.done, p.what) }

// filtered looks through the place, up to what is there already.
func (p *passage) filtered(ctx context.Context) error {
	w, err := p.f.filter.begin(ctx, &p.f.jobFlags, true)
	for err == nil {
		var ok bool
		if ok, err = w.next(ctx); !ok || err != nil {
			return err
		}
		if p.f.dryRun {
			p.done += int64(len(w.page.Jobs))
			p.progress()
			continue
		}
		err = p.named(ctx, w.ids(), false)
	}
	return err
}

// named does it to jobs by their IDs. What is not in its place any more is told where somebody has named it, and else
// counted: others work on the queue too.
func (p *passage) named(ctx context.Context, ids []string, tell bool) error {
	for len(ids) > 0 {
		if err := p.pace(ctx); err != nil {
			return err
		}
		some := ids[:min(p.batch(), len(ids))]
		ids = ids[len(some):]
		var results []error
		err := p.f.call(ctx, func(ctx context.Context) (err error) {
			if p.f.dryRun {
				results, err = p.wouldDo(ctx, some)
			} else {
				results, err = p.byID(ctx, some)
			}
			return err
		})
		if err != nil {
			return err
		}
		truth := newTruths(p.f.timeout)
		defer truth.cancel()
		for i, id := range some {
			switch err := truth.of(results[i]); {
			case err == nil:
				p.done++
			case isUnknown(err):
				return p.f.failed(err)
			default:
				p.left++
				if tell {
					p.show.say("%s  %s", plain(id), elsewhere(err))
				}
			}
		}
		p.progress()
	}
	return nil
}

func elsewhere(err error) string {
	var lost *reliable.LostError
	if errors.As(err, &lost) {
		return "it is in " + string(lost.Place)
	}
	return "no such job there"
}

// wouldDo says what a call by ID would answer.
func (p *passage) wouldDo(ctx context.Context, ids []string) ([]error, error) {
	infos, err := p.f.q.Inspect(ctx, ids...)
	results := make([]error, len(infos))
	for i := range infos {
		switch place := infos[i].Place; {
		case place == reliable.Nowhere:
			results[i] = reliable.ErrGone
		case place != reliable.Place(p.f.filter.place):
			results[i] = &lease.LostError{ID: infos[i].ID, Place: place}
		}
	}
	return results, err
}

// The JSON of a command that does something to many jobs.
type passageJSON struct {
	Queue  string `json:"queue"`
	DryRun bool   `json:"dry_run"`
	Done   int64  `json:"done"`               // in a dry run: what would be done
	Least  bool   `json:"at_least,omitempty"` // there are more: the answer to a call was lost
	Left   int64  `json:"left"`               // were not in their place any more
}

// end tells the books, and returns what is wrong with them.
func (p *passage) end(ctx context.Context, err error) error {
	p.show.hide()
	errs := []error{err}
	if p.f.json {
		errs = append(errs, writeJSONLine(p.f.app.out, passageJSON{p.f.queue, p.f.dryRun, p.done, p.unsure, p.left}))
	} else {
		text := fmt.Sprintf("%d jobs %s", p.done, p.what)
		if p.f.dryRun {
			text = fmt.Sprintf("%d jobs would be %s", p.done, p.what)
		}
		if p.unsure {
			text = "at least " + text
		}
		if p.left > 0 {
			text += fmt.Sprintf(", %d were not in %s any more", p.left, p.f.filter.place)
		}
		_, told := fmt.Fprintln(p.f.app.out, text)
		errs = append(errs, told)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		errs = append(errs, errors.New("run it again to go on"))
	case err == nil && p.left > 0 && !p.f.all:
		errs = append(errs, fmt.Errorf("%d of %d jobs were left as they are", p.left, len(p.f.ids)), p.f.known(ctx))
	case err == nil && p.done == 0:
		errs = append(errs, p.f.known(ctx))
	}
	return errors.Join(errs...)
}
