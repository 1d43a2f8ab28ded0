package reaper

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leaseq/leaseq/lease"
)

// SweepOptions are the optional settings of one pass; nil is valid.
type SweepOptions struct {
	// NoGrace ends at once what has run out, also after a time in which nobody swept. It is for tests, and for operators
	// who know that no holder lives: a holder that lives, but could not reach Redis, loses its jobs to others.
	NoGrace bool

	// Max is how many leases of each queue are ended at most. Default, 0: all that have run out.
	Max int
}

// A QueueError says which queue could not be swept.
type QueueError struct {
	Queue string
	Err   error
}

func (e *QueueError) Error() string { return fmt.Sprintf("sweep queue %s: %v", e.Queue, e.Err) }

// Unwrap returns the cause.
func (e *QueueError) Unwrap() error { return e.Err }

// Sweep is one pass over all queues, side by side, for cron and for tests. It returns, for each queue that was asked
// about, what was moved; the other fields of a result are those of its last call.
//
// Without NoGrace a pass that finds that nobody swept a queue for more than half a lease waits until the grace is over,
// a little more than one lease, and ends then what has run out: give it a context with a longer deadline. Passes that
// come more often than every half lease wait only once.
//
// A queue that fails does not keep the others from being swept: errors are joined, each a [*QueueError], and the
// results hold what had been done before. An error leaves nothing half done; the next pass goes on.
func (r *Reaper) Sweep(ctx context.Context, o *SweepOptions) (map[string]lease.Expired, error) {
	var opts SweepOptions
	if o != nil {
		opts = *o
	}
	if opts.Max < 0 {
		return nil, fmt.Errorf("reaper: Max %d: want 0 for no bound, or more", opts.Max)
	}
	link := lease.NewLink(r.rdb)
	defer link.Close()
	names, err := r.queues(ctx, link, false)
	if err != nil {
		r.tellError("", err)
		return nil, fmt.Errorf("reaper: %w", err)
	}
	var mu sync.Mutex
	var errs []error
	results := make(map[string]lease.Expired, len(names))
	var all sync.WaitGroup
	for _, queue := range names {
		all.Go(func() {
			got, err := r.sweepOne(ctx, link, queue, &opts)
			mu.Lock()
			defer mu.Unlock()
			results[queue] = got
			if err != nil {
				errs = append(errs, &QueueError{Queue: queue, Err: err})
			}
		})
	}
	all.Wait()
	return results, errors.Join(errs...)
}

func (r *Reaper) sweepOne(ctx context.Context, link *lease.Link, queue string, o *SweepOptions) (lease.Expired, error) {
	store, err := r.store(queue, link)
	if err != nil {
		return lease.Expired{}, err
	}
	defer r.closeStore(store)
	sweeper, err := lease.NewSweeper(store, &lease.SweeperOptions{
		Batch:   r.opts.Batch,
		OnSweep: func(e lease.Expired) { r.tellSweep(queue, e) },
	})
	if err != nil {
		return lease.Expired{}, err
	}
	got, err := sweeper.Sweep(ctx, o.Max, o.NoGrace)
	if err == nil {
		err = trim(ctx, store)
	}
	if err != nil {
		r.tellError(queue, err)
	}
	return got, err
}

// What is spent on forgetting old sessions in one pass: where cron is all there is, nobody else does it.
const (
	trimPages = 100
	trimBound = 5 * time.Second
)

func trim(ctx context.Context, store *lease.Store) error {
	ctx, cancel := context.WithTimeout(ctx, trimBound)
	defer cancel()
	cursor := "0"
	for range trimPages {
		next, _, err := store.TrimSessions(ctx, cursor)
		if err != nil {
			return fmt.Errorf("forget old sessions: %w", err)
		}
		if cursor = next; cursor == "0" {
			break
		}
	}
	return nil
}
