package model

// begin starts a call in an idle lane.
func (m *Calls) begin(s *CallsState, lane uint8, what callLane) {
	l := &s.lanes[lane]
	what.names, what.seen, what.call = l.names, l.seen, l.call+1
	what.name, what.count, what.phase = l.name, l.count, running
	*l = what
	m.open(s, lane)
	m.nextNumber(s, lane)
	m.send(s, lane)
}

// open gives a lane a session if it has none. A lost open makes one more session that nobody uses: it is one step here.
func (m *Calls) open(s *CallsState, lane uint8) {
	at := &s.lanes[m.slot(lane)]
	if at.name != 0 {
		return
	}
	if at.names == callNames {
		s.bad = badRoom
		return
	}
	at.names++
	at.name, at.count, s.lanes[lane].seen = at.names, 0, 0
	if m.has(OpenedSessions) {
		s.records[m.slot(lane)][at.name] = callRecord{alive: true, ever: true}
	}
}

func (m *Calls) nextNumber(s *CallsState, lane uint8) {
	at := &s.lanes[m.slot(lane)]
	at.count++
	s.lanes[lane].number = at.count
}

// send puts one try on its way.
func (m *Calls) send(s *CallsState, lane uint8) {
	l, at := &s.lanes[lane], &s.lanes[m.slot(lane)]
	r := callRequest{
		lane: lane, name: at.name, number: l.number, op: l.op, job: l.job, fence: l.fence,
		call: l.call, awaited: true,
	}
	if l.op == opClaim {
		r.seen = l.seen
		if l.phase == running {
			r.n = uint8(m.o.Batch)
			if l.maybe {
				r.n = 1
			}
		}
	} else if l.phase == sealing {
		r.op, r.job, r.fence = opSeal, l.job, 0
	}
	if s.sent == callNet {
		s.bad = badRoom
		return
	}
	l.status, l.first, l.n, l.code = noReply, 0, 0, 0
	s.net[s.sent] = r
	s.sent++
}

// giveUpTry makes the try under way one that nobody waits for: it may run late, or has run and its reply is lost.
func (s *CallsState) giveUpTry(lane uint8) {
	for i := range s.sent {
		if s.net[i].lane == lane && s.net[i].awaited {
			s.net[i].awaited = false
		}
	}
	l := &s.lanes[lane]
	l.status, l.first, l.n, l.code = noReply, 0, 0, 0
}

// unanswered goes on after a try that may have run, or may run yet.
func (m *Calls) unanswered(s *CallsState, lane uint8) {
	l := &s.lanes[lane]
	l.maybe = true
	switch {
	case l.phase == running && l.left:
		m.seal(s, lane)
		return
	case l.phase == running && l.op == opClaim && m.has(NewClaimNumbers):
		m.nextNumber(s, lane)
	}
	m.send(s, lane)
}

func (m *Calls) seal(s *CallsState, lane uint8) {
	s.lanes[lane].phase = sealing
	m.nextNumber(s, lane)
	m.send(s, lane)
}

// receive digests the answer of the try under way.
func (m *Calls) receive(s *CallsState, lane uint8) {
	l := &s.lanes[lane]
	switch l.status {
	case replyNoSession:
		if l.phase == running && !l.maybe {
			s.lanes[m.slot(lane)].name = 0
			m.open(s, lane)
			m.nextNumber(s, lane)
			m.send(s, lane)
			return
		}
		m.never(s, lane)
	case replyStale:
		m.never(s, lane)
	case replyRefused:
		if l.maybe && m.has(SealsOfRefusals) {
			m.seal(s, lane)
			return
		}
		if l.op == opClaim {
			m.over(s, lane)
			return
		}
		m.tell(s, lane, wasNeverRun)
	case replyAgain:
		if l.op == opClaim && l.phase == running && m.has(NewClaimNumbers) {
			l.maybe = true
			m.nextNumber(s, lane)
			m.send(s, lane)
			return
		}
		m.received(s, lane)
	default:
		m.received(s, lane)
	}
}

// received takes an answer that tells what the call did.
func (m *Calls) received(s *CallsState, lane uint8) {
	l := &s.lanes[lane]
	switch {
	case l.op != opClaim:
		m.tell(s, lane, l.code)
	case l.phase == sealing:
		m.over(s, lane)
	case l.left && m.has(SealsOfClaims):
		m.seal(s, lane)
	case l.left:
		m.over(s, lane)
	default:
		m.handOver(s, lane)
	}
}

func (m *Calls) handOver(s *CallsState, lane uint8) {
	l := &s.lanes[lane]
	for fence := l.first; fence < l.first+l.n; fence++ {
		if s.leases[fence].back {
			s.bad = badHandOver
		}
		s.leases[fence].seen = true
		s.held[clientOf(lane)] |= 1 << fence
		l.seen = max(l.seen, fence)
	}
	m.over(s, lane)
}

// over ends a claim: nobody's leases must be left behind.
func (m *Calls) over(s *CallsState, lane uint8) {
	l := s.lanes[lane]
	if m.has(Numbers) && s.records[m.slot(lane)][l.name].alive {
		for j := range s.jobs {
			lease := &s.leases[s.jobs[j].fence]
			if s.jobs[j].place == processing && lease.lane == lane && lease.name == l.name && !lease.seen && s.bad == sound {
				s.bad = badNobody
			}
		}
	}
	s.rest(lane)
}

// rest makes a lane idle.
func (s *CallsState) rest(lane uint8) {
	l := &s.lanes[lane]
	*l = callLane{name: l.name, names: l.names, count: l.count, seen: l.seen, call: l.call}
}

// tell gives a caller the truth, or what is taken for it.
func (m *Calls) tell(s *CallsState, lane, what uint8) {
	l := &s.lanes[lane]
	told := what
	if told == wasNeverRun {
		told = wasNothing
	}
	if told != l.ran {
		s.bad = badAnswer
	}
	if what != wasNeverRun && l.fence != 0 {
		s.held[clientOf(lane)] &^= 1 << l.fence
	}
	s.rest(lane)
}

// never ends a call of which nobody can tell any more what it did.
func (m *Calls) never(s *CallsState, lane uint8) {
	l, at := &s.lanes[lane], m.slot(lane)
	if r := &s.records[at][s.lanes[at].name]; r.alive || !r.ever {
		s.bad = badForgotten
	}
	if l.fence != 0 {
		s.held[clientOf(lane)] &^= 1 << l.fence // it runs out
	}
	s.lanes[at].name, s.lanes[at].count = 0, 0
	s.rest(lane)
}
