package reliable

import (
	"errors"
	"math"
	"time"
)

// begun notes when a job's handler starts, and until when it may run. One timer, the dispatcher's, is for all of them.
func (r *run) begun(w *work) {
	now := time.Since(processStart)
	limit := int64(math.MaxInt64)
	if timeout := r.queue.atMost(r.timeoutOf(w.job)); timeout < math.MaxInt64-now {
		limit = int64(now + timeout)
	}
	w.started.Store(int64(now))
	w.limit.Store(limit)
	if r.lower(limit) {
		select {
		case r.sooner <- struct{}{}:
		default:
		}
	}
}

// lower makes limit the first time at which a job timeout may be reached, unless an earlier one is known.
func (r *run) lower(limit int64) bool {
	for {
		first := r.nextLimit.Load()
		if limit >= first {
			return false
		}
		if r.nextLimit.CompareAndSwap(first, limit) {
			return true
		}
	}
}

// setLimit sets the timer to the first of the job timeouts.
func (r *run) setLimit() {
	if first := r.nextLimit.Load(); first < math.MaxInt64 {
		r.limits.Reset(max(time.Duration(first)-time.Since(processStart), 0))
	}
}

// lookAtLimits finds the handlers that have run for as long as they may, and sets the timer for the next.
func (r *run) lookAtLimits() {
	r.nextLimit.Store(math.MaxInt64) // what starts from here on lowers it again
	now, next := int64(time.Since(processStart)), int64(math.MaxInt64)
	for w := range r.held {
		limit := w.limit.Load()
		if limit == 0 || w.late || w.phase.Load() != phaseRunning {
			continue
		}
		if limit > now {
			next = min(next, limit)
			continue
		}
		w.late = true
		go r.overdue(w) // hooks may take their time
	}
	r.lower(next)
	r.setLimit()
}

// overdue is for a handler that has not returned when its time was over: the lease is let run out, and hooks are told.
func (r *run) overdue(w *work) {
	w.told.Lock()
	defer w.told.Unlock()
	if w.back || w.job.hold.Context().Err() != nil { // its context had ended before, and for another reason
		return
	}
	w.knows = true
	w.job.hold.StopExtending()
	r.late.add(w)
	r.emitFor(w, eventOverdue, w.running(), ErrJobTimeout, time.Time{})
}

// comeBack is for a handler that has returned, with the cause of its context's end: what hooks are told of the job comes
// one after the other, and an end that the handler has seen is among it.
func (r *run) comeBack(w *work, cause error) {
	w.told.Lock()
	defer w.told.Unlock()
	w.back = true
	if !w.knows && errors.Is(cause, ErrJobTimeout) {
		w.job.hold.StopExtending()
		r.emitFor(w, eventOverdue, w.running(), cause, time.Time{})
	}
}
