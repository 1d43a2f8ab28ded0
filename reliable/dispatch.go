package reliable

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/leaseq/leaseq/idempotency"
	"github.com/leaseq/leaseq/lease"
)

// dispatcher is what the one goroutine knows that claims, hands jobs to workers, and settles: all in one round trip, with
// whatever has come together while the last one was under way, and in a second one beside it where that is worthwhile.
type dispatcher struct {
	free    int                // slots without a job
	held    map[*work]struct{} // claimed and not settled
	pending []*work            // over, to be settled
	taken   []*work            // as last found in the inbox

	flying    int // round trips under way
	asked     int // how many jobs they claim
	verdicts  spares[lease.Verdict]
	rooms     spares[lease.Lease]
	trips     chan func() // to those who make them; never blocks, since they are as many
	landed    chan flight
	flights   context.Context // ends when nothing may be waited for any more
	endFlight context.CancelFunc

	claimable bool // there may be something to claim
	claimed   int  // the number of the last claim that was sent
	told      int  // the highest number of those that were answered
	learned   int  // a claim up to this number may have run before there was something to claim
	owed      bool // this process took a wake-up, and has not claimed since
	owedAt    int  // a claim up to this number does not pay for it
	armed     bool // the waiter waits
	due       *time.Timer
	limits    *time.Timer // for job timeouts
	silence   *time.Timer // runs while the waiter waits: a dead connection says nothing
	paused    bool        // after an error, until pause fires
	pause     *time.Timer
	wait      time.Duration
	failure   error         // of the last round trip
	length    time.Duration // of the leases of the last claim

	stopping bool
	after    aftermath
	last     <-chan time.Time // the end of all waiting, once stopping
	drain    <-chan time.Time // the end of the handlers' time
	drained  bool
	abandon  <-chan time.Time
}

// flight is the answer of one round trip.
type flight struct {
	number    int    // of its claim
	slots     *grant // that it holds, where they are shared
	sent      []*work
	verdicts  []lease.Verdict // of those
	done      []lease.Settled
	settleErr error
	asked     int
	claimed   lease.Claimed
	claimErr  error
}

const (
	firstPause = 50 * time.Millisecond
	lateWake   = 150 * time.Millisecond // how long after its fallback the waiter may be late; an idle server takes 100 ms
	mostSleep  = time.Hour              // for a due time that is further away a consumer looks again in between
)

func (r *run) dispatch(ctx context.Context) error {
	r.free, r.held = r.capacity(), map[*work]struct{}{}
	defer r.hire()()
	r.flights, r.endFlight = context.WithCancel(context.Background())
	defer func() { r.endFlight() }()
	r.claimable, r.wait = true, firstPause
	r.due, r.pause, r.silence, r.limits = stoppedTimer(), stoppedTimer(), stoppedTimer(), stoppedTimer()
	defer r.limits.Stop()
	defer r.due.Stop()
	defer r.pause.Stop()
	defer r.silence.Stop()
	leave := r.waiter.Listen()
	defer leave()
	stop := ctx.Done()
	defer r.tellEnd()
	for {
		r.launch()
		r.tellSlots()
		if r.share != nil {
			r.afterLaunch()
		}
		if r.stopping && len(r.held) == 0 && (r.drained || r.flying == 0) {
			return r.recall()
		}
		if !r.finished.want(r.enough()) {
			r.collect()
			continue
		}
		select {
		case <-r.finished.notify:
			r.collect()
		case f := <-r.landed:
			r.land(f)
			r.digest(f)
			r.collect()
		case <-r.turns:
		case took := <-r.waiter.C():
			r.woken(took)
		case <-r.due.C:
			r.dueNow()
		case <-r.silence.C:
			r.look()
			r.silence.Reset(r.opts.WakeFallback + lateWake)
		case <-r.pause.C:
			r.paused = false
		case <-r.sooner:
			r.setLimit()
		case <-r.limits.C:
			r.lookAtLimits()
		case <-stop:
			stop = nil
			r.beginStop()
		case <-r.drain:
			r.cancelHandlers()
		case <-r.abandon:
			r.abandonHandlers()
		case <-r.last:
			return r.giveUp()
		}
	}
}

// tellSlots is for Health: while no slot is free no claim is due.
func (r *run) tellSlots() {
	if r.free > 0 && r.slots.Load() == 0 {
		r.claims.Resume()
	}
	r.slots.Store(int64(r.free))
}

func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// collect takes what workers have finished: their slots are free, their verdicts wait for the next round trip.
func (r *run) collect() {
	r.taken = r.finished.takeAll(r.taken)
	for _, w := range r.taken {
		r.free++
		if w.silent {
			r.forget(w)
			continue
		}
		r.pending = append(r.pending, w)
	}
}

func (r *run) forget(w *work) {
	w.job.hold.Done()
	delete(r.held, w)
}

func (r *run) digest(f flight) {
	failed := r.digestSettles(f)
	if f.asked > 0 {
		failed = errors.Join(failed, r.digestClaim(f))
	}
	r.failure = failed
	if failed == nil {
		r.wait = firstPause
	} else {
		r.failed("", failed)
		r.paused = true
		r.pause.Reset(r.wait/2 + rand.N(r.wait/2))
		r.wait = min(2*r.wait, time.Second)
	}
	r.payDebt()
}

// payDebt passes on the wake-up that this process owes a claim for, if it cannot claim now.
func (r *run) payDebt() {
	if r.owed && (r.free == 0 || r.stopping || r.paused) {
		r.owed = false
		r.passOn()
	}
}

// digestSettles notes what became of verdicts. One that was not answered is sent again, for up to ten minutes.
func (r *run) digestSettles(f flight) error {
	maybe := errors.Is(f.settleErr, ErrNeverKnown) || isUnknown(f.settleErr)
	for i, w := range f.sent {
		w.maybe = w.maybe || maybe && i >= len(f.done)
		if i < len(f.done) {
			w.maybe = w.maybe || isUnknown(f.done[i].Err)
			if errors.Is(f.done[i].Err, lease.ErrRecord) { // the job is held on
				w.err = nil
				w.fix(verdict{op: opNack, err: fmt.Errorf("%w: %w", idempotency.ErrNotOwner, f.done[i].Err)})
				r.pending = append(r.pending, w)
				continue
			}
			if !isUnknown(f.done[i].Err) {
				r.forget(w)
				r.after.count(r.stopping, w, f.done[i])
				r.settled(w, f.done[i])
				continue
			}
		}
		if time.Since(processStart)-w.over >= settleFor {
			r.forget(w)
			r.failed(w.job.ID, fmt.Errorf("job %s was not settled within %v: its lease runs out: %w", w.job.ID, settleFor, f.settleErr))
			continue
		}
		r.pending = append(r.pending, w)
	}
	return f.settleErr
}

func isUnknown(err error) bool {
	_, unknown := errors.AsType[*UnknownError](err)
	return unknown
}

func (r *run) digestClaim(f flight) error {
	if f.claimErr != nil {
		r.claims.Failed(f.claimErr)
		return f.claimErr
	}
	r.claims.Worked()
	r.owed = r.owed && f.number <= r.owedAt
	r.compareLease(f.claimed.Length)
	if f.claimed.Missing > 0 {
		r.failed("", fmt.Errorf("%d due jobs had no record, and were put into dead", f.claimed.Missing))
	}
	r.tellTooLate(f.claimed.TooLate)
	r.schedule(f)
	for i := range f.claimed.Jobs {
		r.take(&f.claimed.Jobs[i])
	}
	r.rooms.put(f.claimed.Jobs)
	return nil
}

// tellTooLate tells of jobs that a claim has put into dead, since their deadline had passed.
func (r *run) tellTooLate(jobs []lease.Lease) {
	for i := range jobs {
		l, w := &jobs[i], new(work)
		w.job = &w.own
		_ = w.job.read(l, r.store, r.guard, r.queue) // for what can be read of it
		w.job.settled = true
		w.job.hold = r.keeper.Ended((*jobContext)(w.job), l)
		r.emitFor(w, eventDead, 0, &tooLateError{deadline: l.NotAfter, claimed: l.Due.Add(l.Late)}, time.Time{})
	}
}

// schedule notes what a claim has told of the jobs that are still to come. What an older one tells after a newer one
// can be out of date: it is believed only where that costs no more than a claim in vain.
func (r *run) schedule(f flight) {
	newest := f.number >= r.told
	r.told = max(r.told, f.number)
	switch next := f.claimed.NextDue; {
	case next == 0:
		r.claimable = true
	case !newest:
		r.look()
	default:
		r.claimable = f.number <= r.learned
		r.due.Stop()
		if next > 0 {
			r.owed = r.owed || r.stopping // nobody else may know of that time
			at := f.claimed.At.Add(min(next, mostSleep))
			r.due.Reset(max(time.Until(at), 0) + rand.N(dueJitter))
		}
	}
}

// compareLease has the policy looked after where leases have become longer or shorter.
func (r *run) compareLease(length time.Duration) {
	if r.length != 0 && r.length != length {
		select {
		case r.suspect <- struct{}{}:
		default:
		}
	}
	r.length = length
}

// take gives a claimed job to a worker, or back.
func (r *run) take(l *lease.Lease) {
	w := new(work)
	w.job = &w.own
	err := w.job.read(l, r.store, r.guard, r.queue)
	w.job.hold = r.keeper.Hold((*jobContext)(w.job), l)
	w.job.later = true
	r.held[w] = struct{}{}
	switch {
	case err != nil:
		w.end(verdictForRecord(r.newer, err))
		r.pending = append(r.pending, w)
	case r.stopping:
		w.end(verdict{op: opRelease, err: ErrShutdown})
		r.pending = append(r.pending, w)
	case !r.hasRoom():
		w.end(verdict{op: opRelease, err: errNoSlot})
		r.pending = append(r.pending, w)
	default:
		r.free--
		r.jobs <- w
	}
}

// look asks for a claim, now or when a slot is free.
func (r *run) look() { r.claimable, r.learned = true, r.claimed }

// owe notes that a claim is owed to the others, which may not know of what this process was told.
func (r *run) owe() { r.owed, r.owedAt = true, r.claimed }

// dueNow is called when the time has come that a claim told of. Whose timer that is owes a claim, as if it had taken a
// wake-up: others may not know of the time.
func (r *run) dueNow() {
	r.look()
	r.owe()
	r.payDebt()
}

// woken is called for a wake-up that this process took, or at the fallback: either asks for a claim, which a taken one
// makes a duty. A process that cannot claim now passes the wake-up on.
func (r *run) woken(took bool) {
	r.armed = false
	r.silence.Stop()
	r.look()
	if took {
		r.owe()
	}
	r.payDebt()
}
