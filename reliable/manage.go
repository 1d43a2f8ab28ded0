package reliable

import (
	"context"
	"time"

	"github.com/leaseq/leaseq/internal/wire"
	"github.com/leaseq/leaseq/lease"
)

// Types of the layer below that looking after jobs needs.
type (
	// Place is where a job is.
	Place = lease.Place
	// Cursor is where a bulk call goes on; the zero value begins.
	Cursor = lease.Cursor
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

// Stats reads how many jobs are where, and the queue's counters.
func (q *Queue) Stats(ctx context.Context) (Stats, error) { return q.store.Stats(ctx) }

// Info is everything that is known of one job.
type Info struct {
	ID    string
	Place Place
	// At is when the job is due, its lease runs out, it died or was done, by Redis' clock; In is how long until then.
	At time.Time
	In time.Duration

	Kind        string
	Payload     []byte // nil from List
	PayloadSize int    // in bytes
	Headers     map[string]string
	EnqueuedAt  time.Time
	Undecoded   error // why the record could not be decoded; Payload then holds its raw bytes

	Failures, Expiries, Redrives int
	Errors                       []Failure // the last five, oldest first
	Stack                        string    // of the last panic, for dead jobs
	Holder                       string    // of a job in processing
	Fence                        int64     // of a job in processing
	Cancelling                   bool      // cancelled while being worked on
}

// Inspect reads jobs by ID (1–1,000), payloads and all; an ID that no job has comes back with the place [Nowhere].
func (q *Queue) Inspect(ctx context.Context, ids ...string) ([]Info, error) {
	found, err := q.store.Inspect(ctx, ids)
	if err != nil {
		return nil, err
	}
	out := make([]Info, len(found))
	for i := range found {
		out[i] = infoOf(&found[i])
	}
	return out, nil
}

// List reads up to n jobs (1–1,000) of a place in its order, from a rank on (0 is the first), without their payloads.
// Ranks move when jobs do.
func (q *Queue) List(ctx context.Context, place Place, from int64, n int) ([]Info, error) {
	ids, err := q.store.List(ctx, place, from, n)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	found, err := q.store.InspectHeads(ctx, ids, wire.HeadSize)
	if err != nil {
		return nil, err
	}
	out := make([]Info, len(found))
	for i := range found {
		out[i] = infoOf(&found[i])
		out[i].Payload = nil
		if len(found[i].Record) == wire.HeadSize { // cut, or just as long
			out[i].readHead(found[i].Record)
		}
	}
	return out, nil
}

// readHead reads the head of a record that was cut.
func (info *Info) readHead(head []byte) {
	envelope, size, err := wire.DecodeHead(head)
	info.Undecoded, info.PayloadSize = err, size
	info.Kind, info.Headers, info.EnqueuedAt = envelope.Kind, envelope.Headers, envelope.EnqueuedAt
}

func infoOf(found *lease.Info) Info {
	info := Info{
		ID: found.ID, Place: found.Place, At: found.At, In: found.In, Errors: found.Errors, Stack: found.Stack,
		Failures: found.Failures, Expiries: found.Expiries, Redrives: found.Redrives,
		Holder: found.Holder, Fence: found.Fence, Cancelling: found.Cancelling,
	}
	envelope, err := wire.Decode(found.Record)
	switch {
	case found.Place == Nowhere:
	case err != nil:
		info.Undecoded, info.Payload, info.PayloadSize = err, found.Record, len(found.Record)
	default:
		info.PayloadSize = len(envelope.Payload)
		info.Kind, info.Payload, info.Headers, info.EnqueuedAt = envelope.Kind, envelope.Payload, envelope.Headers, envelope.EnqueuedAt
	}
	return info
}
