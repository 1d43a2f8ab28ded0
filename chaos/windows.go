package chaos

import (
	"slices"

	"github.com/leaseq/leaseq/chaos/record"
)

// A window is the time of a fault on the server's clock: from its earliest beginning to its latest end.
type window struct {
	from, to int64
	*fault
}

// makeWindows puts the faults on the server's clock. Where that is not known, the wall clock has to do: harness and
// server are on one host.
func (b *book) makeWindows() {
	for _, f := range b.faults {
		w := window{fault: f, from: f.proc.wall + f.from - wallPad, to: f.proc.wall + f.to + wallPad}
		if from, ok := b.earliest(f.proc, f.from); ok {
			w.from = from
		}
		if to, ok := b.latest(f.proc, f.to); ok {
			w.to = to
		}
		b.windows = append(b.windows, w)
	}
	slices.SortFunc(b.windows, func(x, y window) int { return compare(x.from, y.from) })
	var losing []*window
	for i := range b.windows {
		if b.windows[i].does(record.Loses) {
			losing = append(losing, &b.windows[i])
		}
	}
	for _, j := range b.order {
		j.forgets = b.forgets(losing, j)
	}
}

// during calls each for the windows that touch a span of the server's time, until it returns false. There are few: a
// fault is a matter of seconds.
func (b *book) during(from, to int64, each func(*window) bool) {
	for i := range b.windows {
		w := &b.windows[i]
		if w.from > to {
			return
		}
		if w.to >= from && !each(w) {
			return
		}
	}
}

// forgets reports whether an answer about a job lay in a window in which Redis forgets.
func (b *book) forgets(losing []*window, j *job) bool {
	for _, w := range losing {
		in := func(p *process, at int64) bool {
			lo, ok1 := b.earliest(p, at)
			hi, ok2 := b.latest(p, at)
			if !ok1 || !ok2 {
				lo, hi = p.wall+at-wallPad, p.wall+at+wallPad
			}
			return hi >= w.from && lo <= w.to
		}
		for k := range j.calls {
			if c := &j.calls[k]; in(c.proc, c.at) || c.answered != 0 && in(c.proc, c.answered) {
				return true
			}
		}
		for k := range j.leases {
			if l := &j.leases[k]; in(l.proc, l.at) || l.returned != 0 && in(l.proc, l.returned) || l.settled != 0 && in(l.proc, l.settled) {
				return true
			}
		}
	}
	return false
}

// explained says whether a fault, a pause or a timeout explains that a lease ran out between two of the server's times.
func (b *book) explained(l *held, from, to int64) bool {
	if l.proc.noExtend || !l.proc.closed && l.settled == 0 {
		return true
	}
	if l.ended != 0 && l.cause != record.OutLost {
		return true // nobody extends after a timeout, and what shutdown and cancel leave is not extended for ever
	}
	found := false
	b.during(from, to, func(w *window) bool {
		found = w.does(record.Outage) || w.does(record.Steps) || w.does(record.Loses) || w.hits(l.proc) && !w.does(record.Dies)
		return !found
	})
	return found || l.proc.stoodStill(l.at, l.at+to-from) >= b.lease/2
}

// stoodStill is how long a process was known to stand still in a span of its time.
func (p *process) stoodStill(from, to int64) int64 {
	i, _ := slices.BinarySearchFunc(p.pauses, from, func(s span, at int64) int { return compare(s.to, at) })
	var sum int64
	for ; i < len(p.pauses) && p.pauses[i].from < to; i++ {
		sum += min(p.pauses[i].to, to) - max(p.pauses[i].from, from)
	}
	return sum
}
