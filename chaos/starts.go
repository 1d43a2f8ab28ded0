package chaos

import (
	"slices"
)

// A turn is a claim, or the end of a handler, on the server's clock.
type turn struct {
	at   int64
	due  int64 // of a claim, µs: from when on the job could be claimed
	proc *process
	up   bool // a claim
}

// A crew is what the sweep over all turns knows of one Consumer.
type crew struct {
	first, last int64 // its first and last claim: it lived in between, and looked for jobs
	busy        int
	free        int64 // since when it has had a free slot without a break
}

// judgeStarts is invariant 12. A job was due, and nobody claimed it, or any other job, for a time in which a Consumer that
// lived had a free slot: the wait counts from the latest of the three, the due time, the claim before, and the slot.
// A claim's own time is exact, so that neither the way to the handler nor a busy machine's threads count.
func (b *book) judgeStarts() {
	var turns []turn
	crews := map[*process]*crew{}
	for _, j := range b.order {
		for i := range j.leases {
			var before *held
			if i > 0 && sameJob(&j.leases[i-1], &j.leases[i]) {
				before = &j.leases[i-1]
			}
			turns = b.turnsOf(&j.leases[i], before, turns, crews)
		}
	}
	slices.SortFunc(turns, func(x, y turn) int { return compare(x.at, y.at) })
	before := int64(0)
	for i := range turns {
		t := &turns[i]
		c := crews[t.proc]
		if t.up {
			b.looked(CheckStarts)
			if from := max(t.due, before); before != 0 && t.at-from > b.prompt() {
				b.judgeWait(t, from, crews)
			}
			before = t.at
			c.busy++
			continue
		}
		c.busy--
		if c.busy == t.proc.slots-1 {
			c.free = t.at
		}
	}
}

// claimable is from when on a job could be claimed: its due time, µs, or, since a release keeps that, when the lease
// before was released. Where that is not known, it was just then.
func (b *book) claimable(l, before *held) int64 {
	due := l.due * 1000
	if before == nil || before.endings(false)&byRelease == 0 {
		return due
	}
	if before.settled == 0 {
		return l.fence
	}
	at, ok := b.latest(before.proc, before.settled)
	if !ok {
		return l.fence
	}
	return max(due, at)
}

func (b *book) turnsOf(l, before *held, turns []turn, crews map[*process]*crew) []turn {
	at, epoch, ok := b.time(l)
	if !ok || !l.started || l.wait == 0 || l.proc.slots == 0 || epoch != len(b.steps) {
		if l.started {
			b.untold(CheckStarts)
		}
		return turns
	}
	c := crews[l.proc]
	if c == nil {
		c = &crew{first: at, last: at, free: at}
		crews[l.proc] = c
	}
	c.first, c.last, c.free = min(c.first, at), max(c.last, at), min(c.free, at)
	turns = append(turns, turn{at: at, due: b.claimable(l, before), proc: l.proc, up: true})
	if l.returned != 0 {
		if end, ok := b.latest(l.proc, l.returned); ok {
			turns = append(turns, turn{at: max(end, at), proc: l.proc})
		}
	}
	return turns
}

// judgeWait judges a job that waited from a moment on.
func (b *book) judgeWait(t *turn, from int64, crews map[*process]*crew) {
	for _, p := range b.procs {
		c := crews[p]
		if c == nil || c.busy >= p.slots || c.first > from || c.last < t.at {
			continue
		}
		since := max(from, c.free)
		if b.waited(p, since, t.at) {
			b.violation(CheckStarts, nil, "a job that could be claimed from %d ms on was claimed at %d µs, by %s, though %s had had a free slot for %d ms in which nobody claimed anything",
				t.due/1000, t.at, t.proc.name, p.name, (t.at-since)/1000)
			return
		}
	}
}

// waited reports whether a wait beside a free slot of p was too long. Faults and standstills of anybody can take a wake-up
// with them, which the fallback makes good; while Redis is away, or p itself, nothing is promised.
func (b *book) waited(p *process, since, at int64) bool {
	bound := b.prompt()
	fallback := b.opts.Fallback.Microseconds()
	wait := at - since
	if wait <= bound {
		return false
	}
	excused := false
	b.during(since-fallback, at, func(w *window) bool {
		bound = b.prompt() + fallback
		excused = w.to >= since && w.hits(p)
		return !excused
	})
	for _, q := range b.procs {
		lo, ok := b.earliest(q, 0)
		if !ok {
			continue
		}
		still := q.stoodStill(since-fallback-lo, at-lo)
		if still > 0 {
			bound = b.prompt() + fallback
		}
		if q == p {
			wait -= still
		}
	}
	if excused {
		b.results[CheckStarts].Excused++
	}
	return !excused && wait > bound
}
