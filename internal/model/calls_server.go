package model

// unsend takes a request from the net.
func (s *CallsState) unsend(i uint8) {
	s.sent--
	s.net[i] = s.net[s.sent]
	s.net[s.sent] = callRequest{}
}

// serve runs a request, as a script does: in one step. head is the job that is due first.
func (m *Calls) serve(s *CallsState, r callRequest, head uint8) {
	slot := m.slot(r.lane)
	record := &s.records[slot][r.name]
	if !record.alive && (!m.has(NoSession) || !m.has(OpenedSessions) && r.number == 1) {
		*record = callRecord{alive: true, ever: true}
	}
	if m.has(Numbers) {
		switch {
		case !record.alive:
			s.reply(r, replyNoSession, callRecord{})
			return
		case r.number == record.last:
			m.again(s, r, *record)
			return
		case r.number < record.last && m.has(SmallerNumbers):
			s.reply(r, replyStale, callRecord{})
			return
		}
	}
	if r.op == opSeal {
		m.sealed(s, r, record)
		return
	}
	out := callRecord{alive: true, ever: true, last: r.number}
	effect := false
	switch r.op {
	case opClaim:
		effect = m.claim(s, r, *record, &out, head)
	case opEnqueue:
		out.code = m.enqueue(s, r)
	default:
		out.code = m.settle(s, r)
	}
	*record = out
	m.note(s, r, out.code, effect || out.code == wasDone || out.code == wasCancelled)
	s.reply(r, replyOK, out)
}

// again answers the number that was answered before.
func (m *Calls) again(s *CallsState, r callRequest, record callRecord) {
	if r.op == opClaim && !m.has(NewClaimNumbers) {
		for fence := record.first; fence < record.first+record.n; fence++ {
			if s.jobs[s.leases[fence].job].fence != fence && r.awaited {
				s.bad = badOver
			}
		}
	}
	s.reply(r, replyAgain, record)
}

// sealed says what the number before did, and keeps it from running if it has not.
func (m *Calls) sealed(s *CallsState, r callRequest, record *callRecord) {
	out := *record
	if record.last != r.number-1 {
		out.code = wasNeverRun
	}
	out.last, out.sealed = r.number, true
	if m.has(Seals) {
		*record = out
	}
	s.reply(r, replyOK, out)
}

// reply answers who waits, if somebody does.
func (s *CallsState) reply(r callRequest, status uint8, what callRecord) {
	if !r.awaited {
		return
	}
	l := &s.lanes[r.lane]
	l.status, l.code = status, what.code
	if r.op == opClaim {
		l.first, l.n = what.first, what.n
	}
}

// note checks what a call that ran means for what its caller is told.
func (m *Calls) note(s *CallsState, r callRequest, code uint8, effect bool) {
	l := &s.lanes[r.lane]
	switch {
	case r.call == 0 || s.bad != sound:
	case l.call != r.call || l.phase == idle:
		if effect && m.has(Numbers) {
			s.bad = badLate
		}
	case r.op != opClaim && l.ran == wasNothing:
		l.ran = code
	case r.op != opClaim && m.has(Numbers):
		s.bad = badTwice
	}
}

// endLease ends the lease on a job: it is due again, or removed.
func (m *Calls) endLease(s *CallsState, j, place uint8) {
	job := &s.jobs[j]
	if job.marked && m.has(CancelMarks) || place == nowhere {
		*job = callJob{}
		return
	}
	*job = callJob{place: place, dropped: job.dropped}
	if job.dropped {
		s.bad = badCancelled
	}
}

func (m *Calls) settle(s *CallsState, r callRequest) uint8 {
	job := &s.jobs[r.job]
	if job.place != processing || m.has(SettleTokens) && job.fence != r.fence {
		return wasRefused
	}
	if job.fence != r.fence {
		s.bad = badSettle
	}
	switch {
	case r.op == opAck:
		*job = callJob{}
	case job.marked && m.has(CancelMarks):
		*job = callJob{}
		return wasCancelled
	default:
		m.endLease(s, r.job, due)
	}
	return wasDone
}

func (m *Calls) enqueue(s *CallsState, r callRequest) uint8 {
	if s.jobs[r.job].place != nowhere {
		return wasRefused
	}
	s.jobs[r.job] = callJob{place: due}
	return wasDone
}

// claim gives back what its session leased and nobody saw, and leases what is due.
func (m *Calls) claim(s *CallsState, r callRequest, before callRecord, out *callRecord, head uint8) (effect bool) {
	if m.has(GiveBack) && m.has(Numbers) {
		effect = m.giveBack(s, r, before)
	}
	for i := range uint8(callJobs) {
		j := head ^ i
		if out.n == r.n || s.jobs[j].place != due {
			continue
		}
		if s.jobs[j].dropped {
			s.bad = badCancelled
		}
		if s.fences == callFences {
			s.bad = badRoom
			return
		}
		s.fences++
		s.leases[s.fences] = callLease{job: j, lane: r.lane, name: r.name}
		s.jobs[j].place, s.jobs[j].fence = processing, s.fences
		if out.n == 0 {
			out.first = s.fences
		}
		out.n++
		effect = true
	}
	return effect
}

func (m *Calls) giveBack(s *CallsState, r callRequest, before callRecord) (effect bool) {
	for j := range s.jobs {
		job := &s.jobs[j]
		lease := &s.leases[job.fence]
		if job.place != processing || job.fence <= r.seen {
			continue
		}
		if m.has(SessionTokens) {
			if lease.lane != r.lane || lease.name != r.name || job.fence < before.first || job.fence >= before.first+before.n {
				continue
			}
		} else if clientOf(lease.lane) != clientOf(r.lane) {
			continue
		}
		if s.held[clientOf(lease.lane)]&(1<<job.fence) != 0 {
			s.bad = badBack
		}
		lease.back = true
		m.endLease(s, uint8(j), due)
		effect = true
	}
	return effect
}
