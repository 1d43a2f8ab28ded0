package reliable

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leaseq/leaseq/lease"
)

// work is one job between its claim and its settle.
type work struct {
	own     Job // where the job of a consumer is
	ctx     lease.LimitedContext
	job     *Job
	started atomic.Int64 // when its handler began, in ns of this process' clock; 0: it did not
	limit   atomic.Int64 // until when it may run, likewise
	phase   atomic.Int32
	late    bool          // the watch has found it overdue; the dispatcher's
	silent  bool          // settled by hand, by its handler: there is no verdict to send
	maybe   bool          // its verdict was sent before, and nobody knows what became of that
	told    sync.Mutex    // hooks for one job are called one after the other
	back    bool          // its handler has returned; under told
	knows   bool          // hooks know that it is overdue; under told
	verdict lease.Verdict // once it is over
	err     error         // what the handler returned
	run     time.Duration
	over    time.Duration // when the verdict was known, after processStart
}

// Phases of work. A handler that returns after it was abandoned finds that its verdict is not wanted any more.
const (
	phaseWaiting int32 = iota // for a worker
	phaseRunning
	phaseOver
	phaseAbandoned
)

// processStart is what started counts from.
var processStart = time.Now().Add(-1)

// running is how long the handler has been running.
func (w *work) running() time.Duration {
	return time.Since(processStart) - time.Duration(w.started.Load())
}

var errNotStarted = errors.New("the lease was over before the handler could start")

// worker runs handlers until the channel is closed.
func (r *run) worker() {
	for w := range r.jobs {
		if !r.handle(w) {
			return // the handler called Goexit, and another worker was started
		}
	}
}

// handle runs one job's handler. It does not return if the handler calls runtime.Goexit.
func (r *run) handle(w *work) (survives bool) {
	if !w.phase.CompareAndSwap(phaseWaiting, phaseRunning) {
		return true // the consumer gave it back meanwhile
	}
	if !w.job.hold.Startable() {
		if w.phase.CompareAndSwap(phaseRunning, phaseOver) {
			w.fix(verdict{op: opRelease, err: errNotStarted})
			r.finished.put(w)
		}
		return true
	}
	r.begun(w)
	r.emitFor(w, eventStart, 0, nil, time.Time{})
	ctx := &w.ctx
	w.job.hold.Limit(ctx, processStart.Add(time.Duration(w.limit.Load())), ErrJobTimeout)
	runHandler(ctx, r.wrapped, w.job, func(err error, alive bool) {
		survives = alive
		cause := ctx.Cause()
		r.comeBack(w, cause)
		r.returned(w, err, cause)
		ctx.Cancel(context.Canceled)
		if !alive {
			go r.worker()
		}
	})
	return survives
}

// timeoutOf is how long one run of a job may take.
func (r *run) timeoutOf(job *Job) time.Duration {
	if mux, ok := r.handler.(*Mux); ok {
		if own := mux.timeoutFor(job.Kind); own > 0 {
			return own
		}
	}
	return r.opts.JobTimeout
}

// returned notes what a handler returned, and the cause of its context's end, if that had ended. Nothing of w is touched
// before it is certain that w was not abandoned.
func (r *run) returned(w *work, err, cause error) {
	r.late.remove(w)
	if !w.phase.CompareAndSwap(phaseRunning, phaseOver) {
		return // released meanwhile, and somebody else's
	}
	w.run = w.running()
	w.err = err
	unsure, ok := w.job.begin(false)
	w.silent = !ok
	switch {
	case !ok:
	case unsure != nil:
		w.fix(*unsure)
	case saysNoHandler(err):
		if r.unknownKinds.isNew(w.job.Kind) {
			r.opts.Logger.Warn("a kind has no handler: its jobs are released for five minutes, then nacked", "queue", r.queue.name, "kind", w.job.Kind)
		}
		w.fix(decide(r.unknownKinds.verdictForUnknownKind(w.job.Kind, err), endingOf(cause, w.job.hold)))
	default:
		w.fix(decide(verdictOf(err), endingOf(cause, w.job.hold)))
	}
	r.finished.put(w)
}

// end fixes the verdict of work that no worker has.
func (w *work) end(v verdict) {
	w.phase.Store(phaseOver)
	w.fix(v)
}

func (w *work) fix(v verdict) {
	if w.err == nil {
		w.err = v.err
	}
	w.verdict = w.job.verdict(v)
	w.over = time.Since(processStart)
}

// emitFor tells log and hooks about a job.
func (r *run) emitFor(w *work, name eventName, ran time.Duration, err error, next time.Time) {
	if r.opts.Hooks.hook(name) == nil && !r.opts.Logger.Enabled(w.job.Context(), levelOf(name)) {
		return
	}
	e := Event{
		Queue: r.queue.name, ID: w.job.ID, Kind: w.job.Kind, Attempt: w.job.Attempt, Fence: w.job.Fence(),
		RunTime: ran, Err: err, NextRun: next,
	}
	if began := w.started.Load(); began != 0 {
		e.Wait = w.job.late + time.Duration(began) - w.job.claimed
	}
	emit(w.job.Context(), r.opts.Logger, r.opts.Hooks, name, e)
}

// settled tells what became of a job.
func (r *run) settled(w *work, s lease.Settled) {
	var next time.Time
	if w.verdict.KeepAt == "" && w.verdict.Op != lease.Ack {
		next = time.Now().Add(w.verdict.Delay)
	}
	switch {
	case s.Err != nil && w.maybe:
		r.emitFor(w, eventError, w.run, fmt.Errorf("%w: the verdict was sent twice, and the first may have settled the job: %w", ErrNeverKnown, s.Err), time.Time{})
	case s.Err != nil:
		r.emitFor(w, eventLost, w.run, s.Err, time.Time{})
	case s.Cancelled:
		r.emitFor(w, eventCancelled, w.run, w.err, time.Time{})
	case s.Place == lease.Dead:
		r.emitFor(w, eventDead, w.run, w.err, time.Time{})
	case w.verdict.Op == lease.Ack:
		r.emitFor(w, eventDone, w.run, nil, time.Time{})
	case w.verdict.Op == lease.Release:
		r.emitFor(w, eventRelease, w.run, w.err, next)
	default:
		r.emitFor(w, eventRetry, w.run, w.err, next)
	}
}
