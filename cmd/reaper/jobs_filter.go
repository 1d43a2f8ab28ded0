package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

// filterFlags say which jobs of a place a command is for.
type filterFlags struct {
	place                string
	kind, class, reason  string
	olderThan, newerThan time.Duration
	batch                int

	places []reliable.Place // that --place may name
}

func (f *filterFlags) add(cmd *cobra.Command, place reliable.Place, places ...reliable.Place) {
	flags := cmd.Flags()
	f.places = places
	f.place = string(place)
	if len(places) > 1 {
		flags.StringVar(&f.place, "place", string(place), "`place` of the jobs: "+joined(places))
		_ = cmd.RegisterFlagCompletionFunc("place", cobra.FixedCompletions(words(places), cobra.ShellCompDirectiveNoFileComp))
	}
	flags.StringVar(&f.kind, "kind", "", "only jobs of this `kind`")
	flags.StringVar(&f.class, "class", "", "only dead jobs of this `class`: "+joined(reliable.DeadClasses()))
	flags.StringVar(&f.reason, "reason-has", "", "only jobs whose last error has this `text` in it")
	flags.DurationVar(&f.olderThan, "older-than", 0, "only jobs that died (were due, or run out) longer ago than this, as 24h")
	flags.DurationVar(&f.newerThan, "newer-than", 0, "only jobs that died (were due, or run out) since this long, as 1h")
	flags.IntVar(&f.batch, "batch", lease.DefaultBatch, fmt.Sprintf("jobs that one call takes or looks at, 1 to %d", lease.MaxBatch))
	_ = cmd.RegisterFlagCompletionFunc("class", cobra.FixedCompletions(words(reliable.DeadClasses()), cobra.ShellCompDirectiveNoFileComp))
}

func words[T ~string](values []T) []string {
	out := make([]string, len(values))
	for i, value := range values {
		out[i] = string(value)
	}
	return out
}

func joined[T ~string](values []T) string { return strings.Join(words(values), ", ") }

func (f *filterFlags) check() error {
	var errs []error
	if !slices.Contains(f.places, reliable.Place(f.place)) {
		errs = append(errs, fmt.Errorf("--place %q: want one of %s", f.place, joined(f.places)))
	}
	if f.class != "" && !slices.Contains(reliable.DeadClasses(), reliable.DeadClass(f.class)) {
		errs = append(errs, fmt.Errorf("--class %q: want one of %s", f.class, joined(reliable.DeadClasses())))
	}
	if f.class != "" && f.place != string(reliable.Dead) {
		errs = append(errs, errors.New("--class is for dead jobs"))
	}
	if f.olderThan < 0 || f.newerThan < 0 {
		errs = append(errs, errors.New("--older-than, --newer-than: want more than 0, as 24h"))
	}
	if f.batch < 1 || f.batch > lease.MaxBatch {
		errs = append(errs, fmt.Errorf("--batch %d: want 1 to %d", f.batch, lease.MaxBatch))
	}
	return errors.Join(errs...)
}

// given reports whether anything but the place narrows the jobs down.
func (f *filterFlags) given() bool {
	return f.kind != "" || f.class != "" || f.reason != "" || f.olderThan > 0 || f.newerThan > 0
}

// A walk goes through a place, page by page.
type walk struct {
	f     *jobFlags
	place reliable.Place
	batch int
	o     reliable.ListOptions
	page  reliable.Page // the last one
}

// begin asks for Redis' clock, by which ages are meant. A bounded walk ends at what has died, or was due, by now, so that
// it comes to an end whatever is added.
func (f *filterFlags) begin(ctx context.Context, jobs *jobFlags, bounded bool) (*walk, error) {
	w := &walk{f: jobs, place: reliable.Place(f.place), batch: f.batch, o: reliable.ListOptions{
		Kind: f.kind, Class: reliable.DeadClass(f.class), Reason: f.reason,
	}}
	if !bounded && f.olderThan == 0 && f.newerThan == 0 {
		return w, nil
	}
	var now time.Time
	err := jobs.call(ctx, func(ctx context.Context) error {
		page, err := jobs.q.List(ctx, w.place, 1, nil)
		now = page.Now
		return err
	})
	if bounded {
		w.o.To = now
	}
	if f.olderThan > 0 {
		w.o.To = now.Add(-f.olderThan)
	}
	if f.newerThan > 0 {
		w.o.From = now.Add(-f.newerThan)
	}
	return w, err
}

// next reads the next page; false after the last one.
func (w *walk) next(ctx context.Context) (bool, error) {
	if w.page.Looked > 0 && !w.page.More {
		return false, nil
	}
	err := w.f.call(ctx, func(ctx context.Context) (err error) {
		w.page, err = w.f.q.List(ctx, w.place, w.batch, &w.o)
		return err
	})
	w.o.After = w.page.Next
	return err == nil && w.page.Looked > 0, err
}

// ids are those of the page's jobs.
func (w *walk) ids() []string {
	out := make([]string, len(w.page.Jobs))
	for i := range w.page.Jobs {
		out[i] = w.page.Jobs[i].ID
	}
	return out
}
