package model

import (
	"fmt"
	"math"
	"strings"
)

// An Item is a job to be enqueued. Delay is in ms.
type Item struct {
	ID, Record              string
	Size, Headers           int
	Delay                   int64
	MaxRetries, MaxExpiries *int
	NotAfter                int64 // ms; 0: none
	Replace                 bool
}

// Enqueue makes the jobs whose IDs are in no place, and that no limit refuses.
func (p *Partition) Enqueue(now int64, items []Item) string {
	var out strings.Builder
	added, made := p.putBack(), map[string]bool{}
	for _, item := range items {
		rested := p.Jobs[item.ID]
		if rested != nil && rested.Place == Done && p.rested(rested, now) {
			delete(p.Jobs, item.ID)
		} else {
			rested = nil
		}
		code := p.admit(&item)
		out.WriteByte(code)
		if code == 'c' || code == 'p' {
			p.Jobs[item.ID] = &Job{Record: item.Record, MaxRetries: item.MaxRetries, MaxExpiries: item.MaxExpiries, NotAfter: item.NotAfter}
			p.move(item.ID, Due, after(now, item.Delay))
			made[item.ID] = true
			p.count(map[byte]string{'c': "enqueued", 'p': "replaced"}[code], 1)
			p.count("forgotten", int(bit(rested != nil)))
		} else if rested != nil {
			p.Jobs[item.ID] = rested
		}
	}
	for id := range made { // of one that was replaced in this call the last time counts
		added.put(id, p.Jobs[id].Score)
	}
	if added.any && (!added.had || added.earliest < added.head) {
		p.Wake = true
	}
	return told(out.String(), "thlf", p.Policy.payload(), orNone(p.Policy.HeaderLimit), p.Policy.MaxDelay, orNone(p.Policy.MaxLength))
}

// admit is the code that an item gets.
func (p *Partition) admit(item *Item) byte {
	place := p.Where(item.ID)
	replaces := item.Replace && (place == '1' || place == '3' || place == '4')
	if place != '0' && !replaces {
		return place
	}
	if code := p.Policy.refuses(item.Size, item.Headers); code != 0 {
		return code
	}
	switch most := p.Policy.MaxLength; {
	case item.Delay > p.Policy.MaxDelay:
		return 'l'
	case replaces:
		return 'p'
	case most != nil && len(p.In(Due))+len(p.In(Processing)) >= *most:
		return 'f'
	}
	return 'c'
}

// A Claim asks for jobs. Unseen are the tokens of its session's last claim that its holder was never told of.
type Claim struct {
	Session string
	Number  uint64
	N       int
	Lease   int64 // ms; 0 the published one
	Bytes   int
	Unseen  []string
}

// Claimed is what a claim answers.
type Claimed struct {
	Short   bool // a lease shorter than the published one: refused
	IDs     []string
	Dues    []Time
	Missing int
	TooLate []string
	Lease   int64
	Expiry  int64
	NextDue Time // from now; -1: nothing is due
	Held    string
}

// Claim leases what is due. first is the fence that Redis took for the first job, checked by the caller.
func (p *Partition) Claim(now int64, c *Claim, first int64) Claimed {
	freed := p.giveBack(now, c.Unseen)
	if c.Lease > 0 && c.Lease < p.Policy.Lease {
		p.Wake = p.Wake || freed > 0
		return Claimed{Short: true, Lease: p.Policy.Lease}
	}
	out := Claimed{IDs: []string{}, TooLate: []string{}, Lease: max(c.Lease, p.Policy.Lease), NextDue: Exactly(-1)}
	taken, bytes := 0, 0
	room := p.room()
	rate := p.rateAt(now)
	most := min(c.N, room, rate.starts)
	if p.paused(now) {
		out.Held, most = "paused", 0
	}
	for _, id := range p.UpTo(Due, now, most) {
		j := p.Jobs[id]
		if taken > 0 && bytes+len(j.Record) > c.Bytes {
			break
		}
		taken++
		bytes += len(j.Record)
		if j.Record == "" {
			out.Missing++
			p.noRecord(id, now)
			continue
		}
		if j.NotAfter != 0 && j.NotAfter < now {
			out.TooLate = append(out.TooLate, id)
			p.tooLate(id, now)
			continue
		}
		out.IDs, out.Dues = append(out.IDs, id), append(out.Dues, j.Score)
	}
	for i, id := range out.IDs {
		p.move(id, Processing, after(now, out.Lease))
		p.Jobs[id].Token = fmt.Sprintf("%d:%s:%d", first+int64(i), c.Session, c.Number)
		p.Fence = max(p.Fence, first+int64(i))
	}
	p.count("claimed", len(out.IDs))
	rate.take(p, len(out.IDs))
	out.NextDue = p.nextDue(now, out.Held)
	if out.NextDue.At == 0 && len(out.IDs) >= room {
		out.Held, out.NextDue = "concurrency", Exactly(-1)
	} else if out.NextDue.At == 0 && len(out.IDs) >= rate.starts {
		out.Held, out.NextDue = "rate", rate.wait(now)
	}
	if out.NextDue.At == 0 && taken+freed > 0 {
		p.Wake = true
	}
	return out
}

// nextDue is when the next job can be given, from now.
func (p *Partition) nextDue(now int64, held string) Time {
	ids := p.In(Due)
	if len(ids) == 0 || held == "paused" && p.Policy.PausedUntil == 0 {
		return Exactly(-1)
	}
	head := p.Jobs[ids[0]].Score
	next := Time{At: max(0, head.At-now), To: max(0, head.To-now)}
	if held == "paused" {
		left := p.Policy.PausedUntil - now
		next = Time{At: max(next.At, left), To: max(next.To, left)}
	}
	return next
}

func (p *Partition) paused(now int64) bool {
	return p.Policy.Paused && (p.Policy.PausedUntil == 0 || p.Policy.PausedUntil > now)
}

// Pause has claims give nothing until a time, 0 for until Resume.
func (p *Partition) Pause(now, until int64) (what string) {
	what = p.was(now)
	if until != 0 && until <= now {
		return "e"
	}
	p.Policy.Paused, p.Policy.PausedUntil = true, until
	return what
}

// Resume ends a pause.
func (p *Partition) Resume(now int64) (what string) {
	what = p.was(now)
	p.Policy.Paused = false
	p.Wake = p.Wake || what == "p"
	return what
}

func (p *Partition) was(now int64) string {
	if p.paused(now) {
		return "p"
	}
	return "n"
}

// limited says that the queue's concurrency is.
func (p *Partition) limited() bool { return p.Policy.Concurrency != nil && *p.Policy.Concurrency > 0 }

// room is how many more jobs may be in processing.
func (p *Partition) room() int {
	if !p.limited() {
		return math.MaxInt
	}
	return max(*p.Policy.Concurrency-len(p.In(Processing)), 0)
}

// placesFreed wakes somebody up if a job is due that may have waited for a place.
func (p *Partition) placesFreed(now int64) {
	if p.limited() && len(p.UpTo(Due, now, 1)) > 0 {
		p.Wake = true
	}
}

// giveBack ends leases that nobody was told of, and counts what may be claimed now and could not before.
func (p *Partition) giveBack(now int64, unseen []string) (freed int) {
	for _, token := range unseen {
		for id, j := range p.Jobs {
			switch {
			case j.Place != Processing || j.Token != token:
			case j.Cancelled:
				p.drop(id)
				if p.limited() {
					freed++
				}
			default:
				p.move(id, Due, Exactly(now))
				p.count("released", 1)
				freed++
			}
		}
	}
	return freed
}

// drop removes a job that was cancelled while it was being worked on.
func (p *Partition) drop(id string) {
	delete(p.Jobs, id)
	p.count("cancelled", 1)
	p.count("cancelled_processing", 1)
}

// tooLate ends a job whose deadline has passed before it was started.
func (p *Partition) tooLate(id string, now int64) {
	p.move(id, Dead, Exactly(now))
	j := p.Jobs[id]
	j.fail(now, j.Failures+j.Expiries, "", "too late\ttoo-late", "")
	p.count("too_late", 1)
	p.count("died", 1)
}

func (p *Partition) noRecord(id string, now int64) {
	p.move(id, Dead, Exactly(now))
	j := p.Jobs[id]
	j.Record = p.Stub
	j.fail(now, 0, "", "no record", "")
	p.count("missing", 1)
	p.count("died", 1)
}

// A Held names a lease.
type Held struct {
	ID, Token string
	Attached  *Attached
}

// Extend moves leases' expiries. length is in ms, 0 the published one; the call ran from one of the times to the other.
func (p *Partition) Extend(from, to, length int64, held []Held) (codes string) {
	var out strings.Builder
	if length == 0 {
		length = p.Policy.Lease
	}
	for _, one := range held {
		j := p.Jobs[one.ID]
		switch {
		case j == nil || j.Place != Processing || j.Token != one.Token:
			out.WriteByte(p.Where(one.ID))
			p.count("refused_extends", 1)
		case j.Cancelled:
			out.WriteByte('c')
		default:
			out.WriteByte('o')
			j.Score = Time{At: max(j.Score.At, from+length), To: max(j.Score.To, to+length+1)}
			p.follow(one.Attached, one.ID)
		}
	}
	return out.String()
}

// Expired is what expire answers.
type Expired struct {
	ToDue, ToDead, Cancelled, Missing int
	More                              bool
	Grace                             int64
	NextExpiry                        int64 // ms; -1: nothing is in processing
}

// Expire ends leases that have run out, unless holders are spared.
func (p *Partition) Expire(now int64, n int, noGrace bool) Expired {
	if !noGrace {
		p.Grace = min(p.Grace, now+p.Policy.Lease)
		if 2*(now-p.Swept) > p.Policy.Lease && p.Row < 3 {
			p.Grace, p.Row = now+p.Policy.Lease, p.Row+1
			p.count("graces", 1)
		}
		if now >= p.Grace {
			p.Row = 0
		}
		p.Judged = true
	}
	p.Swept = now
	var out Expired
	if !noGrace && now < p.Grace {
		out.Grace = p.Grace - now
		out.NextExpiry = p.nextExpiry(now)
		return out
	}
	back := p.putBack()
	for _, id := range p.UpTo(Processing, now, n) {
		p.runOut(id, now, back, &out)
	}
	back.wake(now)
	if out.ToDue+out.ToDead+out.Cancelled+out.Missing > 0 {
		p.placesFreed(now)
	}
	out.NextExpiry = p.nextExpiry(now)
	out.More = out.ToDue+out.ToDead+out.Cancelled+out.Missing > 0 && out.NextExpiry == 0
	return out
}

func (p *Partition) runOut(id string, now int64, back *back, out *Expired) {
	j := p.Jobs[id]
	if j.Cancelled {
		out.Cancelled++
		p.drop(id)
		return
	}
	p.count("expired", 1)
	holder := p.holder(j.Token)
	if j.Record == "" {
		out.Missing++
		p.noRecord(id, now)
		return
	}
	before := j.Expiries
	j.Expiries++
	if j.Expiries <= limit(j.MaxExpiries, p.Policy.MaxExpiries) {
		delay := int64(0)
		if base := p.Policy.ExpiryBackoff; base > 0 {
			delay = min(base<<min(before, 40), p.Policy.BackoffCap)
		}
		out.ToDue++
		back.put(id, after(now, delay))
		return
	}
	times := "once"
	if before > 0 {
		times = fmt.Sprintf("%d times", j.Expiries)
	}
	out.ToDead++
	j.fail(now, j.Failures+j.Expiries, holder, "lease expired "+times, "")
	p.move(id, Dead, Exactly(now))
	p.count("died", 1)
}

func (p *Partition) nextExpiry(now int64) int64 {
	ids := p.In(Processing)
	if len(ids) == 0 {
		return -1
	}
	return max(0, p.Jobs[ids[0]].Score.At-now)
}
