package demo

import (
	"maps"
	"slices"
	"time"
)

// effects is what the ledger says of the side effects. All of it is computed from the workers' lines alone: the guard
// is not asked whether it did well.
type effects struct {
	Happened int         // jobs whose side effect happened
	Spared   int         // deliveries that found it done by an earlier one, and did not repeat it
	Double   int         // effects beyond the first of a job that no in-doubt answer explains
	Doubts   []doubt     // the in-doubt answers
	Times    map[int]int // how many jobs had their side effect that often
	Twice    []doubled   // those that had it more than once
}

// A doubt is one in-doubt answer of the guard.
type doubt struct {
	ID, Effect, Worker string
	Left               string   // by whom: the earlier delivery that did not come to the effect's end
	Times              []effect // of the job's side effect, in all
}

// A doubled is a job whose side effect happened more than once.
type doubled struct {
	ID    string
	Times []effect
}

// An effect is one time, and how the delivery ended that it was part of.
type effect struct {
	Worker string
	Time   time.Time
	Ended  string
}

// countEffects counts the side effects and the in-doubt answers, and finds out which explain which.
func (b *ledger) countEffects(e *evidence, a *accounts) {
	b.Effects.Times = map[int]int{}
	for _, id := range e.enqueued {
		times := a.effects(id)
		b.Effects.Times[len(times)]++
		if len(times) > 0 {
			b.Effects.Happened++
		}
		if len(times) > 1 {
			b.Effects.Twice = append(b.Effects.Twice, doubled{ID: id, Times: times})
		}
		if n := a.unexplained(id); n > 0 {
			b.Effects.Double += n
			b.wrong("%s had its side effect %d times, and no in-doubt answer explains %d of them", id, len(times), n)
		}
		for _, d := range a.byID[id] {
			switch {
			case d.doubt != nil:
				b.countDoubt(d, a, times)
			case len(d.effects) == 0 && d.finish != nil && d.finish.Outcome == wasAcked && len(times) > 0:
				b.Effects.Spared++
			}
		}
	}
}

// countDoubt counts an in-doubt answer, for which there must be a reason: an earlier delivery that was cut off.
func (b *ledger) countDoubt(d *delivery, a *accounts, times []effect) {
	answer := doubt{ID: d.start.ID, Effect: d.doubt.Effect, Worker: d.start.Worker, Times: times}
	for _, earlier := range a.byID[d.start.ID] {
		if earlier.start.Fence < d.start.Fence && earlier.cutOff() {
			answer.Left = earlier.start.Worker
		}
	}
	if answer.Left == "" {
		b.wrong("%s was in doubt, and nobody had left its side effect so", d.start.ID)
	}
	b.Effects.Doubts = append(b.Effects.Doubts, answer)
}

// cutOff says whether a delivery can have begun its side effect and not come to its end: it was lost, given back or never
// ended, or it did the effect and then failed.
func (d *delivery) cutOff() bool {
	if d.finish == nil || d.finish.Outcome == wasLost || d.finish.Outcome == wasReleased {
		return true
	}
	return len(d.effects) > 0 && d.finish.Outcome != wasAcked
}

// unexplained counts the side effects of a job beyond the first whose delivery had not been told that it is in doubt.
// Deliveries follow on each other by their fences: one that was frozen may do its effect last, and is the first still.
func (a *accounts) unexplained(id string) int {
	n, first := 0, true
	for _, d := range a.byID[id] {
		for i := range d.effects {
			if !first && (i > 0 || d.doubt == nil) {
				n++
			}
			first = false
		}
	}
	return n
}

// checkDoubts finds out whether every effect that a kill cut off was in doubt for the next who came to it, and whether
// there was one: the kill is aimed at it.
func (b *ledger) checkDoubts(e *evidence, a *accounts) {
	for _, broken := range e.broken {
		if !broken.inside || b.settledAfterAll(broken, a.next(broken.ID, broken.Fence), a) {
			continue
		}
		told := slices.ContainsFunc(a.byID[broken.ID], func(d *delivery) bool { return d.start.Fence > broken.Fence && d.doubt != nil })
		if !told && a.acked[broken.ID] != nil {
			b.wrong("%s was killed inside the side effect of %s, and nobody was told that it is in doubt", broken.Worker, broken.ID)
		}
	}
	if len(b.Effects.Doubts) == 0 {
		b.wrong("no side effect was in doubt: no worker was killed inside one")
	}
}

// times lists how often side effects happened, sorted.
func (f *effects) times() []int { return slices.Sorted(maps.Keys(f.Times)) }

// doubted says whether the side effect of a job was ever in doubt.
func (f *effects) doubted(id string) bool {
	return slices.ContainsFunc(f.Doubts, func(d doubt) bool { return d.ID == id })
}
