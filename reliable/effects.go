package reliable

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/leaseq/leaseq/idempotency"
	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/lease"
)

// EffectOptions are for the effects that jobs run with [Job.Once], [Job.OnceAndAck] and [Job.BeginOnce].
type EffectOptions struct {
	// Retention is how long the record of a job's effects lives after its last change: that an effect of the job was begun,
	// found done or ended, and from then on each heartbeat of that run. After it the effects run anew, and no doubt is known
	// any more, so it should be longer than a job ever waits between two of its runs, in dead too. Default 24 h, or twice
	// the queue's lease where that is longer; less than twice the lease, or than 200 ms, is refused.
	Retention time.Duration
	// InDoubt is what to do where a holder died, or failed, between the beginning and the end of an effect. Default
	// [idempotency.Redo]: it runs again.
	InDoubt idempotency.Policy
	// ResultLimit is the greatest size of a result in bytes, as JSON. Default 64 KiB; at most 1 MiB.
	ResultLimit int
	// OnInDoubt is told of each effect that is found in doubt, as <job's ID>:<name>, with either policy. It must not block.
	// Default: nobody but the Logger.
	OnInDoubt func(effect string, since time.Time)
}

// shortestGuardLease is the shortest lease that a guard takes. Where a job's heartbeat keeps a record the guard's own lease
// is not used.
const shortestGuardLease = 100 * time.Millisecond

// newEffectGuard makes a guard of effects of a queue's jobs.
func newEffectGuard(q *Queue, holder string, logger *slog.Logger) (*idempotency.Guard, error) {
	o := &q.opts
	opts := idempotency.Options{
		Prefix: o.Prefix, Holder: holder, Lease: max(o.Lease, shortestGuardLease),
		Retention: o.Effects.Retention, InDoubt: o.Effects.InDoubt, ResultLimit: o.Effects.ResultLimit,
	}
	if opts.Retention == 0 {
		opts.Retention = max(idempotency.DefaultRetention, 2*opts.Lease)
	}
	opts.OnInDoubt = func(effect string, since time.Time) {
		logger.Warn("an effect is in doubt: it was begun, and nobody knows whether it happened", "queue", q.name, "effect", effect, "since", since)
		if o.Effects.OnInDoubt != nil {
			o.Effects.OnInDoubt(effect, since)
		}
	}
	guard, err := idempotency.New(q.rdb, q.name, &opts)
	if err != nil {
		return nil, fmt.Errorf("Effects: %w", err)
	}
	return guard, nil
}

// Once runs fn unless this job has run it before under that name, in this run or an earlier one: at least once where a
// holder dies in the middle of it, and not again after it returned nil. name is the effect's, one of up to 64 of a job:
// 1–128 of A-Z a-z 0-9 . _ : / -. The record belongs to the job, not to its ID: a job that is enqueued later under the
// same ID begins its effects anew. For a key that outlives the job, or is shared between jobs, see [Job.Begin].
//
// fn's context ends with ctx, and with the lease. An error of fn is returned, and leaves the effect in doubt, since it may
// have happened all the same: the next run of the job runs fn again (policy [idempotency.Redo]), or gets an
// [*idempotency.InDoubtError] ([idempotency.Ask]: use [Job.BeginOnce] to look first). With [idempotency.NotDone] around
// it the beginning is taken back.
//
// Errors: [ErrLost], another holder has the job, or its lease is over; [ErrCancelled]; [ErrSettled];
// [*idempotency.InFlightError], the handler runs this very effect already; [*idempotency.TooManyError]. After these, and
// after any other error of Redis before it, fn did not run. When fn ran and that could not be written down the error is
// [idempotency.ErrRan], and the effect is in doubt.
//
// It costs two round trips, one before fn and one after it; [Job.OnceAndAck] the first of them.
func (j *Job) Once(ctx context.Context, name string, fn func(ctx context.Context) error) error {
	_, err := OnceValue(ctx, j, name, withoutValue(fn))
	return err
}

// OnceValue is [Job.Once] for an effect that has a result: later runs of the job get it from the record, as JSON keeps it.
// A result over ResultLimit cannot be kept: the error is an [*idempotency.TooLargeError], and the next run of the job runs
// the effect again.
func OnceValue[T any](ctx context.Context, j *Job, name string, fn func(ctx context.Context) (T, error)) (T, error) {
	a, err := j.BeginOnce(ctx, name)
	if err != nil {
		var none T
		return none, err
	}
	return idempotency.Run(ctx, a, fn, nil)
}

// OnceAndAck is [Job.Once] for the last thing that a job does: the job is acked in the very step that writes the effect
// down as done. An effect that is done already is not run again, and the job acked. A Consumer sends that when the handler
// returns, with the acks of other jobs, so it costs no round trip of its own; a lost lease goes to OnLost, as with every
// ack, and where the record is gone the job fails instead (OnRetry), and runs again. Of a job that was claimed by hand it
// is sent at once, and errors are those of [Job.CompleteAndAck].
//
// After nil the handler's returned value settles nothing; after an error it does, as ever.
func (j *Job) OnceAndAck(ctx context.Context, name string, fn func(ctx context.Context) error) error {
	a, err := j.BeginOnce(ctx, name)
	if err != nil {
		return err
	}
	if a.Done {
		return j.settleLater(ctx, verdict{op: opAck})
	}
	_, err = idempotency.Run(ctx, a, withoutValue(fn), &idempotency.DoOptions[none]{
		Commit: func(ctx context.Context, result []byte) error {
			return j.complete(ctx, a.Permit, result, j.settleLater)
		},
	})
	return err
}

type none = *struct{} // null in the record

func withoutValue(fn func(ctx context.Context) error) func(ctx context.Context) (none, error) {
	return func(ctx context.Context) (none, error) { return nil, fn(ctx) }
}

// BeginOnce is the first half of [Job.Once], for handlers that look for themselves: it says whether the effect is done,
// with its result, or gives a permit to run it, which knows whether the effect is in doubt. End the permit with its
// Commit, its Abort, or [Job.CompleteAndAck]; one that is not ended is in doubt when the lease ends.
func (j *Job) BeginOnce(ctx context.Context, name string) (*idempotency.Answer, error) {
	if j.guard == nil {
		return nil, fmt.Errorf("begin %q of job %q: %w", name, j.ID, errNobodys)
	}
	free, err := j.carried.enter(j, name)
	if err != nil {
		return nil, err
	}
	held := j.asHeld()
	held.Once, held.Incarnation = true, strconv.FormatInt(j.EnqueuedAt.UnixMicro(), 10)
	a, err := j.beginCarried(ctx, j.guard, name, &idempotency.BeginOptions{Held: held})
	if err != nil || a.Permit == nil {
		free(nil)
		return a, err
	}
	free(a.Permit)
	return a, nil
}

// Begin asks a guard for the right to run the effect of a key, as [idempotency.Guard.Begin] does, within this job: the
// permit's context ends with the job's. The record outlives the job, and an enqueue of its ID: that is what it is for,
// and means that an effect keyed by an ID which is enqueued again is not run again before the guard's retention is over.
//
// A guard that was made for this queue's name, prefix and client has its record ride on the job's lease: the heartbeat
// keeps it, and [Job.CompleteAndAck] commits it with the ack. Elsewhere, and where another record rides already, the guard
// keeps it itself. The key is 1 to 256 bytes of valid UTF-8 without control characters. o.Context and o.Held are not
// looked at.
//
// Errors are those of Guard.Begin; a lease that is lost is [ErrLost], and a job that was cancelled [ErrCancelled]. After
// an [*idempotency.InFlightError] the handler may return ReleaseAfter(e.Wait, err).
func (j *Job) Begin(ctx context.Context, g *idempotency.Guard, key string, o *idempotency.BeginOptions) (*idempotency.Answer, error) {
	if j.guard == nil {
		return nil, fmt.Errorf("begin %q of job %q: %w", key, j.ID, errNobodys)
	}
	if g == nil {
		return nil, errors.New("begin " + j.ID + ": the Guard is nil: want one made by idempotency.New")
	}
	if err := j.open(); err != nil {
		return nil, fmt.Errorf("begin %q of job %q: %w", key, j.ID, err)
	}
	opts := idempotency.BeginOptions{Context: j.Context()}
	if o != nil {
		opts.Request = o.Request
	}
	if j.carries() || !g.Beside(j.queue.rdb, j.queue.opts.Prefix, j.queue.name) {
		return g.Begin(ctx, key, &opts)
	}
	opts.Held = j.asHeld()
	return j.beginCarried(ctx, g, key, &opts)
}

// CompleteAndAck commits a permit of this job's and acks the job, in one step where the record lies in the queue's slot,
// so that done and acked cannot come apart; else the commit is the call before the ack. The handler's returned value then
// settles nothing.
//
// A record that is another holder's, or gone, gives [idempotency.ErrNotOwner], and a result that is too large an
// [*idempotency.TooLargeError]; the job is not acked then, and goes on. So it does where the permit was ended before. For
// other errors see [Job.Ack]; with a record elsewhere an error of the ack leaves the effect done, and the job's next run finds it so.
func (j *Job) CompleteAndAck(ctx context.Context, p *idempotency.Permit, result []byte) error {
	if p == nil {
		return errors.New("complete " + j.ID + ": the Permit is nil: an effect that is done has none, and needs an Ack only")
	}
	if !p.Beside(j.queue.rdb, j.queue.opts.Prefix, j.queue.name) {
		if err := p.Commit(ctx, result); err != nil {
			return err
		}
		return j.Ack(ctx)
	}
	return j.complete(ctx, p, result, j.settle)
}

// complete has the ack take the commit along.
func (j *Job) complete(ctx context.Context, p *idempotency.Permit, result []byte, settle func(context.Context, verdict) error) error {
	ride, err := p.RideCommit(result)
	if err != nil {
		return err
	}
	err = settle(ctx, verdict{op: opAck, commit: attached(ride)})
	switch {
	case errors.Is(err, lease.ErrRecord):
		return fmt.Errorf("%w: %w", idempotency.ErrNotOwner, err)
	case err == nil:
		p.Rode()
	}
	return err
}

var errNobodys = errors.New("the job was made by hand, and is held by nobody: want one that a Consumer or Claim gave")

// asHeld tells a guard of the job's lease.
func (j *Job) asHeld() *idempotency.Held {
	return &idempotency.Held{ID: j.ID, Token: j.token, Deadline: j.Deadline()}
}

// beginCarried begins an effect whose record is to ride on the lease.
func (j *Job) beginCarried(ctx context.Context, g *idempotency.Guard, key string, o *idempotency.BeginOptions) (*idempotency.Answer, error) {
	o.Context = j.Context()
	a, err := g.Begin(ctx, key, o)
	switch {
	case errors.Is(err, idempotency.ErrNotOwner):
		return nil, fmt.Errorf("%w: %w", ErrLost, err)
	case errors.Is(err, idempotency.ErrCancelled):
		return nil, fmt.Errorf("%w: %w", ErrCancelled, err)
	case err != nil || a.Rides() == nil:
		return a, err
	}
	if err := j.carry(ctx, a.Rides()); err != nil {
		return nil, fmt.Errorf("begin %q of job %q: %w", key, j.ID, err)
	}
	return a, nil
}

// carried is the one record that rides on a job's lease, and which of the job's own effects are under way.
type carried struct {
	changing sync.Mutex // held while a record is put in place of another, which asks Redis
	mu       sync.Mutex
	permit   *idempotency.Permit
	effects  map[string]*idempotency.Permit // by name; nil: it is being begun
}

// enter sees to it that an effect is begun once at a time: Redis cannot tell one of this holder's that is under way from
// one that it left. free ends that, where the effect was begun once the permit is ended.
func (c *carried) enter(j *Job, name string) (free func(p *idempotency.Permit), err error) {
	if err := j.open(); err != nil {
		return nil, fmt.Errorf("begin %q of job %q: %w", name, j.ID, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, ok := c.effects[name]; ok && (p == nil || !p.Ended()) {
		return nil, &idempotency.InFlightError{Key: j.ID + ":" + name, Wait: max(time.Until(j.Deadline()), time.Millisecond)}
	}
	if c.effects == nil {
		c.effects = map[string]*idempotency.Permit{}
	}
	c.effects[name] = nil
	return func(p *idempotency.Permit) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.effects[name] = p; p == nil {
			delete(c.effects, name)
		}
	}, nil
}

// carries reports whether a record rides already that does not give way: that of the job's own effects, or one whose
// permit is still open.
func (j *Job) carries() bool {
	p := j.carried.get()
	return p != nil && (!p.Ended() || j.isOwn(p))
}

// isOwn reports whether a permit's record is that of the job's own effects.
func (j *Job) isOwn(p *idempotency.Permit) bool { return p.Ride().Key == j.queue.partition.Once(j.ID) }

func (c *carried) get() *idempotency.Permit {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.permit
}

// carry has a record ride on the lease from now on. Another one that rode is kept by its guard then; or the new one, where
// the job's own has come to ride meanwhile.
func (j *Job) carry(ctx context.Context, p *idempotency.Permit) error {
	c := &j.carried
	c.changing.Lock()
	defer c.changing.Unlock()
	ride, old := p.Ride(), c.get()
	switch {
	case old == nil || old.Ride().Key == ride.Key:
	case j.isOwn(old):
		return p.Keep(ctx)
	case !old.Ended():
		if err := old.Keep(ctx); err != nil && !errors.Is(err, idempotency.ErrNotOwner) {
			return err
		}
	}
	if old == nil || old.Ride().Key != ride.Key || old.Ride().Owner != ride.Owner {
		if err := j.hold.Attach(attached(ride)); err != nil {
			return err
		}
	}
	c.mu.Lock()
	c.permit = p
	c.mu.Unlock()
	return nil
}

// carriedAway is what a release, nack or bury does to the record that rides.
func (j *Job) carriedAway() *lease.Attached {
	if p := j.carried.get(); p != nil {
		return attached(p.RideAway())
	}
	return nil
}

// attached puts a permit's ride into the words of the lease.
func attached(r idempotency.Ride) *lease.Attached {
	return &lease.Attached{Key: r.Key, Owner: r.Owner, Fields: r.Fields, Expiry: r.Expiry, TTL: r.TTL}
}

// recordsOf names the records that are deleted with jobs of these IDs: those of their effects.
func (q *Queue) recordsOf(ids []string) []string {
	records := make([]string, len(ids))
	for i, id := range ids {
		if keys.ValidateID("job ID", id) == nil { // another one is refused by the call
			records[i] = q.partition.Once(id)
		}
	}
	return records
}
