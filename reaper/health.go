package reaper

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/leaseq/leaseq/internal/pulse"
	"github.com/leaseq/leaseq/lease"
)

// ErrNotRunning is what Health returns before Run and after it.
var ErrNotRunning = lease.ErrNotRunning

// silentAfter is how much later than it should a reading of the registry may come.
const silentAfter = 3 * time.Second

// Health reports whether Run can do its work: nil, or every reason why not, joined. It goes by what came of the last
// sweeps, not by a ping: a server that answers pings and refuses sweeps is not healthy. It is right again by itself.
// Before the first answers after a start it waits for them until ctx or Run ends, unless something is known to fail; it asks
// Redis nothing.
//
// The reasons: [ErrNotRunning]; the registry of queues cannot be read; and for each queue that cannot be swept a
// [*QueueError], with how long that has been so.
func (r *Reaper) Health(ctx context.Context) error {
	f := r.current.Load()
	if f == nil || f.ctx.Err() != nil {
		return ErrNotRunning
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(f.ctx, cancel)()
	now, instant := context.WithCancel(ctx)
	instant()
	errs := f.health(now, now, pulse.Failing)
	if len(errs) == 0 { // nothing is known to fail: what is not known yet is waited for
		errs = f.health(ctx, now, func(err error) error { return err })
	}
	if f.ctx.Err() != nil {
		return ErrNotRunning
	}
	return errors.Join(errs...)
}

// health asks each loop, waiting until ctx ends, or with now once there is a reason. keep says what of their errors counts.
func (f *fleet) health(ctx, now context.Context, keep func(error) error) (errs []error) {
	if err := keep(f.registry.Check(ctx, f.r.opts.RefreshEvery+silentAfter)); err != nil {
		errs, ctx = append(errs, fmt.Errorf("registry of queues: %w", err)), now
	}
	f.mu.Lock()
	sweeping := maps.Clone(f.sweeping)
	f.mu.Unlock()
	for _, queue := range slices.Sorted(maps.Keys(sweeping)) {
		if err := keep(sweeping[queue].sweeper.Health(ctx)); err != nil {
			errs, ctx = append(errs, &QueueError{Queue: queue, Err: err}), now
		}
	}
	return errs
}
