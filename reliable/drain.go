package reliable

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leaseq/leaseq/lease"
)

// beginStop: nothing more is claimed. The blocking connection is closed first, so that no wake-up is taken any more.
func (r *run) beginStop() {
	r.stopping = true
	r.ending.Store(true)
	r.aside.Go(r.waiter.Close)
	if r.due.Stop() { // others must learn of the time that this process waits for
		r.owe()
	}
	if r.flying == 0 {
		r.payDebt()
	}
	if r.opts.Prefetch > 0 {
		r.returnWaiting()
	}
	r.drain = time.After(r.opts.DrainTimeout)
	r.opts.Logger.Info("stopping: nothing more is claimed", "queue", r.queue.name, "held", len(r.held))
}

// returnWaiting gives back the jobs that wait for a handler.
func (r *run) returnWaiting() {
	for w := range r.held {
		if w.phase.CompareAndSwap(phaseWaiting, phaseOver) {
			w.fix(verdict{op: opRelease, err: ErrShutdown})
			r.pending = append(r.pending, w)
		}
	}
}

// cancelHandlers ends the contexts of handlers that have not returned in their time. What follows counts from here, so
// that a process that stood still does not skip it.
func (r *run) cancelHandlers() {
	r.drained = true
	r.abandon = time.After(abandonAfter)
	r.last = time.After(abandonAfter + lastSettle)
	for w := range r.held {
		if w.phase.Load() == phaseRunning {
			w.job.hold.Cancel(ErrShutdown)
		}
	}
}

// abandonHandlers releases the jobs of handlers that do not heed their context. What they return is not wanted any
// more, and their calls to settle by hand are refused.
func (r *run) abandonHandlers() {
	r.collect()
	for w := range r.held {
		switch {
		case w.phase.CompareAndSwap(phaseWaiting, phaseAbandoned):
		case w.phase.CompareAndSwap(phaseRunning, phaseAbandoned):
			r.after.abandoned++
			r.emitFor(w, eventOverdue, w.running(), ErrShutdown, time.Time{})
		default:
			continue
		}
		unsure, ok := w.job.begin(false)
		switch {
		case !ok:
			r.forget(w) // its handler settled it by hand
			continue
		case unsure != nil:
			w.fix(*unsure) // it tried
		default:
			w.fix(verdict{op: opRelease, err: ErrShutdown})
		}
		r.pending = append(r.pending, w)
	}
}

// aftermath is what became of the jobs that were held when the run was asked to end.
type aftermath struct{ acked, released, other, lost, abandoned int }

func (e *aftermath) count(stopping bool, w *work, s lease.Settled) {
	switch {
	case !stopping:
	case s.Err != nil:
		e.lost++
	case w.verdict.Op == lease.Ack:
		e.acked++
	case w.verdict.Op == lease.Release:
		e.released++
	default:
		e.other++
	}
}

// tellEnd says what became of the jobs that were held when ctx ended.
func (r *run) tellEnd() {
	r.opts.Logger.Info("stopped", "queue", r.queue.name, "acked", r.after.acked, "released", r.after.released,
		"nacked_or_buried", r.after.other, "lost", r.after.lost, "abandoned", r.after.abandoned, "unsettled", len(r.held))
}

var errNotTaken = errors.New("redis did not take the verdicts in time")

// recall ends a run that holds nothing. A claim that is still under way is not waited for any more: without an answer it
// is given back by its seal, or was never made; one that was answered just now brings jobs that nobody works on.
func (r *run) recall() error {
	var late []lease.Lease
	for _, f := range r.lastFlights() {
		late = append(late, f.claimed.Jobs...)
		r.tellTooLate(f.claimed.TooLate)
	}
	return r.giveBack(late, lastSettle)
}

// lastFlights ends the waiting for what is under way, and returns what had come of it.
func (r *run) lastFlights() (all []flight) {
	r.endFlight()
	for ; r.flying > 0; r.flying-- {
		all = append(all, <-r.landed)
	}
	return all
}

// giveBack releases the jobs that claims have brought too late.
func (r *run) giveBack(jobs []lease.Lease, patience time.Duration) error {
	if len(jobs) == 0 {
		return nil
	}
	verdicts := make([]lease.Verdict, len(jobs))
	ids := make([]string, len(jobs))
	for i := range jobs {
		verdicts[i] = lease.Verdict{Op: lease.Release, ID: jobs[i].ID, Token: jobs[i].Token}
		verdicts[i].KeepDue(&jobs[i])
		ids[i] = jobs[i].ID
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := r.store.Settle(ctx, verdicts); err != nil {
		return &DrainError{IDs: ids, Cause: fmt.Errorf("%w: %w", errNotTaken, err)}
	}
	r.after.released += len(jobs)
	return nil
}

// giveUp names what was not settled.
func (r *run) giveUp() error {
	var late *DrainError
	var jobs []lease.Lease
	for _, f := range r.lastFlights() {
		_ = r.digestSettles(f) // what was answered is settled
		jobs = append(jobs, f.claimed.Jobs...)
		r.tellTooLate(f.claimed.TooLate)
	}
	_ = errors.As(r.giveBack(jobs, lastSeal), &late)
	failure := &DrainError{Cause: errNotTaken}
	if r.failure != nil {
		failure.Cause = fmt.Errorf("%w: %w", errNotTaken, r.failure)
	}
	for w := range r.held {
		failure.IDs = append(failure.IDs, w.job.ID)
		w.job.hold.Done()
	}
	if late != nil {
		failure.IDs = append(failure.IDs, late.IDs...)
	}
	if len(failure.IDs) == 0 {
		return nil
	}
	return failure
}
