package reliable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leaseq/leaseq/idempotency"
	"github.com/leaseq/leaseq/internal/wire"
	"github.com/leaseq/leaseq/lease"
)

// A Job is a job that is held by this process, in a handler or claimed by hand. Its fields are for reading.
type Job struct {
	ID      string
	Kind    string
	Payload []byte
	// Headers are those that the job was enqueued with; nil where it has none. The map is this start's own: what a handler
	// changes in it is seen by the middleware around it, and never stored.
	Headers map[string]string

	EnqueuedAt time.Time // by the producer's clock, for people
	DueAt      time.Time // when it was due, by Redis' clock
	NotAfter   time.Time // not to be started after it, by Redis' clock; zero: no deadline

	Attempt  int // the number of this start: failures + expiries + 1
	Failures int // how often it was nacked or buried
	Expiries int // how often a lease on it ran out
	Redrives int // how often it was put back from dead

	token   string // of its lease
	fence   int64
	keepAt  string        // what puts it back at its due time
	late    time.Duration // how long it had been due when it was claimed
	claimed time.Duration // when that was, after processStart
	store   *lease.Store
	hold    *lease.Hold
	queue   *Queue
	backoff Backoff
	guard   *idempotency.Guard // for effects of the job's own
	carried carried
	mu      sync.Mutex
	settled bool
	later   bool     // the job is a handler's: a settle can be left to the consumer
	decided bool     // it was
	unsure  *verdict // a settle by hand of which it is not known whether it ran, or that the consumer is to send
	refused error    // what a settle by hand was told: the lease was lost before
	result  []byte   // for the ack; see SetResult
}

// errNoRecord is the reason of a job whose record was lost, by somebody's hand: a redrive brings back a stand-in.
var errNoRecord = errors.New("no record")

// A tooLateError is why a job is dead whose deadline had passed when it was claimed, both by Redis' clock.
type tooLateError struct{ deadline, claimed time.Time }

func (e *tooLateError) Error() string {
	return fmt.Sprintf("too late: not to be started after %s, and claimed at %s", stamp(e.deadline), stamp(e.claimed))
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// newJob decodes a lease's record. With an error, wire's or errNoRecord, the job must not be given to a handler.
func newJob(l *lease.Lease, store *lease.Store, guard *idempotency.Guard, q *Queue) (*Job, error) {
	job := new(Job)
	return job, job.read(l, store, guard, q)
}

func (j *Job) read(l *lease.Lease, store *lease.Store, guard *idempotency.Guard, q *Queue) error {
	j.ID, j.DueAt, j.NotAfter, j.Attempt = l.ID, l.Due, l.NotAfter, l.Attempt()
	j.Failures, j.Expiries, j.Redrives = l.Failures, l.Expiries, l.Redrives
	var back lease.Verdict
	back.KeepDue(l)
	j.token, j.fence, j.keepAt = l.Token, l.Fence, back.KeepAt
	j.late, j.claimed = l.Late, l.ClaimedAt().Sub(processStart)
	j.store, j.queue, j.guard, j.backoff = store, q, guard, q.retryBackoff()
	envelope, err := wire.Decode(l.Record)
	if err == nil && envelope.Kind == "" {
		err = errNoRecord
	}
	if err != nil {
		return err
	}
	j.Kind, j.Payload, j.Headers, j.EnqueuedAt = envelope.Kind, envelope.Payload, envelope.Headers, envelope.EnqueuedAt
	return nil
}

// Fence is the number of this lease. It grows with every claim of a partition, also across re-enqueues of an ID,
// restarts and failovers, unless Redis' clock stepped back by more than the time in between. Use it to fence writes to
// a database of your own: UPDATE … WHERE last_fence < $fence.
func (j *Job) Fence() int64 { return j.fence }

// Context ends when the lease does: cause [ErrLost], or [ErrCancelled] where the job was cancelled and the lease is
// kept alive. It also ends when the job was settled, and, of a job claimed by hand, with cause [ErrClosed] when the Queue
// is closed.
func (j *Job) Context() context.Context { return j.hold.Context() }

// Deadline is until when the lease is held at least, by this process' monotonic clock.
func (j *Job) Deadline() time.Time { return j.hold.Deadline() }

// Ack ends the job: it is finished, and removed; its ID, and its result, are kept where the queue has a DoneAge. A lease that is lost gives [ErrLost] by errors.Is, each time, and changes
// nothing; a job that this holder settled already gives [ErrSettled].
//
// An [*UnknownError], of this or another way to settle, says that it may have run. The job is held on then, and may be
// settled again, which is refused as lost if the first call did run. In a handler the Consumer repeats it by itself when
// the handler has returned, whatever that returned.
func (j *Job) Ack(ctx context.Context) error {
	return j.settle(ctx, verdict{op: opAck})
}

// Nack ends the lease as a handler that returned err does: a plain error counts a failure and puts the job back with
// back-off, or into dead when its retries are used up; RetryAfter, Discard and Release are obeyed. A nil err is refused.
func (j *Job) Nack(ctx context.Context, err error) error {
	if err == nil {
		return errors.New("nack " + j.ID + ": the error is nil: give a reason, or Ack")
	}
	return j.settle(ctx, verdictOf(err))
}

// Release puts the job back unfinished, at its old place; it counts nothing.
func (j *Job) Release(ctx context.Context) error {
	return j.settle(ctx, verdict{op: opRelease})
}

// Bury puts the job into dead now, with the reason's text; it counts one failure.
func (j *Job) Bury(ctx context.Context, reason error) error {
	return j.settle(ctx, verdict{op: opBury, err: reason})
}

// Extend moves the lease's expiry to at least d from now, never back; 0 is the queue's lease, and the queue's MaxLease
// is the most ([*LongLeaseError]). A job that is kept alive needs it only to go beyond that.
func (j *Job) Extend(ctx context.Context, d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("extend %s: a duration of %v: want 0 or more", j.ID, d)
	}
	if err := j.queue.checkLease(d); err != nil {
		return err
	}
	for {
		held := j.hold.Held()
		got, err := j.store.Extend(ctx, d, []lease.Held{held})
		switch {
		case err != nil:
			return err
		case got.Results[0] != nil:
			return got.Results[0]
		}
		j.hold.Extended(got.Deadline)
		if j.hold.Held().Attached == held.Attached {
			return nil
		} // else an effect has begun meanwhile, whose record is to be told, too
	}
}

// begin marks the job as settled, once. unsure is a verdict by hand of which it is not known whether it ran, or one that
// the consumer is to send, which nobody settles by hand any more.
func (j *Job) begin(byHand bool) (unsure *verdict, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.settled || byHand && j.decided {
		return nil, false
	}
	j.settled = true
	return j.unsure, true
}

// mayTryAgain takes begin back: the verdict did nothing, or, with unsure, may have done nothing.
func (j *Job) mayTryAgain(unsure *verdict) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.settled = false
	if unsure != nil {
		j.unsure = unsure
	}
}

func (j *Job) settle(ctx context.Context, v verdict) error {
	if _, ok := j.begin(true); !ok {
		return j.settledBefore()
	}
	results, err := j.store.Settle(ctx, []lease.Verdict{j.verdict(v)})
	if results == nil {
		j.mayTryAgain(nil)
		return err
	}
	var unknown *UnknownError
	if errors.As(results[0].Err, &unknown) {
		j.mayTryAgain(&v)
		return unknown
	}
	if errors.Is(results[0].Err, lease.ErrRecord) {
		j.mayTryAgain(nil) // the job is held on, and can be settled otherwise
		return results[0].Err
	}
	j.hold.Done()
	if errors.Is(results[0].Err, ErrLost) {
		j.mu.Lock()
		j.refused = results[0].Err
		j.mu.Unlock()
	}
	return results[0].Err
}

// settleLater is settle for a verdict whose outcome the handler need not know: the consumer sends it when the handler
// returns, together with others'. By hand it is sent at once.
func (j *Job) settleLater(ctx context.Context, v verdict) error {
	j.mu.Lock()
	later := j.later && !j.settled && !j.decided
	if later {
		j.unsure, j.decided = &v, true
	}
	j.mu.Unlock()
	if later {
		return nil
	}
	return j.settle(ctx, v)
}

// open reports why no effect may begin any more: the job is settled, or about to be, or its lease is over.
func (j *Job) open() error {
	j.mu.Lock()
	over := j.settled || j.decided
	j.mu.Unlock()
	if over {
		return j.settledBefore()
	}
	return context.Cause(j.Context())
}

// settledBefore is the answer to a second settle by hand: a lease that is lost stays so.
func (j *Job) settledBefore() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.refused != nil {
		return j.refused
	}
	return ErrSettled
}

// verdict writes a verdict for the store.
func (j *Job) verdict(v verdict) lease.Verdict {
	out := lease.Verdict{ID: j.ID, Token: j.token, Delay: v.delay}
	switch v.op {
	case opAck:
		out.Op, out.Attached, out.Result = lease.Ack, v.commit, j.given()
		return out
	case opNack:
		out.Op, out.Reason, out.Class, out.Stack = lease.Nack, reasonOf(v.err), v.class, stackOf(v.err)
		if !v.hasDelay {
			out.Delay = j.backoff.delay(j.Failures + 1)
		}
	case opRelease:
		out.Op = lease.Release
		out.Newer = v.newer
		if !v.hasDelay {
			out.KeepAt = j.keepAt
		}
	case opBury:
		out.Op, out.Reason, out.Class, out.Stack = lease.Bury, reasonOf(v.err), cmp.Or(v.class, lease.ClassDiscarded), stackOf(v.err)
	}
	out.Attached = j.carriedAway()
	return out
}

// stackOf finds the stack of a handler that panicked.
func stackOf(err error) string {
	var stack string
	walkError(err, func(e error) bool {
		p, ok := e.(*panicError)
		if ok {
			stack = p.Stack
		}
		return ok
	})
	return stack
}
