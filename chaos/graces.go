package chaos

import "math"

// A grace is one that a line of a history tells of: seen at a moment of a process, and lasting for so long from then on.
type grace struct {
	proc *process
	at   int64
	left int64
}

// A pardon is a grace on the server's clock.
type pardon struct{ from, to int64 }

// gracePad is for the way of the answer that told of a grace.
const gracePad = 50_000 // µs

// makePardons puts graces on the server's clock: those that were right to begin, since no sweeper that lived was free to
// sweep in the half lease before. A sweeper that lived, undisturbed, and did not sweep is no excuse for anybody.
func (b *book) makePardons() {
	for _, g := range b.graces {
		seen, ok1 := b.earliest(g.proc, g.at)
		end, ok2 := b.latest(g.proc, g.at+g.left)
		if !ok1 || !ok2 {
			continue
		}
		from := end - b.lease // it began then, or later
		if len(b.pardons) > 0 && b.pardons[len(b.pardons)-1].to >= end {
			continue // seen again
		}
		if seen > end || b.sweptWell(from-b.lease/2-b.lease/8, from) {
			continue
		}
		b.pardons = append(b.pardons, pardon{from: from - gracePad, to: end + gracePad})
	}
}

// sweptWell reports whether in a span of the server's time some Consumer lived without any disturbance.
func (b *book) sweptWell(from, to int64) bool {
	general := false
	b.during(from, to, func(w *window) bool {
		general = len(w.effects) > 0 && w.target == ""
		return !general
	})
	if general {
		return false
	}
	for _, p := range b.procs {
		if p.slots == 0 || p.first == 0 { // it may never have come to work
			continue
		}
		begun, ok1 := b.latest(p, p.first)
		ended, ok2 := b.earliest(p, p.last)
		if !ok1 || !ok2 || begun+b.lease > from || ended < to {
			continue
		}
		hit := p.stoodStill(p.last-(ended-from), p.last-(ended-to)) > 0
		for _, w := range b.ofProcess[p.name] {
			hit = hit || len(w.effects) > 0 && w.from <= to && w.to+b.lease/2 >= from
		}
		if !hit {
			return true
		}
	}
	return false
}

// pardoned is until when expired leases may stay because holders were spared, from a moment on; 0: not at all.
func (b *book) pardoned(from, now int64) int64 {
	until := int64(math.MinInt64)
	for i := len(b.pardons) - 1; i >= 0 && b.pardons[i].to >= from; i-- {
		if p := b.pardons[i]; p.from <= now {
			until = max(until, p.to)
		}
	}
	return until
}
