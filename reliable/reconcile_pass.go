package reliable

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// maxRefusals is how many refused items a Pass names.
const maxRefusals = 10

// resolveWait is how long a pass whose context has ended still waits to learn what became of its last call.
const resolveWait = 10 * time.Second

// callTries is how often a batch is sent whose calls had no answer that can ever be known.
const callTries = 3

// ErrNoID says that an item of a Source has no ID of its own: with a new one each pass would make a new job.
var ErrNoID = errors.New("an item of a Source needs an ID that follows from what it is about")

// A SourceError says that a Source failed: Err is its own.
type SourceError struct{ Err error }

func (e *SourceError) Error() string { return "the source failed: " + e.Err.Error() }

// Unwrap returns the source's error.
func (e *SourceError) Unwrap() error { return e.Err }

// A Refusal is an item that the queue does not take: Err is [ErrNoID], what a limit of the queue says, or a mistake in the item.
type Refusal struct {
	ID  string
	Err error
}

// A Pass is what one scan found. Every item read is counted once:
// Read = Created + There (all places) + Refused + Unknown + Unsent.
type Pass struct {
	Read    int64
	Created int64           // jobs that this pass made, and nobody else counts
	There   map[Place]int64 // jobs that were there already, by place
	Refused int64           // see Refusals; the next pass will be refused them too
	// Unknown are items whose call ran or not, and nobody can tell any more ([ErrNeverKnown]), or not within 10 s after ctx
	// had ended. The next pass finds or makes them.
	Unknown  int64
	Unsent   int64     // items of calls that did nothing: the pass failed or ended before them
	Refusals []Refusal // the first 10
	Took     time.Duration
}

// LogValue makes a group of the counts.
func (p Pass) LogValue() slog.Value {
	return slog.GroupValue(slog.Int64("read", p.Read), slog.Int64("created", p.Created), slog.Any("there", p.There),
		slog.Int64("refused", p.Refused), slog.Int64("unknown", p.Unknown), slog.Int64("unsent", p.Unsent),
		slog.Duration("took", p.Took))
}

// Pass makes one scan, as from cron; it may be called beside Run. It returns when the source is at its end, and no call
// of it is under way then. The Pass is exact with an error too: a [*SourceError], ctx's own, or that of the call that
// failed (as [ErrOutOfMemory]). Refused and unknown items are counts and no error. While Redis is away it waits for as
// long as ctx lasts.
func (r *Reconcile) Pass(ctx context.Context) (Pass, error) {
	began := time.Now()
	s := scan{q: r.q, pass: Pass{There: map[Place]int64{}}, each: time.Second / time.Duration(r.opts.Rate), next: began}
	if s.each == 0 {
		s.each = 1
	}
	err := s.all(ctx, r)
	s.pass.Took = time.Since(began)
	return s.pass, err
}

// A scan is one pass under way.
type scan struct {
	q     *Queue
	pass  Pass
	items []Item
	each  time.Duration // that one item takes at the highest rate
	next  time.Time     // when the next batch may go
}

func (s *scan) all(ctx context.Context, r *Reconcile) error {
	for item, err := range r.source(ctx) {
		if err != nil {
			return errors.Join(&SourceError{Err: err}, s.send(ctx))
		}
		s.pass.Read++
		if item.ID == "" {
			s.refused("", ErrNoID)
			continue
		}
		if s.items = append(s.items, item); len(s.items) < r.opts.Batch {
			continue
		}
		if err := s.send(ctx); err != nil {
			return err
		}
	}
	if err := s.send(ctx); err != nil {
		return err
	}
	return ctx.Err()
}

// send enqueues what has gathered, when the rate allows it, and counts it.
func (s *scan) send(ctx context.Context) error {
	items := s.items
	s.items = nil
	if len(items) == 0 {
		return nil
	}
	pause(ctx, time.Until(s.next))
	if err := ctx.Err(); err != nil {
		s.pass.Unsent += int64(len(items))
		return err
	}
	if now := time.Now(); s.next.Before(now) {
		s.next = now
	}
	s.next = s.next.Add(time.Duration(len(items)) * s.each)
	var failed error
	for range callTries {
		results, err := s.q.EnqueueMany(ctx, items)
		if items, failed = s.count(ctx, items, results, err), err; err == nil || !s.goesOn(ctx, err) {
			break
		}
		if failed = nil; len(items) == 0 {
			break
		}
		failed = err
	}
	s.pass.Unsent += int64(len(items))
	if failed != nil {
		return fmt.Errorf("reconcile: %w", failed)
	}
	return nil
}

// goesOn reports whether a call's failure is over with it: its session was lost, and the next call has a new one.
func (s *scan) goesOn(ctx context.Context, err error) bool {
	var unknown *UnknownError
	return ctx.Err() == nil && errors.As(err, &unknown)
}

// count counts what became of items, and returns those that were not sent. failed is the error of the call as a whole.
func (s *scan) count(ctx context.Context, items []Item, results []Enqueued, failed error) (unsent []Item) {
	patience, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	timer := time.AfterFunc(resolveWait, cancel)
	defer timer.Stop()
	for i := range results {
		err := results[i].Err
		var unknown *UnknownError
		if errors.As(err, &unknown) {
			if err = unknown.Resolve(patience); errors.Is(err, ErrNeverKnown) || err != nil && patience.Err() != nil {
				s.pass.Unknown++
				continue
			}
		}
		var duplicate *DuplicateError
		var server *ServerError
		switch {
		case err == nil:
			s.pass.Created++
		case errors.As(err, &duplicate):
			s.pass.There[duplicate.Place]++
		case errors.Is(err, ErrNeverRan), failed != nil && errors.Is(err, failed), errors.As(err, &server):
			unsent = append(unsent, items[i])
		default:
			s.refused(results[i].ID, err)
		}
	}
	return unsent
}

func (s *scan) refused(id string, err error) {
	s.pass.Refused++
	if len(s.pass.Refusals) < maxRefusals {
		s.pass.Refusals = append(s.pass.Refusals, Refusal{ID: id, Err: err})
	}
}
