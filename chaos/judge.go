package chaos

import (
	"fmt"

	"github.com/leaseq/leaseq/chaos/record"
)

func (b *book) looked(check string) { b.results[check].Looked++ }

func (b *book) untold(check string) { b.results[check].Untold++ }

// violation notes that a check found something wrong, about one job or, with nil, about none. A job whose answers Redis
// may have forgotten is excused from all checks but those of the keys.
func (b *book) violation(check string, j *job, format string, args ...any) {
	r := b.results[check]
	if j != nil {
		j.flagged = true
		if j.forgets && check != CheckPlaces && check != CheckLeases {
			r.Excused++
			return
		}
	}
	r.Violations++
	if len(r.Examples) >= b.opts.Examples {
		return
	}
	v := Violation{Text: fmt.Sprintf(format, args...)}
	if j != nil {
		v.ID = j.id
	}
	r.Examples = append(r.Examples, v)
}

// judge judges one job: what the history says of it from its first enqueue to its place at the end.
func (b *book) judge(j *job) {
	made := b.tally(j)
	b.judgeAnswers(j, made)
	if j.flagged {
		return
	}
	if !b.judgeOrder(j) {
		return // what follows reads the leases in their order
	}
	for i := range j.leases {
		b.judgeLease(j, &j.leases[i])
		b.expose(&j.leases[i])
	}
	for i := range j.leases {
		l := &j.leases[i]
		switch {
		case i == 0 || !sameJob(&j.leases[i-1], l):
			b.judgeFirst(j, l, made)
		default:
			b.judgePair(j, &j.leases[i-1], l, made)
		}
		if j.flagged {
			return
		}
	}
	b.judgeEnd(j, made)
}

// sameJob reports whether two leases are of one enqueue.
func sameJob(a, l *held) bool {
	return a.enqueued == l.enqueued || a.enqueued == 0 || l.enqueued == 0
}

// A tally is what calls have done to one ID, and can have done.
type tally struct {
	enqueues, created, maybe int // enqueues: sent, answered as created, perhaps
	seen                     int // different jobs of this ID that were claimed
	acked                    int // answered
	cancels, purges          int // done or perhaps
	redrives                 int // done or perhaps
	enqueue                  *call
}

func (b *book) tally(j *job) *tally {
	t := &tally{}
	for i := range j.calls {
		c := &j.calls[i]
		switch c.op {
		case record.OpEnqueue:
			t.enqueues++
			switch {
			case c.out == record.OutOK:
				t.created++
				t.enqueue = c
			case c.unknown():
				t.maybe++
				t.enqueue = c
			case c.out == record.OutDuplicate:
				b.report.Cases["enqueue duplicate"]++
			}
		case record.OpCancel:
			t.cancels += b.ran(c, "job cancelled")
		case record.OpPurge:
			t.purges += b.ran(c, "job purged")
		case record.OpRedrive:
			t.redrives += b.ran(c, "job redriven")
		}
	}
	for i := range j.leases {
		l := &j.leases[i]
		if i == 0 || !sameJob(&j.leases[i-1], l) {
			t.seen++
		}
		if l.out == record.OutAcked {
			t.acked++
		}
		if l.settled == 0 && l.returned != 0 {
			b.report.Cases["settle without an answer"]++
		}
	}
	totals := &b.report.Totals
	totals.Jobs++
	totals.Attempts += int64(t.enqueues)
	totals.Acknowledged += int64(t.created)
	totals.Maybe += int64(t.maybe)
	if t.acked > 0 {
		totals.Acked++
	}
	return t
}

func (b *book) ran(c *call, name string) int {
	if c.out == record.OutOK {
		b.report.Cases[name]++
	}
	if c.mayHaveRun() {
		return 1
	}
	return 0
}

// judgeAnswers judges whether there can be as many jobs of this ID as there were: invariant 11, and the second half of 10.
func (b *book) judgeAnswers(j *job, t *tally) {
	place := b.place(j.id)
	there := t.seen > 0 || place != ""
	b.looked(CheckUnexpected)
	if t.enqueues > 0 {
		b.looked(CheckAnswers)
	}
	switch {
	case !there:
	case t.enqueues == 0 || t.created+t.maybe == 0 && b.onlyDuplicates(j):
		b.report.Totals.Unexpected++
		b.violation(CheckUnexpected, j, "nobody enqueued this job: %d claims, at the end in %q", len(j.leases), place)
		return
	case t.created+t.maybe == 0:
		b.violation(CheckAnswers, j, "all %d enqueues did not run, as they were told, and the job is there: %d claims, at the end in %q", t.enqueues, len(j.leases), place)
		return
	case t.seen > t.created+t.maybe:
		b.violation(CheckAgain, j, "%d jobs of this ID were delivered, of %d enqueues that created or may have created one", t.seen, t.created+t.maybe)
		return
	case t.created == 0:
		b.report.Totals.MaybeFound++
	}
	removals := t.cancels + t.purges
	for i := range j.leases {
		if l := &j.leases[i]; l.out == record.OutAcked || l.mayAck() || l.out == record.OutCancelled {
			removals++
		}
	}
	if t.created > 1+removals {
		b.violation(CheckAnswers, j, "%d enqueues were answered as created, though at most %d jobs of this ID were ever removed", t.created, removals)
	}
}

// onlyDuplicates: somebody else has made the job, before the history.
func (b *book) onlyDuplicates(j *job) bool {
	for i := range j.calls {
		if c := &j.calls[i]; c.op == record.OpEnqueue && c.out != record.OutDuplicate {
			return false
		}
	}
	return true
}

// place is where a job is at the end; "": nowhere.
func (b *book) place(id string) string {
	for _, p := range b.final.places() {
		if _, ok := p.members[id]; ok {
			return p.name
		}
	}
	return ""
}

// judgeOrder judges whether fences grow with the leases of a job. Leases are sorted by fence; counters never fall but by a
// redrive, and a handler that starts later mostly has the later claim: where both say that the fences are wrong, they
// are. Where the counters alone say so, they are wrong themselves, which is judged elsewhere.
func (b *book) judgeOrder(j *job) bool {
	for i := 1; i < len(j.leases); i++ {
		a, l := &j.leases[i-1], &j.leases[i]
		if !a.claimed || !l.claimed || !sameJob(a, l) {
			continue
		}
		back := l.redrives < a.redrives || l.redrives == a.redrives && l.failures+l.expiries < a.failures+a.expiries
		if !back || !a.started || !l.started {
			continue
		}
		first, ok1 := b.earliest(a.proc, a.at)
		second, ok2 := b.latest(l.proc, l.at)
		if ok1 && ok2 && second < first {
			b.violation(CheckFences, j, "attempt %d was given the fence %d, and a later attempt %d the lower fence %d", l.attempt, l.fence, a.attempt, a.fence)
			return false
		}
	}
	return true
}

// judgeLease judges a lease by itself.
func (b *book) judgeLease(j *job, l *held) {
	if !l.claimed {
		b.untold(CheckDue)
		return
	}
	b.looked(CheckDue)
	if l.fence < l.due*1000 {
		b.violation(CheckDue, j, "claimed at %d µs, before it was due at %d ms", l.fence, l.due)
	}
	b.looked(CheckCounts)
	if l.attempt != l.failures+l.expiries+1 {
		b.violation(CheckCounts, j, "a claim says attempt %d with %d failures and %d expiries", l.attempt, l.failures, l.expiries)
	}
	b.judgeDeadline(j, l)
	b.judgeLoss(j, l)
}

// judgeLoss judges a handler that was told that its lease is lost: whatever became of the lease then, something must
// have kept its process from renewing it.
func (b *book) judgeLoss(j *job, l *held) {
	if l.ended == 0 || l.cause != record.OutLost || l.wait == 0 {
		return
	}
	b.looked(CheckCauses)
	to, ok := b.latest(l.proc, l.ended)
	if !ok {
		b.untold(CheckCauses)
		return
	}
	if !b.explained(l, max(to, l.fence)) {
		b.violation(CheckCauses, j, "its handler was told that the lease %d is lost, though no fault or pause explains it", l.fence)
	}
}

// judgeDeadline is invariant 13: how long a handler's context was alive after the lease's local deadline, standstills of
// the process aside.
func (b *book) judgeDeadline(j *job, l *held) {
	until := l.returned
	if l.ended != 0 {
		until = l.ended
	}
	switch {
	case !l.started || l.wait == 0 || l.result == record.OutSending:
		return // claimed by hand
	case until == 0 || l.deadline == 0:
		b.untold(CheckDeadlines)
		return
	}
	b.looked(CheckDeadlines)
	alive := until - l.deadline
	if alive <= b.prompt() {
		return
	}
	if alive -= l.proc.stoodStill(l.deadline, until); alive <= b.prompt() || b.frozen(l.proc, l.deadline, until) {
		b.results[CheckDeadlines].Excused++
		return
	}
	b.violation(CheckDeadlines, j, "its handler's context was alive %d ms after the local deadline, fence %d", alive/1000, l.fence)
}

// frozen reports whether a fault stopped a process in a span of its time.
func (b *book) frozen(p *process, from, to int64) bool {
	lo, ok1 := b.earliest(p, from)
	hi, ok2 := b.latest(p, to)
	if !ok1 || !ok2 {
		lo, hi = p.wall+from-wallPad, p.wall+to+wallPad
	}
	found := false
	b.during(lo, hi, func(w *window) bool {
		found = w.does(record.Freezes) && w.hits(p)
		return !found
	})
	return found
}
