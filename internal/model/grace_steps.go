package model

import "fmt"

// What a step of Grace is.
const (
	doTick = iota
	doStop
	doThaw
	doStepClock
	doDie
	doCut
	doHeal
	doExtend
	doExtendSlowly
	doAnswer
	doVerdict
	doClaim
	doSweep
	doRunExtend
	doRunVerdict
	doRunSweep
)

func (m *Grace) from(s *GraceState) *GraceState {
	m.to = *s
	return &m.to
}

// Next takes every step that is possible. Time passes only when everybody has done what is due.
func (m *Grace) Next(s *GraceState, take func(Step, *GraceState)) {
	if s.bad != 0 || int(s.time) >= m.o.Horizon {
		return
	}
	waits := false
	for i := range s.holders {
		waits = m.holder(s, uint8(i), take) || waits
	}
	waits = m.sweeper(s, take) || waits
	m.server(s, take)
	if waits || s.down > int8(m.o.Longest) {
		return
	}
	to := m.from(s)
	m.tick(to)
	take(Step{What: doTick}, to)
}

// holder is what one holder does, and may suffer; waits says that it has something to do before time passes.
func (m *Grace) holder(s *GraceState, i uint8, take func(Step, *GraceState)) (waits bool) {
	h := &s.holders[i]
	reaches := !h.cut
	every := int8(beatEvery)
	if !m.has(BeatsEvenly) {
		every = lease * 5 / 6
	}
	act := func(what uint8, change func(s *GraceState, h *graceHolder)) {
		to := m.from(s)
		change(to, &to.holders[i])
		take(Step{What: what, A: i}, to)
	}
	answerless := h.reply > 0 && (h.reply <= companyAfter || !m.has(Company))
	if h.phase == working && h.age >= every && h.waiting == 0 && !answerless && reaches {
		waits = true
		act(doExtend, m.sendExtend)
		if s.delays > 0 && s.down == 0 {
			act(doExtendSlowly, func(s *GraceState, h *graceHolder) {
				s.delays--
				h.waiting = 1
				m.serveExtend(s, h)
			})
		}
	}
	if h.reply > 0 {
		act(doAnswer, m.answered)
	}
	if h.phase == overdue && !h.verdict && reaches && m.has(VerdictsSent) {
		waits = true
		act(doVerdict, m.sendVerdict)
	}
	if s.down == 0 && h.waiting > 0 {
		waits = true
		act(doRunExtend, m.runExtend)
	}
	if s.down == 0 && h.verdict {
		waits = true
		act(doRunVerdict, m.runVerdict)
	}
	if h.phase == away && !h.leased && s.claims > 0 && s.down == 0 {
		act(doClaim, func(s *GraceState, h *graceHolder) {
			s.claims--
			*h = graceHolder{phase: working, leased: true, left: lease}
		})
	}
	if h.phase == working && s.deaths > 0 {
		act(doDie, func(s *GraceState, h *graceHolder) {
			s.deaths--
			h.phase, h.age, h.verdict = dead, 0, false
		})
	}
	if h.phase == working && s.cuts > 0 {
		act(doCut, func(s *GraceState, h *graceHolder) { s.cuts--; h.cut, h.lapsed = true, true })
	}
	if h.cut {
		act(doHeal, func(_ *GraceState, h *graceHolder) { h.cut = false })
	}
	return waits
}

func (m *Grace) sendExtend(s *GraceState, h *graceHolder) {
	if h.waiting = 1; s.down == 0 {
		m.runExtend(s, h)
	}
}

func (m *Grace) runExtend(s *GraceState, h *graceHolder) {
	m.serveExtend(s, h)
	m.answered(s, h)
}

// serveExtend has the server run an extend; its answer is under way.
func (m *Grace) serveExtend(_ *GraceState, h *graceHolder) {
	h.reply, h.waiting, h.lapsed = h.waiting, 0, h.cut
	if h.leased {
		h.left = max(h.left, lease)
	}
}

// answered has the answer arrive.
func (m *Grace) answered(_ *GraceState, h *graceHolder) {
	age := h.reply - 1
	h.reply = 0
	switch {
	case h.phase != working:
	case !h.leased:
		*h = graceHolder{cut: h.cut, lapsed: h.lapsed} // it is told that the lease is lost
	case m.has(DeadlineFromSend):
		h.age = min(h.age, age)
	default:
		h.age = 0
	}
}

func (m *Grace) sendVerdict(s *GraceState, h *graceHolder) {
	if h.verdict = true; s.down == 0 {
		m.runVerdict(s, h)
	}
}

func (m *Grace) runVerdict(_ *GraceState, h *graceHolder) {
	*h = graceHolder{cut: h.cut}
}

// sweeper sends its calls, and the server runs those that waited for it.
func (m *Grace) sweeper(s *GraceState, take func(Step, *GraceState)) (waits bool) {
	mayCall := s.next == 0 || m.o.Sweeps == Late && s.swept >= int8(m.o.Gap)
	if mayCall && s.sweeps < 2 {
		waits = s.next == 0
		to := m.from(s)
		to.sweeps++
		to.judged = to.judged || to.swept > gapLimit
		if to.next = sweepEvery; s.down == 0 {
			m.runSweep(to)
		}
		take(Step{What: doSweep}, to)
	}
	if s.down == 0 && s.sweeps > 0 {
		waits = true
		to := m.from(s)
		m.runSweep(to)
		take(Step{What: doRunSweep}, to)
	}
	return waits
}

func (m *Grace) runSweep(s *GraceState) {
	s.sweeps--
	m.expire(s)
	s.next = m.sleep(s)
}

// socket tells whether anything waits to be run: a server works that off before it is stopped again.
func (s *GraceState) socket() bool {
	for i := range s.holders {
		if s.holders[i].waiting > 0 || s.holders[i].verdict {
			return true
		}
	}
	return s.sweeps > 0
}

// server stops, goes on, and has its clock set.
func (m *Grace) server(s *GraceState, take func(Step, *GraceState)) {
	if s.down == 0 && s.stops > 0 && !s.socket() {
		to := m.from(s)
		to.stops--
		to.down = 1
		take(Step{What: doStop}, to)
	}
	if s.down > 1 {
		to := m.from(s)
		to.down = 0
		to.gaps = min(to.gaps+1, 2*rowLimit)
		take(Step{What: doThaw}, to)
	}
	for i, by := range m.o.Steps {
		if s.stepped&(1<<i) == 0 {
			to := m.from(s)
			to.stepped |= 1 << i
			to.step(int8(by))
			take(Step{What: doStepClock, A: uint8(i)}, to)
		}
	}
}

// Tell names a step.
func (m *Grace) Tell(step Step) string {
	who := fmt.Sprintf("holder %d", step.A+1)
	switch step.What {
	case doTick:
		return "a twelfth of a lease passes"
	case doStop:
		return "the server is stopped"
	case doThaw:
		return "the server goes on"
	case doStepClock:
		return fmt.Sprintf("the server's clock is set by %+d twelfths of a lease", m.o.Steps[step.A])
	case doDie:
		return who + " dies"
	case doCut:
		return who + " is cut off from the network"
	case doHeal:
		return who + " is connected again"
	case doExtend:
		return who + " extends its lease"
	case doExtendSlowly:
		return who + " extends its lease, and the answer takes its time"
	case doAnswer:
		return who + " receives that answer"
	case doVerdict:
		return who + ", its deadline past, sends its verdict"
	case doClaim:
		return who + " claims a job"
	case doSweep:
		return "a sweeper calls"
	case doRunExtend:
		return "the server runs an extend of " + who + " that waited in the socket"
	case doRunVerdict:
		return "the server runs a verdict of " + who + " that waited in the socket"
	}
	return "the server runs a sweep that waited in the socket"
}
