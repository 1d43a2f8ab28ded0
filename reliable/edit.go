package reliable

import (
	"context"
	"fmt"

	"github.com/leaseq/leaseq/internal/wire"
	"github.com/leaseq/leaseq/lease"
)

// An Edit is what a job is to have instead.
type Edit struct {
	Payload []byte            // nil: as it is; []byte{} is empty
	Headers map[string]string // nil: as they are; an empty map is none
}

// Edit gives a job that is due or dead another payload, other headers, or both. ID, kind, enqueue time, counters, limits
// and errors stay. [ErrChanged] says that the job was changed while it was read, by somebody else; [*TooLargeError] that it
// is too large now; [*LostError] names another place where the job is; ErrGone says that there is none.
func (q *Queue) Edit(ctx context.Context, id string, e Edit) error {
	return q.edit(ctx, "edit", id, e, q.store.Edit)
}

// EditAndRedrive is Edit and Redrive of a dead job in one step: nobody gets the job as it was. One that is due is refused
// as in another place.
func (q *Queue) EditAndRedrive(ctx context.Context, id string, e Edit) error {
	return q.edit(ctx, "edit and redrive", id, e, q.store.EditAndRedrive)
}

func (q *Queue) edit(ctx context.Context, op, id string, e Edit, write func(context.Context, []lease.Edit) ([]error, error)) error {
	if len(e.Payload) > q.opts.PayloadLimit {
		return &TooLargeError{What: "payload", Size: len(e.Payload), Limit: q.opts.PayloadLimit}
	}
	if err := checkHeaders(e.Headers); err != nil {
		return fmt.Errorf("%s %s: %w", op, reasonText(id, 64), err)
	}
	found, err := q.store.Inspect(ctx, []string{id})
	if err != nil {
		return err
	}
	switch place := found[0].Place; place {
	case Nowhere:
		return ErrGone
	case Due, Dead:
	default:
		return &LostError{ID: id, Place: place}
	}
	envelope, err := wire.Decode(found[0].Record)
	if err == nil && envelope.Kind == "" {
		err = errNoRecord
	}
	if err != nil {
		return fmt.Errorf("%s %s: the job has no kind that could be kept: %w", op, reasonText(id, 64), err)
	}
	if e.Payload != nil {
		envelope.Payload = e.Payload
	}
	if e.Headers != nil {
		envelope.Headers = e.Headers
	}
	record, err := wire.Append(nil, &envelope)
	if err != nil {
		return fmt.Errorf("%s %s: %w", op, reasonText(id, 64), err)
	}
	results, err := write(ctx, []lease.Edit{{ID: id, Record: record, Size: len(envelope.Payload), HeaderSize: headerSize(envelope.Headers), Old: found[0].Record}})
	if err != nil {
		return err
	}
	return results[0]
}
