package chaos

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/leaseq/leaseq/chaos/record"
)

// A namedPlace is one place of a snapshot.
type namedPlace struct {
	name    string
	members map[string]int64
}

func (s *Snapshot) places() [4]namedPlace {
	return [4]namedPlace{{"due", s.Due}, {"processing", s.Processing}, {"dead", s.Dead}, {"done", s.Done}}
}

// counters reads what is stored of a job: `failures expiries redrives` and limits. A job without has none.
func (s *Snapshot) counters(id string) (c counters, ok bool) {
	text, there := s.Counts[id]
	if !there {
		return c, true
	}
	fields := strings.Fields(text)
	if len(fields) < 3 {
		return c, false
	}
	for i, to := range []*int{&c.failures, &c.expiries, &c.redrives} {
		n, err := strconv.Atoi(fields[i])
		if err != nil {
			return c, false
		}
		*to = n
	}
	return c, true
}

// fenceOf reads the fence in a token.
func fenceOf(token string) (int64, bool) {
	number, _, ok := strings.Cut(strings.TrimPrefix(token, "!"), ":")
	fence, err := strconv.ParseInt(number, 10, 64)
	return fence, ok && err == nil
}

// judgeEnd judges where a job is at the end.
func (b *book) judgeEnd(j *job, t *tally) {
	place := b.place(j.id)
	if t.created > 0 {
		b.looked(CheckLost)
	}
	if place == "" {
		b.judgeGone(j, t)
		return
	}
	if t.created+t.maybe != t.seen && len(j.leases) > 0 || place == "done" {
		return // it can be a job of this ID that nobody has claimed yet
	}
	stored, ok := b.final.counters(j.id)
	b.looked(CheckCounts)
	if !ok {
		b.violation(CheckCounts, j, "its counters cannot be read: %q", b.final.Counts[j.id])
		return
	}
	if len(j.leases) == 0 {
		if stored.failures != 0 || stored.redrives > t.redrives || stored.expiries > 0 && !b.disturbed {
			b.violation(CheckCounts, j, "it was never claimed, and has %d failures, %d expiries, %d redrives", stored.failures, stored.expiries, stored.redrives)
		}
		return
	}
	last := &j.leases[len(j.leases)-1]
	if !last.claimed {
		b.untold(CheckCounts)
		return
	}
	b.judgeLast(j, last, place, stored, t)
}

// judgeGone judges a job that is in no place at the end.
func (b *book) judgeGone(j *job, t *tally) {
	removals := t.cancels + t.purges
	for i := range j.leases {
		l := &j.leases[i]
		last := i == len(j.leases)-1 || !sameJob(l, &j.leases[i+1])
		if l.out == record.OutAcked || last && l.mayAck() {
			removals++
		}
	}
	if t.created <= removals {
		return
	}
	if j.forgets {
		b.report.Totals.LostExcused++
	} else {
		b.report.Totals.Lost++
	}
	b.violation(CheckLost, j, "%d enqueues were answered as created, %d acks, cancels and purges are known or possible, and the job is nowhere", t.created, removals)
}

// judgeLast judges what a place says of a job by its last known lease.
func (b *book) judgeLast(j *job, last *held, place string, stored counters, t *tally) {
	if token, held := b.final.Leases[j.id]; held && place == "processing" {
		if fence, ok := fenceOf(token); ok && fence == last.fence {
			if stored != last.counters() || accepted(last.out) {
				b.violation(CheckCounts, j, "the lease %d is held, was settled as %q, and the counters are %+v, at the claim %+v", fence, last.out, stored, last.counters())
			}
			return
		}
	}
	b.looked(CheckAgain)
	if last.out == record.OutAcked || last.out == record.OutCancelled {
		b.violation(CheckAgain, j, "it was %s under the lease %d, and is in %s at the end", last.out, last.fence, place)
		return
	}
	way, ok := passages(last.counters(), last.endings(t.cancels > 0), stored, t.redrives, place == "dead")
	if ok && (way.unseen == 0 || b.disturbed) {
		if way.how != byExpiry {
			return
		}
		b.report.Cases["lease ran out"]++
		if _, e, stamped := b.time(last); stamped && e == len(b.steps) && way.unseen == 0 && place != "processing" && stored.redrives == last.redrives && b.lease > 0 {
			b.judgeExpiry(j, last, b.score(j.id, place)*1000) // that is when it was put there
		}
		return
	}
	if _, expired := passages(last.counters(), byExpiry, stored, 0, place == "dead"); expired && accepted(last.out) {
		b.violation(CheckSettles, j, "the lease %d was settled as %s, with success, though it ran out: the counters are %+v", last.fence, last.out, stored)
		return
	}
	b.violation(CheckCounts, j, "the last claim, %d, had %+v and ended as %q; at the end it is in %s with %+v", last.fence, last.counters(), last.out, place, stored)
}

func (b *book) score(id, place string) int64 {
	for _, p := range b.final.places() {
		if p.name == place {
			return p.members[id]
		}
	}
	return 0
}

// judgeFinal judges the snapshot by itself, and what nobody in the history knows of.
func (b *book) judgeFinal() {
	s := b.final
	records := map[string]bool{}
	for _, id := range s.Records {
		records[id] = true
	}
	where := map[string]string{}
	for _, p := range s.places() {
		for _, id := range slices.Sorted(maps.Keys(p.members)) {
			b.looked(CheckPlaces)
			b.report.Totals.Left++
			switch other := where[id]; {
			case other != "":
				b.violation(CheckPlaces, b.known(id), "it is in %s and in %s", other, p.name)
			case p.name != "done" && !records[id]:
				b.violation(CheckPlaces, b.known(id), "it is in %s without a record", p.name)
			}
			where[id] = p.name
			if b.jobs[id] == nil {
				b.looked(CheckUnexpected)
				b.report.Totals.Unexpected++
				b.violation(CheckUnexpected, b.known(id), "it is in %s, and nobody in the history knows of it", p.name)
			}
		}
	}
	b.report.Totals.LeftDead = int64(len(s.Dead))
	b.judgeHashes(where)
	b.judgeTokens()
	for _, id := range slices.Sorted(maps.Keys(s.Processing)) {
		b.judgeOverdue(id, s.Processing[id]*1000)
	}
}

// known is the job of an ID, or, where the history has none, one to complain about.
func (b *book) known(id string) *job {
	if j, ok := b.jobs[id]; ok {
		return j
	}
	return &job{id: id}
}

// judgeHashes judges what belongs to jobs in places.
func (b *book) judgeHashes(where map[string]string) {
	s := b.final
	for _, id := range slices.Sorted(slices.Values(s.Records)) {
		if p := where[id]; p == "" || p == "done" {
			b.violation(CheckPlaces, b.known(id), "it has a record, and is in none of due, processing, dead")
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.Counts)) {
		if p := where[id]; p == "" || p == "done" {
			b.violation(CheckPlaces, b.known(id), "it has counters, and is in none of due, processing, dead")
		}
	}
	for _, id := range slices.Sorted(slices.Values(s.Results)) {
		if where[id] != "done" {
			b.violation(CheckPlaces, b.known(id), "it has a result, and is not done")
		}
	}
}

// judgeTokens judges the leases that are held at the end.
func (b *book) judgeTokens() {
	s := b.final
	for _, id := range slices.Sorted(maps.Keys(s.Processing)) {
		b.looked(CheckLeases)
		if _, ok := s.Leases[id]; !ok {
			b.violation(CheckLeases, b.known(id), "it is in processing without a lease")
		}
	}
	owner := map[int64]string{}
	for _, id := range slices.Sorted(maps.Keys(s.Leases)) {
		b.looked(CheckLeases)
		if _, ok := s.Processing[id]; !ok {
			b.violation(CheckLeases, b.known(id), "it has a lease, and is not in processing")
		}
		fence, ok := fenceOf(s.Leases[id])
		b.looked(CheckFences)
		switch other, twice := owner[fence]; {
		case !ok:
			b.violation(CheckFences, b.known(id), "its token is %q: want fence:session:number", s.Leases[id])
		case twice:
			b.violation(CheckFences, b.known(id), "it has the same fence as %q, %d", other, fence)
		case fence > s.Fence:
			b.violation(CheckFences, b.known(id), "its fence is %d, above the highest that was given, %d", fence, s.Fence)
		}
		owner[fence] = id
	}
}

// judgeOverdue judges a job that is in processing at the end.
func (b *book) judgeOverdue(id string, expiry int64) {
	b.looked(CheckLate)
	if allowed := b.spared(expiry-b.lease, expiry, b.final.At); b.final.At > allowed {
		b.violation(CheckLate, b.known(id), "its lease ran out at %d ms, and it was in processing %d ms after that", expiry/1000, (b.final.At-expiry)/1000)
	}
}
