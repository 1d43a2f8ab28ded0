package reliable

import "errors"

// share is a run's part in the slots that it shares with the runs of other queues. The run of a Consumer has none: its
// slots are its own.
type share struct {
	slots   *allotter
	of      *sharer
	room    int  // jobs of the last claim that may still begin
	rests   bool // the allotter knows that nothing is to be claimed
	workers int  // there are so many
}

var errNoSlot = errors.New("the claim was answered late, and its slots are taken")

// allotted is how many of up to most jobs may be claimed in a round trip with so many verdicts, and the slots for them.
func (r *run) allotted(most, verdicts int) (int, *grant) {
	s := r.share
	switch {
	case s == nil || !r.claimable || r.stopping:
		return most, nil
	case r.failure != nil && (r.flying > 0 || most <= 0):
		return 0, nil
	case r.failure != nil:
		return 1, &grant{} // to see whether it works again: that takes no slot from others
	}
	least := 1
	if r.flying > 0 && verdicts < r.worthwhile() {
		least = r.worthwhile()
	}
	s.rests = false
	g := s.slots.take(s.of, max(most, 0), least) // also with none: whoever has all slots may still be the next to come
	if g == nil {
		return 0, nil
	}
	return g.slots, g
}

// admit ends a claim's hold on its slots.
func (r *run) admit(f flight) {
	if f.slots != nil {
		r.share.room = r.share.slots.land(r.share.of, f.slots, len(f.claimed.Jobs))
	}
}

// hasRoom takes the slot of a job that was claimed; false: there is none.
func (r *run) hasRoom() bool {
	s := r.share
	if s == nil {
		return true
	}
	if s.room == 0 {
		return false
	}
	s.room--
	if s.workers < r.capacity()-r.free+1 { // so many jobs have a slot
		s.workers++
		go r.worker()
	}
	return true
}

// finish gives back the slot of a job whose handler is done. It is the only thing that workers do with a share.
func (s *share) finish() {
	if s != nil {
		s.slots.give(1)
	}
}

// staff is how many workers begin with a run. Where slots are shared each begins with the first job that needs it.
func (r *run) staff() int {
	if r.share != nil {
		return 0
	}
	return r.opts.Concurrency
}

// afterLaunch tells the allotter, others and Health where a run stands that has sent what it could.
func (r *run) afterLaunch() {
	s := r.share
	if s.room > 0 { // jobs that needed no slot
		s.slots.give(s.room)
		s.room = 0
	}
	hungry := r.claimable && !r.stopping && !r.paused && r.failure == nil
	if !hungry && !s.rests {
		s.rests = true
		s.slots.rest(s.of)
	}
	if r.owed && r.asked == 0 && r.claimed == r.owedAt { // the slots are others': somebody else may have one
		r.owed = false
		r.passOn()
	}
	waits := hungry && r.asked == 0
	if !waits && r.waits.Load() {
		r.claims.Resume()
	}
	r.waits.Store(waits)
}
