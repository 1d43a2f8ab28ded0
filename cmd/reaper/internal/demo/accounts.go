package demo

import (
	"fmt"
	"maps"
	"slices"

	"github.com/leaseq/leaseq/reliable"
)

// accounts is the evidence, put in order.
type accounts struct {
	byFence  map[int64]*delivery
	byID     map[string][]*delivery // in the order of their fences
	acked    map[string]*delivery   // by ID: the one whose ack Redis took
	finishes []line                 // also of deliveries that were over before they could start
	silent   map[int]string         // names of workers that came up and ended without a word, by process ID
	counters map[string]int64
	problems []string
}

func newAccounts(e *evidence) *accounts {
	a := &accounts{
		byFence: map[int64]*delivery{}, byID: map[string][]*delivery{}, acked: map[string]*delivery{},
		silent: map[int]string{}, counters: e.stats.Counters,
	}
	known := map[string]bool{}
	for _, id := range e.enqueued {
		known[id] = true
	}
	for i := range e.lines {
		l := &e.lines[i]
		if l.ID != "" && !known[l.ID] {
			a.wrong("worker %s worked on %s, which nobody enqueued", l.Worker, l.ID)
		}
		a.enter(l)
	}
	for _, list := range a.byID {
		slices.SortFunc(list, func(x, y *delivery) int { return int(x.start.Fence - y.start.Fence) })
	}
	return a
}

// enter books one line.
func (a *accounts) enter(l *line) {
	d := a.byFence[l.Fence]
	switch l.Event {
	case isUp:
		a.silent[l.PID] = l.Worker
	case isDown:
		delete(a.silent, l.PID)
	case isStart:
		if d != nil {
			a.wrong("%s and %s were started under one fence, %d", d.start.ID, l.ID, l.Fence)
			return
		}
		d = &delivery{start: *l}
		a.byFence[l.Fence] = d
		a.byID[l.ID] = append(a.byID[l.ID], d)
	case isEffect, isDoubt:
		a.enterEffect(d, l)
	case isFinish:
		a.finishes = append(a.finishes, *l)
		if d == nil || d.start.ID != l.ID {
			if l.Outcome != wasLost && l.Outcome != wasReleased { // its lease was over before it could be started
				a.wrong("worker %s says %q of %s without having started it", l.Worker, l.Outcome, l.ID)
			}
			return
		}
		d.finish = l
		if l.Outcome == wasAcked {
			if before := a.acked[l.ID]; before != nil {
				a.wrong("%s was acked twice, by %s and by %s", l.ID, before.start.Worker, l.Worker)
			}
			a.acked[l.ID] = d
		}
	}
}

// enterEffect books a side effect, or the answer that it is in doubt, which is given before a worker does it.
func (a *accounts) enterEffect(d *delivery, l *line) {
	switch {
	case d == nil || d.start.ID != l.ID:
		what := "did the side effect"
		if l.Event == isDoubt {
			what = "was in doubt about the side effect"
		}
		a.wrong("worker %s %s of %s without having started it", l.Worker, what, l.ID)
	case l.Event == isEffect:
		d.effects = append(d.effects, *l)
	case len(d.effects) > 0:
		a.wrong("worker %s was in doubt about the side effect of %s, which it had done itself", l.Worker, l.ID)
	default:
		d.doubt = l
	}
}

func (a *accounts) wrong(format string, args ...any) {
	a.problems = append(a.problems, fmt.Sprintf(format, args...))
}

func (a *accounts) counter(name string) int { return int(a.counters[name]) }

// next returns the delivery of a job that followed on a fence, or nil.
func (a *accounts) next(id string, fence int64) *delivery {
	for _, d := range a.byID[id] {
		if d.start.Fence > fence {
			return d
		}
	}
	return nil
}

// diedAfterEffect says whether the last delivery of a job was under a worker that ended without a word, nobody wrote how
// it ended, and the side effect had happened, in it or before.
func (a *accounts) diedAfterEffect(id string) bool {
	list := a.byID[id]
	if len(list) == 0 {
		return false
	}
	last := list[len(list)-1]
	_, silent := a.silent[last.start.PID]
	return silent && last.finish == nil && len(a.effects(id)) > 0
}

// open returns the deliveries of a worker whose end nobody wrote.
func (a *accounts) open(pid int) []*delivery {
	var list []*delivery
	for _, fence := range slices.Sorted(maps.Keys(a.byFence)) {
		if d := a.byFence[fence]; d.start.PID == pid && d.finish == nil {
			list = append(list, d)
		}
	}
	return list
}

// effects lists the side effects of a job, in the order of the deliveries.
func (a *accounts) effects(id string) []effect {
	var list []effect
	for _, d := range a.byID[id] {
		for _, l := range d.effects {
			list = append(list, effect{Worker: l.Worker, Time: l.Time, Ended: d.end(a)})
		}
	}
	return list
}

// end says how a delivery ended.
func (d *delivery) end(a *accounts) string {
	_, silent := a.silent[d.start.PID]
	switch {
	case d.finish == nil && silent:
		return "the worker was killed before its ack"
	case d.finish == nil:
		return "nobody wrote how it ended"
	case d.finish.Outcome == wasLost:
		return "its ack came late, and was refused"
	}
	return string(d.finish.Outcome)
}

// fate says what became of a job.
func (a *accounts) fate(id string, e *evidence) string {
	for i, other := range e.enqueued {
		if other == id && e.jobs[i].Place != reliable.Nowhere {
			return e.jobs[i].Place.String()
		}
	}
	if d := a.acked[id]; d != nil {
		return "acked by " + d.start.Worker
	}
	return "gone"
}
