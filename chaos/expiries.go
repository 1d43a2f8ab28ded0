package chaos

import (
	"slices"

	"github.com/leaseq/leaseq/chaos/record"
)

// judgeExpiry judges a lease that ran out: expired at a time of the server's, µs, which is the due time of the next claim
// where the queue has no expiry back-off.
func (b *book) judgeExpiry(j *job, l *held, due int64) {
	soonest, latest := due-b.opts.ExpiryBackoff.Microseconds(), due+999
	b.looked(CheckEarly)
	stored := l.fence + b.lease - blur // and every extend makes it later
	if l.deadline != 0 {
		if at, ok := b.earliest(l.proc, l.deadline); ok {
			stored = max(stored, at-blur) // the holder's own deadline is never later than the real one
		}
	}
	if latest < stored {
		b.violation(CheckEarly, j, "the lease %d was expired at %d ms, %d ms before it ran out at the earliest", l.fence, due/1000, (stored-latest)/1000)
		return
	}
	if l.started && l.wait != 0 {
		b.looked(CheckCauses)
		if !b.explained(l, latest) {
			b.violation(CheckCauses, j, "the lease %d ran out at %d ms, though no fault, pause or timeout explains it", l.fence, due/1000)
			return
		}
	} else {
		b.untold(CheckCauses)
	}
	b.judgeLate(j, l, soonest)
}

// judgeLate judges whether a lease was expired in time: invariant 9. Its expiry is known from above where it is known
// when its holder could extend it for the last time.
func (b *book) judgeLate(j *job, l *held, expired int64) {
	last, ok := b.lastExtend(l, expired)
	if !ok {
		b.untold(CheckLate)
		return
	}
	b.looked(CheckLate)
	own := last + b.lease + blur
	allowed := b.spared(l.fence, own, expired)
	if expired <= allowed {
		if expired > own+b.prompt() {
			b.results[CheckLate].Excused++
		}
		return
	}
	b.violation(CheckLate, j, "the lease %d ran out at %d ms at the latest, and was expired %d ms after that", l.fence, allowed/1000, (expired-allowed)/1000)
}

// lastExtend is the latest moment, on the server's clock, at which the holder can have extended a lease that was expired
// at the given one: what it sent last may have been long on its way.
func (b *book) lastExtend(l *held, expired int64) (int64, bool) {
	if l.proc.noExtend {
		return l.fence, true
	}
	last, ok := b.lastSent(l, expired)
	if !ok {
		return 0, false
	}
	arrived := last
	for _, w := range slices.Concat(b.ofProcess[l.proc.name], b.ofProcess[""]) {
		if w.does(record.Lossy) && w.from <= last && w.to >= last {
			arrived = max(arrived, w.to)
		}
	}
	return arrived, true
}

// lastSent is the latest moment at which the holder can have sent an extend.
func (b *book) lastSent(l *held, expired int64) (int64, bool) {
	if l.ended != 0 && l.cause == record.CauseTimeout {
		return b.latest(l.proc, l.ended)
	}
	var last int64
	found := false
	for _, w := range slices.Concat(b.ofProcess[l.proc.name], b.ofProcess[""]) {
		if w.from > expired {
			continue
		}
		at := w.fault.bites
		switch {
		case w.does(record.Dies):
			at = w.fault.to
		case !w.does(record.Freezes) && !w.does(record.Cut), at == 0, expired > w.to:
			continue // or it went on before the lease was taken, and may have extended it again
		}
		sure, ok := b.latest(w.proc, at)
		if !ok {
			sure = w.proc.wall + at + wallPad
		}
		if !found || sure < last {
			last, found = max(sure, l.fence), true
		}
	}
	return last, found
}

// prompt is the bound of the checks of time, µs.
func (b *book) prompt() int64 { return (prompt + b.opts.Slack).Microseconds() }

// spared is until when a lease that runs out at expiry may stay: 250 ms, or, where sweeps had a gap since it was given, a
// lease more from the gap's end, and a quarter after a step of the clock.
func (b *book) spared(given, expiry, now int64) int64 {
	allowed := expiry + b.prompt()
	b.during(given, now, func(w *window) bool {
		if !w.does(record.Outage) && !w.does(record.Steps) && !w.does(record.Loses) || w.from > allowed {
			return true
		}
		until := w.to + b.lease + b.prompt()
		if w.does(record.Steps) {
			until += b.lease / 4
		}
		allowed = max(allowed, until)
		return true
	})
	if until := b.pardoned(given, now); until > allowed-b.prompt() {
		allowed = until + b.prompt()
	}
	return allowed
}
