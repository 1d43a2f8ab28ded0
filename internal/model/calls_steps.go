package model

import "fmt"

// What a step of Calls is.
const (
	doSend = iota
	doReceive
	doUnknown
	doRepeat
	doLeave
	doCrash
	doServe
	doRefuse
	doTrim
	doExpire
	doCancel
)

// Next takes every step that the bounds still allow.
func (m *Calls) Next(s *CallsState, take func(Step, *CallsState)) {
	if s.bad != sound {
		return
	}
	for c := range m.o.Clients {
		for k := range callLanes {
			lane := uint8(c*callLanes + k)
			switch {
			case m.kinds[k] == 0:
			case s.lanes[lane].phase == idle && m.kinds[k] == 'c':
				m.beginClaims(s, lane, take)
			case s.lanes[lane].phase == idle:
				m.beginOthers(s, lane, take)
			default:
				m.onTheWay(s, lane, take)
			}
		}
		if s.left.crashes > 0 && m.crashMatters(s, c) {
			to := m.from(s)
			to.left.crashes--
			m.crash(to, c)
			take(Step{What: doCrash, A: uint8(c)}, to)
		}
	}
	for i := range s.sent {
		m.arrivals(s, i, take)
	}
	m.others(s, take)
}

func (m *Calls) beginClaims(s *CallsState, lane uint8, take func(Step, *CallsState)) {
	c := clientOf(lane)
	if s.left.claims[c] == 0 {
		return
	}
	to := m.from(s)
	to.left.claims[c]--
	m.begin(to, lane, callLane{op: opClaim, n: uint8(m.o.Batch)})
	take(Step{What: doSend, A: lane, B: opClaim}, to)
}

func (m *Calls) beginOthers(s *CallsState, lane uint8, take func(Step, *CallsState)) {
	c := clientOf(lane)
	if s.left.others[c] == 0 {
		return
	}
	begin := func(op, job, fence uint8) {
		to := m.from(s)
		to.left.others[c]--
		m.begin(to, lane, callLane{op: op, job: job, fence: fence})
		take(Step{What: doSend, A: lane, B: op, C: job<<4 | fence}, to)
	}
	for fence := uint8(1); fence <= s.fences; fence++ {
		if s.held[c]&(1<<fence) == 0 || m.settling(s, c, fence) {
			continue
		}
		begin(opAck, s.leases[fence].job, fence)
		if m.o.Buries {
			begin(opBack, s.leases[fence].job, fence)
		}
	}
	if m.o.Creates {
		for job := range uint8(callJobs) {
			begin(opEnqueue, job, 0)
		}
	}
}

// settling tells whether a caller still waits for a settle of this lease.
func (m *Calls) settling(s *CallsState, c int, fence uint8) bool {
	for k := range callLanes {
		l := &s.lanes[c*callLanes+k]
		if l.phase != idle && l.op != opClaim && l.fence == fence && !l.left {
			return true
		}
	}
	return false
}

// onTheWay is what can happen to a call that has no outcome yet.
func (m *Calls) onTheWay(s *CallsState, lane uint8, take func(Step, *CallsState)) {
	l := &s.lanes[lane]
	if l.status != noReply {
		to := m.from(s)
		m.receive(to, lane)
		take(Step{What: doReceive, A: lane, B: l.status, C: l.code}, to)
	}
	if s.left.unknown > 0 {
		to := m.from(s)
		to.left.unknown--
		to.giveUpTry(lane)
		m.unanswered(to, lane)
		take(Step{What: doUnknown, A: lane}, to)
	}
	if s.left.repeats > 0 {
		to := m.from(s)
		to.left.repeats--
		to.giveUpTry(lane)
		m.send(to, lane)
		take(Step{What: doRepeat, A: lane}, to)
	}
	if s.left.leavers > 0 && !l.left {
		to := m.from(s)
		to.left.leavers--
		to.lanes[lane].left = true
		take(Step{What: doLeave, A: lane}, to)
	}
}

func (m *Calls) crashMatters(s *CallsState, c int) bool {
	if s.held[c] != 0 {
		return true
	}
	for k := range callLanes {
		if s.lanes[c*callLanes+k].name != 0 {
			return true
		}
	}
	return false
}

// crash ends a process; another one begins in its place, with sessions of its own.
func (m *Calls) crash(s *CallsState, c int) {
	s.held[c] = 0
	for k := range callLanes {
		lane := c*callLanes + k
		s.lanes[lane] = callLane{names: s.lanes[lane].names}
		for i := range s.sent {
			if s.net[i].lane == uint8(lane) {
				s.net[i].call, s.net[i].awaited = 0, false
			}
		}
	}
}

// arrivals has the server run a request that is on its way.
func (m *Calls) arrivals(s *CallsState, i uint8, take func(Step, *CallsState)) {
	r := s.net[i]
	if s.left.refusals > 0 && r.awaited && s.lanes[r.lane].phase == running {
		to := m.from(s)
		to.left.refusals--
		to.unsend(i)
		to.lanes[r.lane].status = replyRefused
		take(Step{What: doRefuse, A: r.lane, B: r.op}, to)
	}
	heads := uint8(1)
	if r.op == opClaim && r.n > 0 {
		heads = callJobs // which job is due first is open
	}
	served := 0
	for head := range heads {
		if heads > 1 && s.jobs[head].place != due && (served > 0 || head+1 < heads) {
			continue
		}
		served++
		to := m.from(s)
		to.unsend(i)
		m.serve(to, r, head)
		take(Step{What: doServe, A: r.lane, B: r.op, C: r.number<<2 | head<<1 | uint8(bit(r.awaited))}, to)
	}
}

// others are the steps of sweepers and of people.
func (m *Calls) others(s *CallsState, take func(Step, *CallsState)) {
	for lane := range uint8(callClients * callLanes) {
		for name := range s.records[lane] {
			if s.left.trims > 0 && s.records[lane][name].alive {
				to := m.from(s)
				to.left.trims--
				to.records[lane][name] = callRecord{ever: true}
				take(Step{What: doTrim, A: lane, B: uint8(name)}, to)
			}
		}
	}
	for j := range s.jobs {
		if s.left.expiries > 0 && s.jobs[j].place == processing {
			to := m.from(s)
			to.left.expiries--
			m.endLease(to, uint8(j), due)
			take(Step{What: doExpire, A: uint8(j)}, to)
		}
		if s.left.cancels > 0 && s.jobs[j].place != nowhere && !s.jobs[j].marked {
			to := m.from(s)
			to.left.cancels--
			job := &to.jobs[j]
			if job.dropped = true; job.place == processing {
				job.marked = true
			} else {
				*job = callJob{}
			}
			take(Step{What: doCancel, A: uint8(j)}, to)
		}
	}
}

// Tell names a step.
func (m *Calls) Tell(step Step) string {
	ops := [...]string{"nothing", "claim", "ack", "nack", "enqueue", "seal"}
	who := fmt.Sprintf("client %d", clientOf(step.A)+1)
	if n := step.A % callLanes; n > 0 && len(m.o.Lanes) > 1 {
		who += fmt.Sprintf(" (stream %d)", n+1)
	}
	switch step.What {
	case doSend:
		text := who + " sends " + ops[step.B]
		if step.B != opClaim {
			text += fmt.Sprintf(" of job %d", step.C>>4+1)
		}
		if fence := step.C & 15; step.B != opClaim && fence > 0 {
			text += fmt.Sprintf(" under lease %d", fence)
		}
		return text
	case doReceive:
		return who + " receives " + [...]string{"nothing", "the answer", "AGAIN", "STALE", "NOSESSION", "a refusal"}[step.B] +
			[...]string{"", ": done", ": lost, gone or duplicate", ": cancelled", ": it never ran"}[step.C]
	case doUnknown:
		return who + " gives up its try: no answer came"
	case doRepeat:
		return who + "'s library sends the same once more by itself"
	case doLeave:
		return who + "'s caller leaves: its context has ended"
	case doCrash:
		return fmt.Sprintf("client %d crashes, and begins anew", step.A+1)
	case doServe:
		text := fmt.Sprintf("Redis runs %s number %d of %s", ops[step.B], step.C>>2, who)
		if step.C&1 == 0 {
			text += ", late: nobody waits for it"
		}
		if step.B == opClaim {
			text += fmt.Sprintf("; job %d is first in due", step.C>>1&1+1)
		}
		return text
	case doRefuse:
		return fmt.Sprintf("Redis refuses %s of %s: out of memory", ops[step.B], who)
	case doTrim:
		return fmt.Sprintf("a sweeper forgets session %d of %s", step.B, who)
	case doExpire:
		return fmt.Sprintf("the lease on job %d runs out, and a sweeper takes it", step.A+1)
	}
	return fmt.Sprintf("somebody cancels job %d", step.A+1)
}
