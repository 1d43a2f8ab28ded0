package reliable

import (
	"context"
	"time"

	"github.com/leaseq/leaseq/lease"
)

// What [Batch].Held says: the queue is paused, as many jobs are in processing as its Concurrency allows, or as many were
// started as its Rate allows.
const (
	HeldPaused      = lease.HeldPaused
	HeldConcurrency = lease.HeldConcurrency
	HeldRate        = lease.HeldRate
)

// ErrPast refuses a pause until a time that has passed.
var ErrPast = lease.ErrPast

// Pause pauses the queue for all processes until a time on Redis' clock, or, where until is the zero time, until Resume: no
// job is given out any more, and none is lost. Jobs that consumers hold go on, prefetched ones too, and are settled,
// extended and expired as ever; so do enqueues. Consumers stay healthy, and look once a WakeFallback. A queue that is paused
// already is paused until the new time. A time that has passed is refused ([ErrPast]). A FLUSHALL ends a pause. An error
// that is of the context, or of the way to Redis, may have left it paused: it is safe to call again.
func (q *Queue) Pause(ctx context.Context, until time.Time) error {
	if err := q.register(ctx); err != nil {
		return err
	}
	return q.store.Pause(ctx, until)
}

// PauseFor is Pause until d from Redis' now, 1 ms to 100 years.
func (q *Queue) PauseFor(ctx context.Context, d time.Duration) error {
	if err := q.register(ctx); err != nil {
		return err
	}
	return q.store.PauseFor(ctx, d)
}

// Resume has a paused queue go on at once. was says that it was paused. It is safe to call again.
func (q *Queue) Resume(ctx context.Context) (was bool, err error) { return q.store.Resume(ctx) }
