package record

import (
	"context"
	"errors"
	"slices"

	"github.com/leaseq/leaseq/reliable"
)

// A Call is an operation whose first line was written. Done writes what it was told.
type Call struct {
	r *Recorder
	n int64
}

// Begin writes that an operation on one job is about to be sent.
func (r *Recorder) Begin(op, id string) *Call { return r.begin(&Event{Op: op, ID: id}) }

func (r *Recorder) begin(e *Event) *Call {
	c := &Call{r: r}
	if r == nil {
		return c
	}
	c.n = r.calls.Add(1)
	e.Kind, e.Call = Called, c.n
	r.Write(e)
	return c
}

// Done writes what the operation was told: nil is ok.
func (c *Call) Done(err error) {
	e := &Event{Kind: Answered, Call: c.n}
	var duplicate *reliable.DuplicateError
	var lost *reliable.LostError
	var unknown *reliable.UnknownError
	switch {
	case err == nil:
		e.Out = OutOK
	case errors.As(err, &duplicate):
		e.Out, e.Place = OutDuplicate, duplicate.Place.String()
	case errors.As(err, &lost):
		e.Out, e.Place = OutRefused, lost.Place.String()
	case errors.As(err, &unknown), errors.Is(err, reliable.ErrNeverKnown):
		e.Out = OutUnknown
	case did(err):
		e.Out = OutRefused
	default:
		e.Out = OutUnknown // an error means unknown, never that it did not happen
	}
	c.r.Write(e)
}

// did reports whether an error says that the operation did nothing and never will.
func did(err error) bool {
	var large *reliable.TooLargeError
	for _, known := range []error{
		reliable.ErrNeverRan, reliable.ErrLost, reliable.ErrOutOfMemory, reliable.ErrMisconf, reliable.ErrAuth,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	return errors.As(err, &large)
}

// Resolve waits for the truth of an operation whose Done was given an [*reliable.UnknownError], and writes it. It returns
// what UnknownError.Resolve does; if ctx ends first the outcome stays unknown.
func (c *Call) Resolve(ctx context.Context, unknown *reliable.UnknownError) error {
	err := unknown.Resolve(ctx)
	if ctx.Err() == nil || err == nil || did(err) {
		c.Done(err)
	}
	return err
}

// Enqueue is [reliable.Queue.Enqueue], written down. The ID is made here where the item has none. An item with At has
// a delay of -1 in the history, and its due time is not judged. The Call is for Resolve.
func (r *Recorder) Enqueue(ctx context.Context, q *reliable.Queue, item reliable.Item) (reliable.Enqueued, *Call, error) {
	c := r.enqueue(&item)
	one, err := q.Enqueue(ctx, item)
	c.Done(err)
	return one, c, err
}

// enqueue writes that a job is about to be enqueued, and makes its ID where it has none.
func (r *Recorder) enqueue(item *reliable.Item) *Call {
	if item.ID == "" {
		item.ID = reliable.NewID()
	}
	delay := item.Delay.Microseconds()
	if !item.At.IsZero() {
		delay = -1
	}
	return r.begin(&Event{Op: OpEnqueue, ID: item.ID, Delay: delay})
}

// EnqueueMany is [reliable.Queue.EnqueueMany], written down. There is one Call for each item, for Resolve.
func (r *Recorder) EnqueueMany(ctx context.Context, q *reliable.Queue, items []reliable.Item) ([]reliable.Enqueued, []*Call, error) {
	items = slices.Clone(items)
	calls := make([]*Call, len(items))
	for i := range items {
		calls[i] = r.enqueue(&items[i])
	}
	results, err := q.EnqueueMany(ctx, items)
	for i, c := range calls {
		c.Done(results[i].Err)
	}
	return results, calls, err
}

// Cancel is [reliable.Queue.Cancel], written down.
func (r *Recorder) Cancel(ctx context.Context, q *reliable.Queue, ids ...string) ([]reliable.Removed, error) {
	calls := r.beginAll(OpCancel, ids)
	removed, err := q.Cancel(ctx, ids...)
	for i, c := range calls {
		if i < len(removed) {
			c.Done(removed[i].Err)
		} else {
			c.Done(err)
		}
	}
	return removed, err
}

// Redrive is [reliable.Queue.Redrive], written down.
func (r *Recorder) Redrive(ctx context.Context, q *reliable.Queue, ids ...string) ([]error, error) {
	calls := r.beginAll(OpRedrive, ids)
	answers, err := q.Redrive(ctx, ids...)
	doneAll(calls, answers, err)
	return answers, err
}

// Purge is [reliable.Queue.Purge], written down.
func (r *Recorder) Purge(ctx context.Context, q *reliable.Queue, place reliable.Place, ids ...string) ([]error, error) {
	calls := r.beginAll(OpPurge, ids)
	answers, err := q.Purge(ctx, place, ids...)
	doneAll(calls, answers, err)
	return answers, err
}

func (r *Recorder) beginAll(op string, ids []string) []*Call {
	calls := make([]*Call, len(ids))
	for i, id := range ids {
		calls[i] = r.Begin(op, id)
	}
	return calls
}

func doneAll(calls []*Call, answers []error, err error) {
	for i, c := range calls {
		if i < len(answers) {
			c.Done(answers[i])
		} else {
			c.Done(err)
		}
	}
}
