package reaper

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/leaseq/leaseq/lease"
)

// ErrNotRunning is what Health returns before Run and after it.
var ErrNotRunning = lease.ErrNotRunning

// silentAfter is how much later than it should a reading of the registry may come.
const silentAfter = 3 * time.Second

// Health reports whether Run can do its work: nil, or every reason why not, joined. It goes by what came of the last
// sweeps, not by a ping: a server that answers pings and refuses sweeps is not healthy. It is right again by itself.
// Before the first answers after a start it waits for them until ctx ends; it asks Redis nothing.
//
// The reasons: [ErrNotRunning]; the registry of queues cannot be read; and for each queue that cannot be swept a
// [*QueueError], with how long that has been so.
func (r *Reaper) Health(ctx context.Context) error {
	f := r.current.Load()
	if f == nil || f.ctx.Err() != nil {
		return ErrNotRunning
	}
	var errs []error
	if err := f.registry.Check(ctx, r.opts.RefreshEvery+silentAfter); err != nil {
		errs = append(errs, fmt.Errorf("registry of queues: %w", err))
	}
	f.mu.Lock()
	sweeping := maps.Clone(f.sweeping)
	f.mu.Unlock()
	for _, queue := range slices.Sorted(maps.Keys(sweeping)) {
		if err := sweeping[queue].sweeper.Health(ctx); err != nil {
			errs = append(errs, &QueueError{Queue: queue, Err: err})
		}
	}
	return errors.Join(errs...)
}
