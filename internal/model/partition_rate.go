package model

import "math"

// A rate is what the queue's rate allows at a moment. The model's clock has whole milliseconds, so it is right for rates
// of which a start takes much longer.
type rate struct {
	starts int // that are allowed now
	each   int64
	slack  int64
	next   int64 // µs; stored only with a start
}

func (p *Partition) rateAt(now int64) rate {
	if p.Policy.Rate == nil || *p.Policy.Rate == 0 {
		return rate{starts: math.MaxInt}
	}
	r := rate{each: 1000 * p.Policy.RateInterval / int64(*p.Policy.Rate)}
	r.slack = max((100_000/r.each-1)*r.each, min(r.each/2, 10_000))
	r.next = min(max(p.RateNext, 1000*now), 1000*now+r.slack+r.each)
	r.starts = int((1000*now + r.slack + r.each - r.next) / r.each)
	return r
}

// take counts starts.
func (r *rate) take(p *Partition, n int) {
	if r.each > 0 && n > 0 {
		r.next += int64(n) * r.each
		p.RateNext = r.next
	}
}

// wait is how long until the next start is allowed, after those that were taken.
func (r *rate) wait(now int64) Time {
	left := (r.next-r.slack)/1000 - now
	return Time{At: left - 2, To: left + 2}
}
