package reliable

import (
	"context"
	"strings"
	"time"

	"github.com/leaseq/leaseq/lease"
)

// ListOptions say which jobs a listing tells of; nil is valid. Those that name no job of the page cost as much as others.
type ListOptions struct {
	// After is the Next of the page before. Default: the beginning of the place.
	After Position
	// From and To bound when jobs are due, run out, died or were done, both included, on Redis' clock. Default: none.
	From, To time.Time
	// Kind of the jobs; default: any.
	Kind string
	// Class of dead jobs; default: any.
	Class DeadClass
	// Reason is a part of the last error's reason; default: any.
	Reason string
}

// A Page is what one call of List has found.
type Page struct {
	Jobs   []Info    // those that the options ask for, without payloads, in the place's order
	Next   Position  // where the next page begins
	More   bool      // there is more behind it
	Looked int       // how many jobs were looked at
	Now    time.Time // Redis' clock, in whole milliseconds
}

// List looks at up to n jobs (1–1,000) of a place in its order, and returns those that the options ask for: perhaps none,
// though there is More. Go on with After set to Next. What stays in the place comes exactly once, whatever comes and goes
// meanwhile; a job that leaves it while its page is read is left out. The cost of a page does not grow with the number of
// jobs, and no answer of Redis is larger than about 4 MiB.
func (q *Queue) List(ctx context.Context, place Place, n int, o *ListOptions) (Page, error) {
	var opts ListOptions
	if o != nil {
		opts = *o
	}
	listed, err := q.store.List(ctx, place, n, &lease.ListOptions{After: opts.After, From: opts.From, To: opts.To})
	if err != nil {
		return Page{}, err
	}
	page := Page{Next: listed.Next, More: listed.More, Looked: len(listed.IDs), Now: listed.Now}
	if len(listed.IDs) == 0 {
		return page, nil
	}
	infos, err := q.heads(ctx, listed.IDs)
	if err != nil {
		return Page{}, err
	}
	for i := range infos {
		if infos[i].Place == place && opts.want(&infos[i]) {
			page.Jobs = append(page.Jobs, infos[i])
		}
	}
	return page, nil
}

func (o *ListOptions) want(info *Info) bool {
	last, _ := info.LastError()
	return (o.Kind == "" || info.Kind == o.Kind) && (o.Class == noClass || info.Class == o.Class) &&
		(o.Reason == "" || strings.Contains(last.Reason, o.Reason))
}
