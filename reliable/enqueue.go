package reliable

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leaseq/leaseq/internal/script"
	"github.com/leaseq/leaseq/internal/wire"
	"github.com/leaseq/leaseq/lease"
)

// maxAhead is how far ahead a due time may lie. What lies further is a mistake, as of units.
const maxAhead = 100 * 365 * 24 * time.Hour

// An Item is one job to enqueue, untyped.
type Item struct {
	Kind    string // 1–128 of A-Z a-z 0-9 . _ : / -
	Payload []byte // returned exactly; nil and empty are valid, and arrive with length 0
	// Headers go with the payload, as for traces or tenants: at most [MaxHeaders] bytes, names and values together; more
	// is a [*TooLargeError]. A name is at least 1 byte of valid UTF-8 without control characters, a value any bytes. They
	// are stored with the job once, and every start of it gets them as they were, after retries and a redrive too.
	Headers map[string]string

	// ID of the job, 1–256 bytes of valid UTF-8 without control characters. Give one that follows from what the job is
	// about ("close:10086"), and a repeated enqueue makes no second job while the first exists. Default: a new one of 26
	// characters that sorts by time.
	ID string
	// Delay from now until the job is due, on Redis' clock, rounded up to milliseconds; at most the queue's MaxDelay (7 days
	// unless set). Default: at once.
	Delay time.Duration
	// At is the time when the job is due, on Redis' clock, instead of Delay; at most as far ahead. A time in the past is due
	// at once.
	At time.Time
	// MaxRetries and MaxExpiries of this job, where they differ from the queue's.
	MaxRetries, MaxExpiries *int
	// NotAfter is a deadline, on Redis' clock, cut to milliseconds: a job that is claimed after it, at its first start or at a
	// retry, is not run but dead as [TooLate], uncounted, by the claim itself. At the very millisecond it may still start. A
	// handler that runs is not ended by it, and a redrive keeps it. Default: none.
	NotAfter time.Time
	// OnConflict says what happens where a job has the ID already. Default [Reject].
	OnConflict Conflict
}

// A Conflict says what an enqueue does where a job has its ID already.
type Conflict int

const (
	// Reject refuses the new job, which is told with a [*DuplicateError], and leaves the other one as it is.
	Reject Conflict = iota
	// Keep leaves the other one as it is, and that is no error: Enqueued.Found says where it is.
	Keep
	// Replace puts the new job in the place of one that is due, dead or done, as a debounce does: due anew, by its own due time,
	// with its own limits; what the other one counted, its limits and its errors go. One that is being worked on is left as it
	// is: [*DuplicateError]. What the other job has done once ([Job.Once]) the new one does anew.
	Replace
)

// EnqueueOptions are the optional settings of a typed Enqueue; nil is valid. The fields are those of [Item], with the
// same bounds.
type EnqueueOptions struct {
	ID                      string
	Delay                   time.Duration
	At                      time.Time
	Headers                 map[string]string
	MaxRetries, MaxExpiries *int
	NotAfter                time.Time
	OnConflict              Conflict
}

// Enqueued says what became of one item.
type Enqueued struct {
	ID string
	// Err is nil for a job that was created; [*DuplicateError] for an ID that a job has already, which is left as it is;
	// [*TooLargeError], [*DelayTooLongError] or [ErrQueueFull] where a limit of the queue refuses it; a mistake in the item;
	// [*UnknownError] where it may have been created.
	Err error
	// Found is where the job is that has the ID already, and was left as it is; "" where there is none.
	Found Place
	// Replaced says that the job was created in the place of another one.
	Replaced bool
}

// outcome is what its caller is told of an item.
func (item *Item) outcome(id string, made lease.Made) Enqueued {
	out := Enqueued{ID: id, Replaced: made.Replaced, Err: made.Err}
	if made.Err == nil {
		return out
	}
	var duplicate *DuplicateError
	if errors.As(made.Err, &duplicate) {
		out.Found = duplicate.Place
	}
	if item.OnConflict == Keep {
		out.Err = kept(made.Err)
	}
	return out
}

// kept is an error of an item that is content with the job that is there.
func kept(err error) error {
	var unknown *UnknownError
	switch {
	case errors.As(err, &unknown):
		return script.NewUnknownError(unknown.Op, unknown.Cause, func(ctx context.Context) error { return kept(unknown.Resolve(ctx)) })
	case errors.Is(err, ErrDuplicate):
		return nil
	}
	return err
}

// Enqueue makes a job out of a typed value: its kind is T's, its payload what the queue's Codec makes of it. The error
// is that of the returned Enqueued; an [*UnknownError] means that the job may exist.
func Enqueue[T Kinder](ctx context.Context, q *Queue, value T, o *EnqueueOptions) (Enqueued, error) {
	var opts EnqueueOptions
	if o != nil {
		opts = *o
	}
	kind, err := kindOf[T]()
	if err != nil {
		return Enqueued{ID: opts.ID, Err: err}, err
	}
	payload, err := q.opts.Codec.Marshal(value)
	if err != nil {
		err = fmt.Errorf("enqueue %s: payload: %w", kind, err)
		return Enqueued{ID: opts.ID, Err: err}, err
	}
	return q.Enqueue(ctx, Item{
		Kind: kind, Payload: payload, ID: opts.ID, Delay: opts.Delay, At: opts.At, Headers: opts.Headers,
		MaxRetries: opts.MaxRetries, MaxExpiries: opts.MaxExpiries, NotAfter: opts.NotAfter, OnConflict: opts.OnConflict,
	})
}

// Enqueue makes one job. The error is that of the returned Enqueued. Calls that come while another one of this Queue is
// under way go out together in the next, so that many goroutines share a round trip; none waits for others to come, a
// mistake in one job never fails another, and a caller whose ctx ends leaves the others alone: it gets an
// [*UnknownError], and its job stays in the call. While Redis is away it waits for as long as ctx lasts.
func (q *Queue) Enqueue(ctx context.Context, item Item) (Enqueued, error) {
	one, err := q.prepare(&item, time.Now())
	if err == nil {
		if err = q.register(ctx); err != nil {
			err = fmt.Errorf("%w: %w", ErrNeverRan, err)
		}
	}
	if err != nil {
		return Enqueued{ID: one.ID, Err: err}, err
	}
	out := item.outcome(one.ID, q.group.enqueue(ctx, &one))
	return out, out.Err
}

// EnqueueMany makes jobs in batches of up to 256 items and 4 MiB, each one call, in order. There is one result per item,
// and one item's mistake never fails another. err is the first failure of a whole call: after it nothing more was sent,
// and the items of later batches have an Err that is [ErrNeverRan]. The results hold IDs of items that failed too.
func (q *Queue) EnqueueMany(ctx context.Context, items []Item) (results []Enqueued, err error) {
	results = make([]Enqueued, len(items))
	batch := enqueueBatch{q: q, asked: items, results: results, items: make([]lease.Item, 0, min(len(items), lease.DefaultBatch))}
	now := time.Now()
	for i := range items {
		one, problem := q.prepare(&items[i], now)
		results[i].ID = one.ID
		if problem != nil {
			results[i].Err = problem
			continue
		}
		if batch.full(len(one.Record)) && err == nil {
			err = batch.send(ctx)
		}
		batch.add(i, one)
		if err != nil {
			batch.skip(err)
		}
	}
	if err == nil {
		err = batch.send(ctx)
	}
	return results, err
}

// enqueueBatch gathers what goes into one call.
type enqueueBatch struct {
	q       *Queue
	asked   []Item
	results []Enqueued
	items   []lease.Item
	index   []int
	bytes   int
}

func (b *enqueueBatch) full(more int) bool {
	return len(b.items) == lease.DefaultBatch || len(b.items) > 0 && b.bytes+more > lease.MaxBytes
}

func (b *enqueueBatch) add(i int, item lease.Item) {
	b.items, b.index, b.bytes = append(b.items, item), append(b.index, i), b.bytes+len(item.Record)
}

func (b *enqueueBatch) send(ctx context.Context) error {
	if len(b.items) == 0 {
		return nil
	}
	err := b.q.register(ctx)
	if err != nil {
		b.skip(err)
		return err
	}
	answers, err := b.q.store.EnqueueEach(ctx, b.items)
	for n, i := range b.index {
		b.results[i] = b.asked[i].outcome(b.items[n].ID, oneOf(answers, n, err))
	}
	if err != nil {
		b.items = nil // whoever resolves an unknown outcome still reads them
	}
	b.items, b.index, b.bytes = b.items[:0], b.index[:0], 0
	return err
}

func (b *enqueueBatch) skip(cause error) {
	for _, i := range b.index {
		b.results[i].Err = fmt.Errorf("%w: %w", ErrNeverRan, cause)
	}
	b.items, b.index, b.bytes = b.items[:0], b.index[:0], 0
}

// prepare checks an item and makes its record.
func (q *Queue) prepare(item *Item, now time.Time) (lease.Item, error) {
	out := lease.Item{
		ID: item.ID, Size: len(item.Payload), HeaderSize: headerSize(item.Headers), Delay: item.Delay, At: item.At,
		MaxRetries: item.MaxRetries, MaxExpiries: item.MaxExpiries, NotAfter: item.NotAfter, Replace: item.OnConflict == Replace,
	}
	if out.ID == "" {
		out.ID = NewID()
	}
	if len(item.Payload) > q.opts.PayloadLimit {
		return out, &TooLargeError{What: "payload", Size: len(item.Payload), Limit: q.opts.PayloadLimit}
	}
	var errs []error
	if err := validateID(out.ID); err != nil {
		errs = append(errs, err)
	}
	if item.Delay < 0 {
		errs = append(errs, fmt.Errorf("Delay is %v: want 0 or more", item.Delay))
	}
	if item.Delay != 0 && !item.At.IsZero() {
		errs = append(errs, fmt.Errorf("Delay is %v and At is %v: want one of them", item.Delay, item.At))
	}
	if item.Delay > maxAhead || item.At.After(now.Add(maxAhead)) {
		errs = append(errs, fmt.Errorf("Delay is %v, At is %v: want at most 100 years from now", item.Delay, item.At))
	}
	for _, err := range [...]error{item.checkDeadline(), checkLimit("MaxRetries", item.MaxRetries), checkLimit("MaxExpiries", item.MaxExpiries)} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	envelope := wire.Envelope{Kind: item.Kind, Payload: item.Payload, EnqueuedAt: now}
	if err := checkHeaders(item.Headers); err != nil {
		errs = append(errs, err)
	} else {
		envelope.Headers = item.Headers
	}
	record, err := wire.Append(make([]byte, 0, len(item.Payload)+len(item.Kind)+32), &envelope)
	if err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return out, fmt.Errorf("enqueue %s: %w", reasonText(out.ID, 64), errors.Join(errs...))
	}
	out.Record = record
	return out, nil
}

// checkDeadline refuses what could never run, and what is no deadline, or no way to treat a conflict.
func (item *Item) checkDeadline() error {
	var errs []error
	if item.OnConflict < Reject || item.OnConflict > Replace {
		errs = append(errs, fmt.Errorf("OnConflict is %d: want Reject, Keep or Replace", item.OnConflict))
	}
	switch at := item.NotAfter; {
	case at.IsZero():
	case at.UnixMilli() <= 0 || at.Year() > 9999:
		errs = append(errs, fmt.Errorf("NotAfter is %v: want a time from 1970 to 9999", at))
	case at.Before(item.At):
		errs = append(errs, fmt.Errorf("NotAfter is %v, before At, %v: the job could never run", at, item.At))
	}
	return errors.Join(errs...)
}
