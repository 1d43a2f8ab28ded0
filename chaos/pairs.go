package chaos

import (
	"github.com/leaseq/leaseq/chaos/record"
)

// How a lease can have ended.
type ending uint8

const (
	byAck ending = 1 << iota
	byNack
	byBury
	byRelease
	byExpiry
	byRemoval // of a cancelled job
)

// mayAck reports whether an ack of the lease may have run without an answer.
func (l *held) mayAck() bool {
	return (l.settled == 0 || l.out == record.OutUnknown) && (l.result == record.OutNil || l.result == record.OutSending)
}

// endings are all ways in which a lease can have ended, by what its holder saw. cancelled says that the job may have been.
func (l *held) endings(cancelled bool) ending {
	removed := ending(0)
	if cancelled {
		removed = byRemoval
	}
	switch l.out {
	case record.OutAcked:
		return byAck
	case record.OutRetried:
		return byNack
	case record.OutReleased:
		return byRelease
	case record.OutDead:
		return byBury
	case record.OutCancelled:
		return byRemoval
	case record.OutLost, record.OutGone:
		return byExpiry | removed
	}
	shutdown := ending(0)
	if l.ended != 0 && l.cause == record.CauseShutdown || !l.started {
		shutdown = byRelease // of a handler that was given up, or never called
	}
	switch l.result {
	case record.OutNil:
		return byAck | byExpiry | removed | shutdown
	case record.OutError, record.OutPanic:
		return byNack | byBury | byRelease | byExpiry | removed
	case record.OutSending:
		return byAck | byNack | byBury | byRelease | byExpiry | removed
	}
	return byExpiry | shutdown | removed
}

// counters of a job at a claim, or at the end.
type counters struct{ failures, expiries, redrives int }

func (l *held) counters() counters { return counters{l.failures, l.expiries, l.redrives} }

// A passage is one way from a lease to the next: how the lease ended, and how many leases that nobody saw ran out.
type passage struct {
	how    ending
	unseen int
}

// passages finds a way that explains the counters after a lease, of a job that was due since, or, with dead, that has
// died since: the one with the fewest leases that nobody saw.
func passages(a counters, endings ending, to counters, redrives int, dead bool) (passage, bool) {
	steps := []struct {
		how                ending
		failures, expiries int
	}{{byNack, 1, 0}, {byBury, 1, 0}, {byRelease, 0, 0}, {byExpiry, 0, 1}}
	best, found := passage{}, false
	take := func(p passage) {
		if !found || p.unseen < best.unseen {
			best, found = p, true
		}
	}
	for _, s := range steps {
		if endings&s.how == 0 {
			continue
		}
		unseen := to.expiries - a.expiries - s.expiries
		switch {
		case to.redrives == a.redrives:
			here := s.how == byExpiry || (s.how == byBury) == dead || dead && unseen > 0
			if here && to.failures == a.failures+s.failures && unseen >= 0 {
				take(passage{s.how, unseen})
			}
		case to.redrives > a.redrives && to.redrives-a.redrives <= redrives:
			if s.how != byRelease && to.failures == 0 {
				take(passage{s.how, to.expiries})
			}
		}
	}
	return best, found
}

// judgePair judges a claim by the one before it on the same job.
func (b *book) judgePair(j *job, a, l *held, t *tally) {
	if !a.claimed || !l.claimed {
		b.untold(CheckCounts)
		return
	}
	b.looked(CheckCounts)
	b.looked(CheckAgain)
	b.looked(CheckSettles)
	way, ok := passages(a.counters(), a.endings(t.cancels > 0), l.counters(), t.redrives, false)
	if ok && way.unseen > 0 && !b.disturbed {
		ok = false
	}
	if !ok {
		b.unexplained(j, a, l)
		return
	}
	b.judgeTimes(j, a, l, way)
	if way.how == byExpiry {
		b.report.Cases["lease ran out"]++
		b.report.Totals.Redelivered++
		b.noteRecovery(a, l)
		if a.started && l.started {
			b.report.Totals.Duplicated++
		}
	}
}

// unexplained says what is wrong with a claim that the lease before it does not explain.
func (b *book) unexplained(j *job, a, l *held) {
	lo, told := int64(0), false
	if a.returned != 0 {
		lo, told = b.earliest(a.proc, a.returned)
	}
	at, epoch, ok := b.time(l)
	before, _ := b.epoch(a.proc, a.at)
	overtaken := told && ok && before == epoch && at < lo-blur // claimed before the verdict was even known
	_, expired := passages(a.counters(), byExpiry, l.counters(), 0, false)
	switch {
	case accepted(a.out) && expired && (overtaken || a.out != record.OutAcked && a.out != record.OutCancelled):
		b.violation(CheckSettles, j, "the lease %d was settled as %s, with success, though it had run out before: the next claim, %d, counts an expiry", a.fence, a.out, l.fence)
	case a.out == record.OutAcked || a.out == record.OutCancelled:
		b.violation(CheckAgain, j, "it was %s under the lease %d, and claimed again by the same enqueue under %d", a.out, a.fence, l.fence)
	default:
		b.violation(CheckCounts, j, "the lease %d (%d failures, %d expiries, %d redrives) ended as %q, and the next claim, %d, has %d failures, %d expiries, %d redrives",
			a.fence, a.failures, a.expiries, a.redrives, a.out, l.fence, l.failures, l.expiries, l.redrives)
	}
}

// judgeTimes judges when the next claim came, on the server's clock.
func (b *book) judgeTimes(j *job, a, l *held, way passage) {
	first, e1, ok1 := b.time(a)
	next, e2, ok2 := b.time(l)
	if !ok1 || !ok2 || e1 != e2 {
		b.untold(CheckOverlap)
		return
	}
	b.looked(CheckOverlap)
	if way.how != byExpiry {
		b.judgeSettledPair(j, a, l, next)
		return
	}
	if b.lease == 0 {
		b.untold(CheckEarly)
		return
	}
	if l.redrives == a.redrives && next < first+int64(way.unseen+1)*b.lease-blur {
		b.looked(CheckEarly)
		b.violation(CheckEarly, j, "%d leases ran out between the claims %d and %d, which is %d ms: a lease is %d ms", way.unseen+1, a.fence, l.fence, (next-first)/1000, b.lease/1000)
		return
	}
	if way.unseen > 0 || l.redrives != a.redrives {
		b.untold(CheckEarly)
		b.untold(CheckLate)
		return
	}
	b.judgeExpiry(j, a, l.due*1000)
}

// judgeSettledPair judges a claim after a settle that was answered, or may have run.
func (b *book) judgeSettledPair(j *job, a, l *held, next int64) {
	if a.returned == 0 {
		return // given back without a handler: the answer is all there is
	}
	lo, ok := b.earliest(a.proc, a.returned)
	if !ok {
		b.untold(CheckOverlap)
		return
	}
	if next < lo-blur {
		b.violation(CheckOverlap, j, "claimed under %d, %d ms before the handler of the lease %d had returned, which nothing but its settle has ended", l.fence, (lo-next)/1000, a.fence)
		return
	}
	if a.settled == 0 || a.delay == 0 || l.redrives != a.redrives {
		return
	}
	b.looked(CheckDue)
	if due := l.due * 1000; due < lo+a.delay-2*blur {
		b.violation(CheckDue, j, "it was to be due %d ms after the lease %d had been settled, and was due %d ms earlier than that", a.delay/1000, a.fence, (lo+a.delay-due)/1000)
	}
}

// judgeFirst judges the first claim that is known of a job.
func (b *book) judgeFirst(j *job, l *held, t *tally) {
	if !l.claimed {
		return
	}
	b.looked(CheckCounts)
	if l.failures != 0 || l.redrives > t.redrives || l.expiries > 0 && !b.disturbed {
		b.violation(CheckCounts, j, "its first claim, %d, has %d failures, %d expiries, %d redrives", l.fence, l.failures, l.expiries, l.redrives)
		return
	}
	if t.created+t.maybe != 1 || l.expiries > 0 || l.redrives > 0 {
		return
	}
	at, ok := b.earliest(t.enqueue.proc, t.enqueue.at)
	epoch, _ := b.epoch(t.enqueue.proc, t.enqueue.at)
	_, now, stamped := b.time(l)
	if !ok || !stamped || epoch != now || t.enqueue.delay < 0 {
		b.untold(CheckDue)
		return
	}
	b.looked(CheckDue)
	if due := l.due * 1000; due < at+t.enqueue.delay-blur {
		b.violation(CheckDue, j, "it was enqueued with a delay of %d ms, and was due %d ms earlier than that", t.enqueue.delay/1000, (at+t.enqueue.delay-due)/1000)
	}
}
