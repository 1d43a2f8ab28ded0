package reliable

import (
	"context"
	"time"

	"github.com/leaseq/leaseq/internal/wire"
	"github.com/leaseq/leaseq/lease"
)

// Info is everything that is known of one job.
type Info struct {
	ID    string
	Place Place
	// At is when the job is due, its lease runs out, it died or was done, by Redis' clock; In is how long until then: of a
	// job in processing what is left of its lease.
	At time.Time
	In time.Duration

	Kind        string
	Payload     []byte // nil from List
	PayloadSize int    // in bytes
	Headers     map[string]string
	EnqueuedAt  time.Time // by the producer's clock
	Undecoded   error     // why the record could not be decoded; Payload then holds its raw bytes

	Failures, Expiries, Redrives int
	Attempt                      int  // the number of the present start, or of the next one: failures + expiries + 1
	MaxRetries, MaxExpiries      *int // the job's own, where they differ from the queue's
	NotAfter                     time.Time
	Class                        DeadClass // of a dead job: why it is dead
	Errors                       []Failure // the last five, oldest first
	Stack                        string    // of the last panic, for dead jobs
	Holder                       string    // of a job in processing
	Fence                        int64     // of a job in processing
	Cancelling                   bool      // cancelled while being worked on
	Result                       []byte    // of a job in done: what its handler gave; nil where it gave nothing, and from List
}

// LastError is the newest of a job's last errors; ok is false where there is none.
func (info *Info) LastError() (last Failure, ok bool) {
	if len(info.Errors) == 0 {
		return Failure{}, false
	}
	return info.Errors[len(info.Errors)-1], true
}

// Get reads one job, payload and all. An ID that no job has gives ErrGone.
func (q *Queue) Get(ctx context.Context, id string) (Info, error) {
	infos, err := q.Inspect(ctx, id)
	switch {
	case err != nil:
		return Info{}, err
	case infos[0].Place == Nowhere:
		return infos[0], ErrGone
	}
	return infos[0], nil
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
	return out, q.classify(ctx, out)
}

// heads reads jobs without their payloads.
func (q *Queue) heads(ctx context.Context, ids []string) ([]Info, error) {
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
	return out, q.classify(ctx, out)
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
		Failures: found.Failures, Expiries: found.Expiries, Redrives: found.Redrives, Attempt: found.Failures + found.Expiries + 1,
		MaxRetries: found.MaxRetries, MaxExpiries: found.MaxExpiries, NotAfter: found.NotAfter,
		Holder: found.Holder, Fence: found.Fence, Cancelling: found.Cancelling, Result: found.Result,
	}
	envelope, err := wire.Decode(found.Record)
	switch {
	case found.Place == Nowhere, found.Place == Done && len(found.Record) == 0: // an ack has removed it
	case err != nil:
		info.Undecoded, info.Payload, info.PayloadSize = err, found.Record, len(found.Record)
	default:
		info.PayloadSize = len(envelope.Payload)
		info.Kind, info.Payload, info.Headers, info.EnqueuedAt = envelope.Kind, envelope.Payload, envelope.Headers, envelope.EnqueuedAt
	}
	return info
}
