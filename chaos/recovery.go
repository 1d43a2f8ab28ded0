package chaos

import (
	"slices"
	"time"

	"github.com/leaseq/leaseq/chaos/record"
)

// Recoveries are the times from the death of a process (the end of a fault that it died of) until each job that it held
// was claimable again, in order of length. When it is claimed is a matter of what else is due, and of free slots: the
// check of starts judges that. Those that an outage or a step of the clock can have made longer are left out, and so
// are those whose times are not known well enough.
func (r *Report) Recoveries() []time.Duration { return r.recoveries }

// noteRecovery notes how long after its holder's death a job was claimable again: the next claim says since when it was
// due, which is when the lease was taken, plus the queue's expiry back-off.
func (b *book) noteRecovery(a, l *held) {
	next, e2, ok := b.time(l)
	_, e1, ok1 := b.time(a)
	if !ok || !ok1 || e1 != e2 {
		return
	}
	next = min(next, l.due*1000+999-b.opts.ExpiryBackoff.Microseconds())
	for _, w := range b.ofProcess[a.proc.name] {
		if !w.does(record.Dies) || w.to < a.fence || w.from > next {
			continue
		}
		if expiry := w.to + b.lease; b.spared(a.fence, expiry, next) == expiry+b.prompt() {
			b.report.recoveries = append(b.report.recoveries, time.Duration(max(next-w.to, 0))*time.Microsecond)
		}
		return
	}
}

// expose counts the leases that a fault, a standstill or a timeout may let run out. Each can make one duplicate; there
// must be no more duplicates than such leases.
func (b *book) expose(l *held) {
	if !l.started {
		return
	}
	until := l.deadline
	for _, at := range []int64{l.returned, l.settled} {
		until = max(until, at)
	}
	to, ok := b.latest(l.proc, until)
	if until == 0 || !ok {
		to = l.fence + b.lease
	}
	to = max(to, l.fence)
	if l.settled == 0 || !accepted(l.out) {
		to += b.lease // it may have been extended until then
	}
	if b.explained(l, to) {
		b.report.Totals.Exposed++
	}
}

func (b *book) sortRecoveries() { slices.Sort(b.report.recoveries) }
