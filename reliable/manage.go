package reliable

import (
	"context"
	"fmt"
	"time"

	"github.com/leaseq/leaseq/lease"
)

// Types of the layer below that looking after jobs needs.
type (
	// Place is where a job is.
	Place = lease.Place
	// Cursor is where a bulk call goes on; the zero value begins.
	Cursor = lease.Cursor
	// Position is where a listing goes on; the zero value begins. Its String is read by [ParsePosition].
	Position = lease.Position
	// Removed is what became of a job that was to be cancelled.
	Removed = lease.Removed
	// Stats is a picture of a queue, taken in one step.
	Stats = lease.Stats
	// Failure is one of a job's last errors.
	Failure = lease.Failure
)

// The places of a job.
const (
	Nowhere    = lease.Nowhere
	Due        = lease.Due
	Processing = lease.Processing
	Dead       = lease.Dead
	Done       = lease.Done
)

// Cancel removes jobs by ID (1–1,000), wherever they are. One that is being worked on is removed when its lease ends;
// its handler's context ends at the next heartbeat, with cause [ErrCancelled]. An ID that no job has gives ErrGone. The
// record of a job's effects is removed with it; that of one which is being worked on is left to its retention where the
// handler acks, or had begun no effect.
func (q *Queue) Cancel(ctx context.Context, ids ...string) ([]Removed, error) {
	return q.store.Cancel(ctx, ids, q.recordsOf(ids)...)
}

// Redrive puts dead jobs back to due by ID (1–1,000), with fresh counters; payload, headers, enqueue time and last
// errors are kept. Per item: nil, [*LostError] with the place where the job is instead, or ErrGone.
func (q *Queue) Redrive(ctx context.Context, ids ...string) ([]error, error) {
	return q.store.Redrive(ctx, ids)
}

// Reschedule gives jobs in due another due time, by ID (1–1,000): d from Redis' now, 0 to 100 years, and at most the
// queue's MaxDelay. Per item: nil, [*DelayTooLongError], [*LostError] with the place where the job is instead of due, or ErrGone.
func (q *Queue) Reschedule(ctx context.Context, d time.Duration, ids ...string) ([]error, error) {
	if d < 0 || d > maxAhead {
		return nil, fmt.Errorf("reschedule: a delay of %v: want 0 to 100 years", d)
	}
	return q.store.Reschedule(ctx, d, ids)
}

// Promote makes jobs in due claimable at once, by ID (1–1,000). One that is already keeps its place in the order. Per item
// as Reschedule.
func (q *Queue) Promote(ctx context.Context, ids ...string) ([]error, error) {
	return q.store.Promote(ctx, ids)
}

// Bury puts jobs in due into dead, by ID (1–1,000). It counts no failure. The reason is kept, with the name of this
// process, as the job's last error: one line of at most 512 bytes is made of it. Per item as Reschedule.
func (q *Queue) Bury(ctx context.Context, reason string, ids ...string) ([]error, error) {
	return q.store.Bury(ctx, reasonText(reason, maxReason), ids)
}

// RedriveNext redrives the up to n dead jobs (1–1,000) that died first, of those dead when the cursor began; call it
// until the cursor is Done. It can be interrupted anywhere and run again.
func (q *Queue) RedriveNext(ctx context.Context, cursor *Cursor, n int) (int, error) {
	return q.store.RedriveNext(ctx, cursor, n)
}

// Purge deletes jobs by ID (1–1,000) from due, dead or done, for good, and the records of their effects. Per item: nil, or
// ErrGone where the job is not in that place.
func (q *Queue) Purge(ctx context.Context, place Place, ids ...string) ([]error, error) {
	return q.store.Purge(ctx, place, ids, q.recordsOf(ids)...)
}

// PurgeNext deletes the up to n jobs (1–1,000) of a place that were due, died or were done first, of those that had
// been when the cursor began; call it until the cursor is Done. Records of their effects are left to their retention.
func (q *Queue) PurgeNext(ctx context.Context, place Place, cursor *Cursor, n int) (int, error) {
	return q.store.PurgeNext(ctx, place, cursor, n)
}

// ParsePosition reads what a Position's String wrote.
func ParsePosition(text string) (Position, error) { return lease.ParsePosition(text) }

// Stats reads how many jobs are where, and the queue's counters.
func (q *Queue) Stats(ctx context.Context) (Stats, error) { return q.store.Stats(ctx) }
