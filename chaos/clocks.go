package chaos

import (
	"math"
	"slices"

	"github.com/leaseq/leaseq/chaos/record"
)

// Times. Each process has a clock of its own, and the server has one. Two clocks of processes are never compared: all
// is put on the server's, by what each process has seen of it. A fence is the server's clock in µs at a claim, which ran
// between the call and the handler's start; and a mark is the same for any other process. So the offset between a
// process' clock and the server's lies between two bounds, which get as near to each other as the quickest answer.
//
// Where the server's clock is moved on purpose, each part of the run between two moves (an epoch) has its own offsets,
// and no times of two epochs are compared. After a move back fences run ahead of the clock, and are no times, unless the
// fault lasted until the clock had caught up.

// bounds of what is to be added to a process' time to have the server's.
type bounds struct{ lo, hi int64 }

func (o *bounds) known() bool { return o.lo != math.MinInt64 && o.hi != math.MaxInt64 }

// A step is one move of the server's clock, in wall time of the history.
type step struct {
	from, to int64
	back     bool
}

// blur is what whole milliseconds, the numbers of one claim and drift can make of a time.
const blur = 2000 // µs

// wallPad is for what is only known by wall clocks.
const wallPad = 100_000 // µs

// A fault that the history tells of.
type fault struct {
	proc     *process // who wrote it
	number   int64
	name     string
	target   string
	effects  []string
	from, to int64 // in the writer's time
	bites    int64 // 0: not told
	ended    bool
	delay    int64
}

// caughtUp reports whether a step back lasted for as long as the clock had been moved, from when that was surely done: by
// its end the clock shows what it had shown before, and fences are times again.
func (f *fault) caughtUp() bool { return f.bites != 0 && f.ended && f.to-f.bites >= -f.delay }

func (f *fault) does(effect string) bool { return slices.Contains(f.effects, effect) }

// hits reports whether the fault is one of a process.
func (f *fault) hits(p *process) bool { return f.target == "" || f.target == p.name }

func (b *book) faulted(p *process, e *record.Event) {
	b.disturbed = true
	if e.Out == record.FaultBegin {
		b.faults = append(b.faults, &fault{
			proc: p, number: e.Call, name: e.Name, target: e.Target, effects: e.Effects, from: e.At, delay: e.Delay,
		})
		for _, effect := range e.Effects {
			b.report.Cases["fault: "+effect]++
		}
		return
	}
	for i := len(b.faults) - 1; i >= 0; i-- {
		f := b.faults[i]
		switch {
		case f.proc != p || f.number != e.Call || f.ended:
			continue
		case e.Out == record.FaultBites:
			f.bites = e.At
		default:
			f.to, f.ended = e.At, true
		}
		return
	}
	b.violation(CheckHistory, nil, "process %s wrote %q of the fault %d, which had not begun", p.name, e.Out, e.Call)
}

// prepare puts everything on the server's clock.
func (b *book) prepare() {
	if b.opts.Lease > 0 {
		b.lease = b.opts.Lease.Microseconds()
	}
	b.report.LeaseMS = b.lease / 1000
	b.straighten()
	for _, f := range b.faults {
		if !f.ended {
			f.to = max(f.proc.last, f.from)
		}
		if f.does(record.Steps) {
			b.steps = append(b.steps, step{f.proc.wall + f.from - wallPad, f.proc.wall + f.to + wallPad, f.delay <= 0 && !f.caughtUp()})
		}
	}
	slices.SortFunc(b.steps, func(x, y step) int { return compare(x.from, y.from) })
	for _, p := range b.procs {
		p.bounds = make([]bounds, len(b.steps)+1)
		for i := range p.bounds {
			p.bounds[i] = bounds{math.MinInt64, math.MaxInt64}
		}
		for _, m := range p.marks {
			e, ok := b.epoch(p, m.before)
			if after, ok2 := b.epoch(p, m.after); ok && ok2 && e == after { // no step came while the answer was on its way
				p.narrow(e, m.server-m.after-blur, m.server-m.before+blur)
			}
		}
	}
	for _, j := range b.order {
		slices.SortStableFunc(j.leases, func(x, y held) int { return compare(x.fence, y.fence) })
		for i := range j.leases {
			b.sample(&j.leases[i])
		}
	}
	for _, p := range b.procs {
		for i := range p.bounds {
			b.fit(p, &p.bounds[i])
		}
	}
	b.makeWindows()
	b.makePardons()
}

// straighten puts the wall clocks right of which the history says that they were wrong.
func (b *book) straighten() {
	for _, f := range b.faults {
		for _, p := range b.procs {
			if f.does(record.Skews) && p.name == f.target {
				p.wall -= f.delay
			}
		}
	}
}

func compare(x, y int64) int {
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// epoch is in which part of the run a process' time lies; false: in a step of the server's clock.
func (b *book) epoch(p *process, at int64) (int, bool) {
	wall := p.wall + at
	n := 0
	for n < len(b.steps) && b.steps[n].to < wall {
		n++
	}
	return n, n == len(b.steps) || wall < b.steps[n].from
}

// stamped reports whether fences are times in an epoch.
func (b *book) stamped(epoch int) bool {
	for _, s := range b.steps[:epoch] {
		if s.back {
			return false
		}
	}
	return true
}

func (p *process) narrow(epoch int, lo, hi int64) {
	o := &p.bounds[epoch]
	o.lo, o.hi = max(o.lo, lo), min(o.hi, hi)
}

// sample learns the offset from a claim whose handler was started: the claim ran before the start, and after it was
// sent, which was one lease before the first local deadline. A start that came late, or in a process that stood still,
// may have seen a later deadline, which a heartbeat had moved; so the wait that was reckoned must say the same.
func (b *book) sample(l *held) {
	if !l.started || l.wait == 0 {
		return
	}
	e, ok := b.epoch(l.proc, l.at)
	if !ok || !b.stamped(e) {
		return
	}
	hi, sent := int64(math.MaxInt64), l.first-b.lease
	waited := l.wait - (l.fence - l.due*1000) // from the claim to the start, by the Consumer's own reckoning
	if claimed, ok := b.epoch(l.proc, l.at-max(waited, 0)); !ok || claimed != e {
		return // a step came between the two
	}
	prompt := waited < b.lease/8 && l.at >= sent && l.at-sent < b.lease/8 && max(l.at-waited-sent, sent-l.at+waited) <= blur
	if l.first != 0 && b.lease > 0 && prompt && l.proc.stoodStill(l.at-b.lease, l.at) == 0 {
		hi = l.fence - sent + blur
	}
	l.proc.narrow(e, l.fence-l.at-blur, hi)
}

// fit judges whether what a process saw of the server's clock fits together, and forgets it otherwise.
func (b *book) fit(p *process, o *bounds) {
	if !o.known() {
		return
	}
	b.looked(CheckClocks)
	if o.lo > o.hi {
		b.violation(CheckClocks, nil, "process %s: the server's clock was moved by itself, or fences are not its time: they differ by %d µs or more", p.name, o.lo-o.hi)
		*o = bounds{math.MinInt64, math.MaxInt64}
	}
}

// earliest and latest are when a moment of a process can have been, on the server's clock.
func (b *book) earliest(p *process, at int64) (int64, bool) {
	e, ok := b.epoch(p, at)
	if !ok || p.bounds[e].lo == math.MinInt64 {
		return 0, false
	}
	return at + p.bounds[e].lo, true
}

func (b *book) latest(p *process, at int64) (int64, bool) {
	e, ok := b.epoch(p, at)
	if !ok || p.bounds[e].hi == math.MaxInt64 {
		return 0, false
	}
	return at + p.bounds[e].hi, true
}

// time is when a lease was claimed, on the server's clock.
func (b *book) time(l *held) (at int64, epoch int, ok bool) {
	epoch, ok = b.epoch(l.proc, l.at)
	return l.fence, epoch, ok && b.stamped(epoch)
}
