package lease

import (
	"context"
	"errors"
	"fmt"
)

// An Edit is a new record for a job.
type Edit struct {
	ID     string
	Record []byte // the envelope, whole: opaque here, never empty
	Size   int    // of the payload in it, in bytes, for the queue's published limit
	Old    []byte // only if the job's record is this one still; nil: whatever it is

	HeaderSize int // of the headers in it, names and values together, in bytes, for the queue's published limit
}

// Edit writes new records of jobs in due or dead, whole. Nothing else of a job changes. Per item: nil, [ErrChanged],
// [*TooLargeError], [*LostError] with the place where the job is instead, or ErrGone. 1 to 1,000 items, whose records, old
// and new, hold at most 4 MiB together; one may exceed that.
func (s *Store) Edit(ctx context.Context, edits []Edit) ([]error, error) {
	return s.edit(ctx, "edit", 0, edits)
}

// EditAndRedrive is Edit and Redrive in one step, of dead jobs only: each gets its new record, is due at once with fresh
// counters and redrives + 1, and keeps its own limits and last errors. One in due is refused as in another place.
func (s *Store) EditAndRedrive(ctx context.Context, edits []Edit) ([]error, error) {
	return s.edit(ctx, "edit and redrive", 1, edits)
}

func (s *Store) edit(ctx context.Context, op string, redrive int, edits []Edit) ([]error, error) {
	if err := checkBatch(op, len(edits)); err != nil {
		return nil, err
	}
	bytes := 0
	ids, args := make([]string, len(edits)), []any{redrive}
	for i := range edits {
		e := &edits[i]
		if e.ID == "" || len(e.Record) == 0 {
			return nil, errors.New(op + ": an item needs an ID and a record")
		}
		ids[i] = e.ID
		bytes += len(e.Record) + len(e.Old)
		args = append(args, e.ID, e.Size, e.HeaderSize, e.Old, e.Record)
	}
	if bytes > MaxBytes && len(edits) > 1 {
		return nil, fmt.Errorf("%s: records of %d bytes: want at most %d together, or one item", op, bytes, MaxBytes)
	}
	return s.coded(ctx, op, editScript, args, ids, func(i int, code byte, limits limitsTold) error {
		switch code {
		case 'n':
			return ErrChanged
		case 't':
			return limits.tooLarge(0, "payload", edits[i].Size)
		case 'h':
			return limits.tooLarge(1, "headers", edits[i].HeaderSize)
		}
		return nil
	})
}
