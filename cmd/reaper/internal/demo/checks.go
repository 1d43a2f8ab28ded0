package demo

import (
	"maps"
	"slices"
)

// checkBooks finds out whether the numbers of the workers' file and of Redis fit together.
func (b *ledger) checkBooks(e *evidence, a *accounts) {
	if n := a.counter("enqueued"); n != b.Jobs {
		b.wrong("%d jobs were enqueued, and Redis counted %d", b.Jobs, n)
	}
	if e.stats.Due != 0 || e.stats.Processing != 0 {
		b.wrong("%d jobs are still due, and %d in processing", e.stats.Due, e.stats.Processing)
	}
	if b.Acked+b.Dead != b.Jobs {
		b.wrong("%d acked and %d dead are not %d jobs", b.Acked, b.Dead, b.Jobs)
	}
	if int(e.stats.Dead) != b.Dead {
		b.wrong("the list of dead letters has %d, and Redis counts %d", b.Dead, e.stats.Dead)
	}
	if places := e.stats.Due + e.stats.Processing + e.stats.Dead; e.stats.Records != places {
		b.wrong("Redis keeps %d records for %d jobs", e.stats.Records, places)
	}
	// Each claim ends exactly once.
	ends := int(e.stats.Processing)
	for _, name := range []string{"acked", "nacked", "released", "buried", "expired", "cancelled_processing"} {
		ends += a.counter(name)
	}
	if claimed := a.counter("claimed"); claimed != ends {
		b.wrong("Redis counted %d claims, and %d ends of claims", claimed, ends)
	} else if claimed < b.Deliveries {
		b.wrong("Redis counted %d claims, and the workers started %d jobs", claimed, b.Deliveries)
	}
	b.checkEnds(a)
	for id, acked := range a.acked {
		if next := a.next(id, acked.start.Fence); next != nil {
			b.wrong("%s was acked by %s, and started again by %s", id, acked.start.Worker, next.start.Worker)
		}
	}
}

// checkEnds compares the verdicts that the workers wrote down with those that Redis took and refused. Redis can know of
// more, by as many as the killed workers had no time to write down, and never of less.
func (b *ledger) checkEnds(a *accounts) {
	written := map[outcome]int{}
	for _, l := range a.finishes {
		written[l.Outcome]++
	}
	unwritten := 0
	for pid := range a.silent {
		unwritten += len(a.open(pid))
	}
	compare := func(what string, lines, counted int) {
		if counted < lines || counted > lines+unwritten {
			b.wrong("Redis counted %d verdicts %s, and the workers wrote down %d", counted, what, lines)
		}
	}
	compare("acked", written[wasAcked], a.counter("acked"))
	compare("nacked or buried", written[wasRetried]+written[wasBuried], a.counter("nacked")+a.counter("buried"))
	compare("released", written[wasReleased], a.counter("released"))
	compare("refused", written[wasLost], a.counter("refused"))
}

// checkPlay finds out whether what was to be shown did happen.
func (b *ledger) checkPlay(e *evidence, a *accounts) {
	for _, pid := range slices.Sorted(maps.Keys(a.silent)) {
		if !slices.Contains(e.signals, pid) {
			b.wrong("worker %s (pid %d) ended without a word, and nobody had killed it", a.silent[pid], pid)
		}
		// By the file alone: what it was in the middle of is what was started again because a lease ran out.
		for _, d := range a.open(pid) {
			if next := a.next(d.start.ID, d.start.Fence); next != nil && next.start.Expiries > d.start.Expiries {
				b.interrupted[pid]++
			}
		}
		if b.interrupted[pid] == 0 {
			b.wrong("the kill missed: worker %s (pid %d) was in the middle of no job", a.silent[pid], pid)
		}
	}
	if len(a.silent) == 0 {
		b.wrong("no worker was killed in the middle of a job")
	}
	for _, pid := range e.signals {
		if _, ok := a.silent[pid]; !ok {
			b.wrong("the worker with pid %d was killed, and its lines do not show it", pid)
		}
	}
	if b.Expired < len(b.Cuts) {
		b.wrong("%d deliveries were interrupted, and only %d leases ran out", len(b.Cuts), b.Expired)
	}
	if e.froze && b.Refused == 0 {
		b.wrong("a worker was frozen past its leases, and no late verdict was refused")
	}
}
