package model

import "strings"

// A Verdict ends a lease. Op is one of a, n, r, b.
type Verdict struct {
	Op            byte
	ID, Token     string
	Delay         int64 // ms
	Keep          bool  // release: due at KeepAt
	KeepAt        int64
	Newer         bool
	Reason, Stack string
	Result        string // ack
	Attached      *Attached
}

// Settle ends leases; a lease that is not the caller's is left alone.
func (p *Partition) Settle(now int64, verdicts []Verdict) (codes string) {
	out := make([]byte, len(verdicts))
	back := p.putBack()
	before := map[string]byte{} // the places of what is not the caller's are read before anything is written
	for _, v := range verdicts {
		before[v.ID] = p.Where(v.ID)
	}
	ended := map[string]byte{}
	for i, v := range verdicts {
		j := p.Jobs[v.ID]
		if left, done := ended[v.ID]; done {
			out[i] = left
			continue
		}
		if j == nil || j.Place != Processing || j.Token != v.Token {
			out[i] = before[v.ID]
			p.count("refused", 1)
			continue
		}
		if !p.settleRecord(&v, j.Cancelled) {
			out[i] = 'r'
			p.count("refused_records", 1)
			continue
		}
		out[i] = p.settle(now, &v, j, back)
		ended[v.ID] = p.Where(v.ID)
	}
	back.wake(now)
	if len(ended) > 0 {
		p.placesFreed(now)
	}
	return string(out)
}

func (p *Partition) settle(now int64, v *Verdict, j *Job, back *back) byte {
	switch {
	case v.Op == 'a':
		p.finish(now, v.ID, v.Result)
		p.count("acked", 1)
		return 'o'
	case j.Cancelled:
		p.drop(v.ID)
		return 'c'
	case v.Op == 'r':
		p.count("released", 1)
		if v.Newer {
			p.count("newer", 1)
		}
		if v.Keep {
			back.put(v.ID, Exactly(v.KeepAt))
		} else {
			back.put(v.ID, after(now, v.Delay))
		}
		return 'd'
	}
	j.Failures++
	p.count(map[byte]string{'n': "nacked", 'b': "buried"}[v.Op], 1)
	dies := v.Op == 'b' || j.Failures > limit(j.MaxRetries, p.Policy.MaxRetries)
	stack := ""
	if dies {
		stack = v.Stack
	}
	j.fail(now, j.Failures+j.Expiries, p.holder(j.Token), v.Reason, stack)
	if !dies {
		back.put(v.ID, after(now, v.Delay))
		return 'd'
	}
	if j.Record == "" {
		j.Record = p.Stub
		p.count("missing", 1)
	}
	p.move(v.ID, Dead, Exactly(now))
	p.count("died", 1)
	return 'x'
}

// Cancel removes jobs, or marks those that are being worked on. records go with the jobs that it removes: none, or one
// for each.
func (p *Partition) Cancel(ids []string, records ...string) (codes string) {
	var out strings.Builder
	for _, id := range ids {
		j := p.Jobs[id]
		switch {
		case j == nil:
			out.WriteByte('0')
		case j.Place == Processing:
			out.WriteByte('p')
			j.Cancelled = true
		default:
			out.WriteByte('c')
			delete(p.Jobs, id)
			p.count("cancelled", 1)
		}
	}
	p.dropRecords(out.String(), 'c', records)
	return out.String()
}
