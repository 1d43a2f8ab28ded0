package chaos

import (
	"math"
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
	b.ofProcess = map[string][]*window{}
	var losing []*window
	reach := int64(math.MinInt64)
	for i := range b.windows {
		w := &b.windows[i]
		reach = max(reach, w.to)
		b.reach = append(b.reach, reach)
		b.ofProcess[w.target] = append(b.ofProcess[w.target], w)
		if w.does(record.Loses) {
			losing = append(losing, w)
		}
	}
	for _, j := range b.order {
		j.forgets = b.forgets(losing, j)
	}
}

// during calls each for the windows that touch a span of the server's time, until it returns false. There are few: a
// fault is a matter of seconds.
func (b *book) during(from, to int64, each func(*window) bool) {
	first, _ := slices.BinarySearch(b.reach, from)
	for i := first; i < len(b.windows); i++ {
		w := &b.windows[i]
		if w.from > to {
			return
		}
		if w.to >= from && !each(w) {
			return
		}
	}
}

// forgets reports whether an answer about a job lay in a window in which Redis forgets. A lease that was held then counts
// too: what is forgotten of it may be that it was extended.
func (b *book) forgets(losing []*window, j *job) bool {
	for _, w := range losing {
		in := func(p *process, from, to int64) bool {
			lo, ok1 := b.earliest(p, from)
			hi, ok2 := b.latest(p, to)
			if !ok1 || !ok2 {
				lo, hi = p.wall+from-wallPad, p.wall+to+wallPad
			}
			return hi >= w.from && lo <= w.to
		}
		for k := range j.calls {
			if c := &j.calls[k]; in(c.proc, c.at, c.at) || c.answered != 0 && in(c.proc, c.answered, c.answered) {
				return true
			}
		}
		for k := range j.leases {
			l := &j.leases[k]
			end := max(l.returned, l.settled)
			if end == 0 {
				end = l.proc.last
			}
			if in(l.proc, l.at, max(l.at, end)) {
				return true
			}
		}
	}
	return false
}

// explained says whether a fault, a pause or a timeout explains that a lease was not extended until a moment of the
// server's. What kept the claim's answer from its holder counts too: the holder's deadline begins with the request.
func (b *book) explained(l *held, to int64) bool {
	if l.proc.noExtend || !l.proc.closed && l.settled == 0 {
		return true
	}
	if l.ended != 0 && l.cause != record.OutLost {
		return true // nobody extends after a timeout, and what shutdown and cancel leave is not extended for ever
	}
	from := b.asked(l)
	found := false
	b.during(from, to, func(w *window) bool {
		of := w.does(record.Freezes) || w.does(record.Cut) || w.does(record.Lossy)
		found = w.does(record.Outage) || w.does(record.Steps) || w.does(record.Loses) || of && w.hits(l.proc)
		return !found
	})
	return found || l.proc.stoodStill(l.at-(l.fence-from), l.at+to-l.fence) >= b.lease/2
}

// asked is when a lease was asked for, if that was clearly before it was given: what its holder knows of its end, less a
// lease, unless it was extended since.
func (b *book) asked(l *held) int64 {
	if l.deadline != 0 {
		if at, ok := b.earliest(l.proc, l.deadline-b.lease); ok {
			return min(at, l.fence)
		}
	}
	return l.fence
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
