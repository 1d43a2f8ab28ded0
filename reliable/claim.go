package reliable

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/leaseq/leaseq/internal/wire"
	"github.com/leaseq/leaseq/lease"
)

// ClaimOptions are the optional settings of a claim by hand; nil is valid.
type ClaimOptions struct {
	// Lease, if longer than the queue's, and at most its MaxLease ([*LongLeaseError]). A shorter one is refused. Default the
	// queue's.
	Lease time.Duration
	// Wait is how long to wait for a job if none is due; the time that Redis takes to answer is not bounded by it, but
	// by the context. Default 0: not at all.
	Wait time.Duration
	// KeepAlive extends the leases until the jobs are settled or the Queue is closed. Default: they run out, and
	// Job.Extend moves them by hand.
	KeepAlive bool
}

// A Batch is what a claim by hand found. No jobs is not an error.
type Batch struct {
	Jobs []*Job
	// NextDue is how long until the next job is due, if nothing changes; 0 where nothing is known, or one is due now.
	NextDue time.Duration
	// Held says why jobs that are due were not given: "" where there is no such reason, [HeldPaused],
	// [HeldConcurrency] or [HeldRate].
	Held string
}

// Claim leases up to n jobs (1–1,000) that are due, the lowest due times first. Each must be settled: Ack, Nack,
// Release or Bury; else its lease runs out and it is given to somebody else. The first claim of a Queue publishes its
// options. Jobs whose record cannot be decoded go to dead as undecodable, those whose NotAfter has passed as too late, and
// those that a newer version wrote back to due for it; none of them is in the batch, and each takes one of the n. When ctx
// ends before an answer, what was leased is given back, uncounted. Close of the Queue ends the waiting with [ErrClosed].
func (q *Queue) Claim(ctx context.Context, n int, o *ClaimOptions) (*Batch, error) {
	var opts ClaimOptions
	if o != nil {
		opts = *o
	}
	if opts.Lease < 0 || opts.Wait < 0 {
		return nil, fmt.Errorf("claim: Lease %v, Wait %v: want 0 or more", opts.Lease, opts.Wait)
	}
	if opts.Lease > 0 && opts.Lease < q.opts.Lease {
		return nil, &ShortLeaseError{Asked: opts.Lease, Published: q.opts.Lease}
	}
	if err := q.hand.publish(ctx, q); err != nil {
		return nil, err
	}
	q.followByHand(ctx)
	if err := q.checkLease(opts.Lease); err != nil {
		return nil, err
	}
	keeper, err := q.hand.keeperFor(q)
	if err != nil {
		return nil, err
	}
	batch, next, err := q.claimNow(ctx, keeper, n, &opts)
	switch {
	case err != nil || len(batch.Jobs) == 0 && opts.Wait == 0:
		return batch, err
	case len(batch.Jobs) > 0:
		q.tellOthers(next)
		return batch, nil
	}
	return q.claimWaiting(ctx, keeper, n, &opts, batch, next)
}

// tellOthers has another waiting process look, if a job falls due so soon that nobody else may know of it in time: who
// has claimed does not wait for it any more.
func (q *Queue) tellOthers(next time.Duration) {
	if next > 0 && next <= lease.DefaultFallback+lateWake {
		if !q.group.spawn(q.passOn) {
			q.passOn() // the queue is being closed, which waits for this claim
		}
	}
}

func (q *Queue) claimNow(ctx context.Context, keeper *lease.Keeper, n int, o *ClaimOptions) (batch *Batch, next time.Duration, err error) {
	got, err := q.store.Claim(ctx, n, &lease.ClaimOptions{Lease: o.Lease})
	if err != nil {
		return nil, 0, err
	}
	batch = &Batch{Held: got.Held, NextDue: max(got.NextDue, 0)}
	var odd []lease.Verdict
	for i := range got.Jobs {
		job, err := newJob(&got.Jobs[i], q.store, q.guard, q)
		if err != nil {
			odd = append(odd, job.verdict(q.verdictForRecord(err)))
			continue
		}
		job.hold = keeper.Hold((*jobContext)(job), &got.Jobs[i])
		if !o.KeepAlive {
			job.hold.StopExtending()
		}
		batch.Jobs = append(batch.Jobs, job)
	}
	if len(odd) > 0 {
		if _, err := q.store.Settle(ctx, odd); err != nil {
			q.opts.Logger.Warn("jobs that cannot be decoded were not settled, and come back", "queue", q.name, "jobs", len(odd), "error", err)
		}
	}
	return batch, got.NextDue, nil
}

// newerByHand remembers newer versions that were met by hand, in this process.
var newerByHand = newNewerVersions(time.Now)

func (q *Queue) verdictForRecord(err error) verdict {
	return verdictForRecord(newerByHand, err)
}

// verdictForRecord decides about a record that this version cannot read.
func verdictForRecord(newer *growingDelays, err error) verdict {
	var version *wire.NewerVersionError
	if errors.As(err, &version) {
		return newer.verdictForNewerVersion(version.Version, err)
	}
	if err == errNoRecord {
		return verdict{op: opBury, class: lease.ClassNoRecord, err: err}
	}
	return verdict{op: opBury, class: lease.ClassUndecodable, err: fmt.Errorf("undecodable: %w", err)}
}

// claimWaiting waits for a wake-up, the next due time, or the fallback, and claims again, until Wait is over.
func (q *Queue) claimWaiting(ctx context.Context, keeper *lease.Keeper, n int, o *ClaimOptions, batch *Batch, next time.Duration) (*Batch, error) {
	waiter, err := q.hand.waiterFor(q)
	if err != nil {
		return nil, err
	}
	defer q.hand.waiting.Done()
	leave := waiter.Listen()
	defer leave()
	defer func() { q.tellOthers(next) }()
	end := time.NewTimer(o.Wait)
	defer end.Stop()
	for {
		waiter.Arm()
		due := time.NewTimer(untilDue(next))
		owed := false
		select {
		case <-ctx.Done():
			due.Stop()
			return nil, ctx.Err()
		case <-q.hand.closing:
			due.Stop()
			return nil, lease.ErrClosed
		case <-end.C:
			due.Stop()
			return batch, nil
		case owed = <-waiter.C():
		case <-due.C:
		}
		due.Stop()
		batch, next, err = q.claimNow(ctx, keeper, n, o)
		if err != nil {
			if owed {
				q.passOn()
			}
			return nil, err
		}
		if len(batch.Jobs) > 0 {
			return batch, nil
		}
	}
}

// passOn gives a wake-up to another process, on a context of its own.
func (q *Queue) passOn() {
	ctx, cancel := context.WithTimeout(context.Background(), lease.DefaultFallback)
	defer cancel()
	if err := q.store.Wake(ctx); err != nil {
		q.opts.Logger.Warn("a wake-up could not be passed on", "queue", q.name, "error", err)
	}
}

// dueJitter spreads the claims of processes that wait for the same due time.
const dueJitter = time.Millisecond

// untilDue is how long a claim by hand waits for the next due time: a little more than the fallback at most, since the
// wake-up may have been lost with another process, or with a connection that is dead without a word.
func untilDue(next time.Duration) time.Duration {
	if most := lease.DefaultFallback + lateWake; next < 0 || next > most {
		return most
	}
	return next + rand.N(dueJitter)
}
