package model

import (
	"fmt"
	"strconv"
	"strings"
)

// Redrive puts dead jobs back to due by ID. The answer is what redrive stores: bound, more, codes.
func (p *Partition) Redrive(now int64, ids []string) string {
	var out strings.Builder
	for _, id := range ids {
		place := p.Where(id)
		if place == '3' {
			p.redriven(now, id)
			place = 'o'
		}
		out.WriteByte(place)
	}
	return fmt.Sprintf("%d 0 %s", now, out.String())
}

func (p *Partition) redriven(now int64, id string) {
	j := p.Jobs[id]
	j.Failures, j.Expiries, j.Redrives = 0, 0, j.Redrives+1
	p.move(id, Due, Exactly(now))
	p.count("redriven", 1)
	p.Wake = true
}

// RedriveNext redrives the n that died first, at bound or before.
func (p *Partition) RedriveNext(now, bound int64, n int) string {
	ids := p.UpTo(Dead, bound, n)
	for _, id := range ids {
		p.redriven(now, id)
	}
	return p.bulk(Dead, bound, len(ids))
}

func (p *Partition) bulk(place string, bound int64, n int) string {
	return fmt.Sprintf("%d %d %s", bound, min(1, len(p.UpTo(place, bound, 1))), strings.Repeat("o", n))
}

// Purge deletes jobs of a place by ID, and their records: none, or one for each.
func (p *Partition) Purge(now int64, place string, ids []string, records ...string) string {
	var out strings.Builder
	for _, id := range ids {
		if j := p.Jobs[id]; j == nil || j.Place != place {
			out.WriteByte('0')
			continue
		}
		out.WriteByte('o')
		delete(p.Jobs, id)
		p.count("purged", 1)
	}
	p.dropRecords(out.String(), 'o', records)
	return fmt.Sprintf("%d 0 %s", now, out.String())
}

// PurgeNext deletes the n lowest of a place, at bound or before.
func (p *Partition) PurgeNext(bound int64, place string, n int) string {
	ids := p.UpTo(place, bound, n)
	for _, id := range ids {
		delete(p.Jobs, id)
		p.count("purged", 1)
	}
	return p.bulk(place, bound, len(ids))
}

// Retain forgets up to n dead and n done jobs that are not kept, the oldest first; more says that there are others.
func (p *Partition) Retain(now int64, n int) (dead, done int, more bool) {
	dead, moreDead := p.forget(Dead, p.Policy.DeadKeep, n, "trimmed", func(j *Job) bool {
		return p.Policy.DeadAge > 0 && j.Score.At < now-p.Policy.DeadAge
	})
	done, moreDone := p.forget(Done, p.Policy.DoneKeep, n, "forgotten", func(j *Job) bool { return p.rested(j, now) })
	return dead, done, moreDead || moreDone
}

func (p *Partition) forget(place string, keep *int, n int, counter string, old func(j *Job) bool) (forgotten int, more bool) {
	ids, surplus := p.In(place), 0
	if keep != nil {
		surplus = len(ids) - *keep
	}
	for i, id := range ids {
		switch {
		case i >= surplus && !old(p.Jobs[id]):
			return forgotten, false
		case i == n:
			return forgotten, true
		}
		delete(p.Jobs, id)
		p.count(counter, 1)
		forgotten++
	}
	return forgotten, false
}

// rested says that a job has been in done for as long as the policy says.
func (p *Partition) rested(j *Job, now int64) bool {
	age := p.Policy.DoneAge
	if age == 0 {
		age = p.Policy.DoneBefore
	}
	return age > 0 && now-j.Score.At >= age
}

// finish ends a job that was acked: it is removed, or kept in done without its record.
func (p *Partition) finish(now int64, id, result string) {
	delete(p.Jobs, id)
	if p.Policy.DoneAge > 0 {
		p.Jobs[id] = &Job{Place: Done, Score: Exactly(now), Result: result}
	}
}

// Reschedule gives jobs in due another due time. when is a delay in ms, or `now`.
func (p *Partition) Reschedule(now int64, ids, whens []string) string {
	codes := p.eachDue(now, ids, func(b *back, i int, j *Job) byte {
		delay, _ := strconv.ParseInt(whens[i], 10, 64)
		if delay > p.Policy.MaxDelay {
			return 'l'
		}
		p.count("rescheduled", 1)
		score := after(now, delay)
		if whens[i] == "now" && j.Score.At <= now {
			score = j.Score
		}
		b.put(ids[i], score)
		return 'o'
	})
	return told(codes, "l", p.Policy.MaxDelay)
}

// BuryByID puts jobs in due into dead.
func (p *Partition) BuryByID(now int64, holder, reason string, ids []string) string {
	return p.eachDue(now, ids, func(_ *back, i int, j *Job) byte {
		j.fail(now, 0, holder, reason, "")
		if j.Record == "" {
			j.Record = p.Stub
			p.count("missing", 1)
		}
		p.move(ids[i], Dead, Exactly(now))
		p.count("buried_by_hand", 1)
		p.count("died", 1)
		return 'o'
	})
}

// eachDue does something to each of the jobs that is in due.
func (p *Partition) eachDue(now int64, ids []string, do func(b *back, i int, j *Job) byte) string {
	codes := make([]byte, len(ids))
	b := p.putBack()
	for i, id := range ids {
		if codes[i] = p.Where(id); codes[i] == '1' {
			codes[i] = do(b, i, p.Jobs[id])
		}
	}
	b.wake(now)
	return string(codes)
}

// An Edit is a new record for a job, if its record is Old still; "" is any.
type Edit struct {
	ID, Old, Record string
	Size, Headers   int
}

// Edit writes new records of jobs in due or dead; with redrive of dead ones alone, which are due then.
func (p *Partition) Edit(now int64, redrive bool, edits []Edit) string {
	codes := make([]byte, len(edits))
	for i, e := range edits {
		codes[i] = p.Where(e.ID)
		if j := p.Jobs[e.ID]; codes[i] == '3' || codes[i] == '1' && !redrive {
			codes[i] = p.edit(now, redrive, e, j)
		}
	}
	return told(string(codes), "th", p.Policy.payload(), orNone(p.Policy.HeaderLimit))
}

func (p *Partition) edit(now int64, redrive bool, e Edit, j *Job) byte {
	if e.Old != "" && j.Record != e.Old {
		return 'n'
	}
	if code := p.Policy.refuses(e.Size, e.Headers); code != 0 {
		return code
	}
	j.Record = e.Record
	p.count("edited", 1)
	if redrive {
		p.redriven(now, e.ID)
	}
	return 'o'
}

// Import makes jobs as they are given where their IDs are in no place.
func (p *Partition) Import(now int64, ids []string, jobs []Job) string {
	codes := make([]byte, len(ids))
	head, had := p.head()
	for i, id := range ids {
		if codes[i] = p.Where(id); codes[i] != '0' {
			continue
		}
		codes[i] = 'c'
		j := jobs[i]
		if j.Place == Dead {
			j.Score = Exactly(min(j.Score.At, now))
		} else if !had || j.Score.At < head {
			p.Wake = true
		}
		p.Jobs[id] = &j
		p.count("imported", 1)
	}
	return string(codes)
}
