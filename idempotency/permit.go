package idempotency

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/internal/script"
)

// A Permit is the right to run one effect. End it once, with Commit, Abort or Abandon; one that is not ended is in doubt
// when its lease is over. It is safe for concurrent use.
type Permit struct {
	guard  *Guard
	key    string
	effect string // of a job's record; "": the key's own
	record string
	owner  string
	print  string    // what the request was
	since  time.Time // when the effect was begun first, by Redis' clock
	begun  time.Time // when this process learnt that it has the record

	ctx    context.Context
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	ended    bool // by Commit, Abort, Abandon or a ride
	deadline time.Time
	timer    *time.Timer // ends the context at the deadline; nil where a job's heartbeat keeps the record
}

// Key is what the permit is for; of an effect of a job its ID and the effect's name, as <id>:<name>.
func (p *Permit) Key() string { return p.key }

// Context ends when the lease cannot be kept any more, with cause [ErrNotOwner], when the permit was ended, or with
// the job's context, where the effect is a job's. An effect that goes on after it may not be the only one. That a record
// which rides on a job's lease was deleted, by hand or by a failover that lost writes, is found out at the commit only.
func (p *Permit) Context() context.Context { return p.ctx }

// Commit makes the effect done, and keeps the result for the retention: later callers of the key get it. Only the owner's
// call counts: another gets [ErrNotOwner] and changes nothing. After any other error the effect is in doubt unless
// the call ran; an [*UnknownError] can be resolved. A commit that is repeated with the same result succeeds.
func (p *Permit) Commit(ctx context.Context, result []byte) error {
	if err := p.guard.checkResult(result); err != nil {
		return err
	}
	return p.finish(ctx, "commit", commitScript, p.effect, p.owner, p.guard.opts.Retention.Milliseconds(), result)
}

// Abort says that the effect certainly did not happen: the key is absent again, and whoever comes next begins anew.
func (p *Permit) Abort(ctx context.Context) error {
	return p.finish(ctx, "abort", giveUpScript, p.effect, p.owner, "no")
}

// Abandon gives the permit up without saying what became of the effect: it is in doubt at once, rather than when the
// lease is over. Of an effect of a job's own it does nothing in Redis: the job's next holder finds it in doubt, whatever
// ended the lease.
func (p *Permit) Abandon(ctx context.Context) error {
	if p.effect != "" {
		p.end()
		return nil
	}
	return p.finish(ctx, "abandon", giveUpScript, p.effect, p.owner, "maybe")
}

func (g *Guard) checkResult(result []byte) error {
	if len(result) > g.opts.ResultLimit {
		return &TooLargeError{Size: len(result), Limit: g.opts.ResultLimit}
	}
	return nil
}

func (p *Permit) finish(ctx context.Context, op string, s *script.Script, args ...any) error {
	call := &script.Call{Op: op, Script: s, Args: args, Records: []string{p.record}}
	err := p.guard.sessions.Do(ctx, call)
	if err == nil {
		err = call.Err
	}
	if err != nil {
		return err // the permit is kept: the call can be made again
	}
	p.end()
	switch call.Rest {
	case "o":
		return nil
	case "n":
		return fmt.Errorf("%s %q: %w", op, p.key, ErrNotOwner)
	}
	return &script.ReplyError{Script: s.Name, Reply: call.Rest}
}

// A Ride is what a permit of a job has the job's lease take along: the record, changed only while its field owner is
// Owner. Package reliable hands it to package lease, so that neither knows the other.
type Ride struct {
	Key    string // the whole Redis key
	Owner  string
	Fields []string      // names and values to set
	Expiry string        // the field that gets the lease's new end
	TTL    time.Duration // of the record, from then on
}

// Ride is what each heartbeat of the job does to the record.
func (p *Permit) Ride() Ride {
	return Ride{Key: p.record, Owner: p.owner, Expiry: "until", TTL: p.guard.opts.Retention}
}

// RideCommit is what the job's ack does to the record: it commits the effect. The ack is refused where the record is
// another holder's. A permit that was ended has nothing to commit, and gives an error.
func (p *Permit) RideCommit(result []byte) (Ride, error) {
	if err := p.guard.checkResult(result); err != nil {
		return Ride{}, err
	}
	if p.Ended() {
		return Ride{}, fmt.Errorf("commit %q: the permit was ended before", p.key)
	}
	r := p.Ride()
	r.Expiry = ""
	done := p.since.Add(time.Since(p.begun)) // on Redis' clock, as far as that matters: for people
	r.Fields = []string{"until", "0", "e:" + p.effect, fmt.Sprintf("d %d %s %d\n%s", p.since.UnixMilli(), p.print, done.UnixMilli(), result)}
	return r, nil
}

// RideAway is what a release, nack or bury of the job does to the record: effects that were begun are in doubt at once.
func (p *Permit) RideAway() Ride {
	r := p.Ride()
	r.Expiry, r.Fields = "", []string{"until", "0"}
	return r
}

// Rode ends the permit after the job's settle has ended it.
func (p *Permit) Rode() { p.end() }

// Ended reports whether the permit was ended: by Commit, Abort or Abandon, or with its job.
func (p *Permit) Ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

// riding reports whether a job's heartbeat keeps the record.
func (p *Permit) riding() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.timer == nil
}

func (p *Permit) end() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.guard.forget(p)
	p.over(context.Canceled)
}

// Beside reports whether the record lies in the slot of a queue's jobs, and behind the same client: whether it can ride
// on the lease of one of them.
func (p *Permit) Beside(rdb redis.UniversalClient, prefix, queue string) bool {
	return p.guard.Beside(rdb, prefix, queue)
}

// over ends the context.
func (p *Permit) over(cause error) {
	p.mu.Lock()
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	p.cancel(cause)
}
