package model

import "fmt"

// What a step of Wake is.
const (
	doEnqueue = iota
	doTime
	doPop
	doTold
	doPass
	doRunSettle
	doRunClaim
	doFail
	doLand
	doTimer
	doPauseOver
	doFinish
	doFinishBack
	doStopConsumer
	doDieConsumer
	doOrphan
	doNothing
)

func (m *Wake) from(s *WakeState) *WakeState {
	m.to = *s
	return &m.to
}

// Next takes every step. Where none is left but what comes from outside, no job may be waiting for a free slot.
func (m *Wake) Next(s *WakeState, take func(Step, *WakeState)) {
	if s.bad != 0 {
		return
	}
	moves := false
	for i := range uint8(m.o.Consumers) {
		moves = m.inside(s, i, take) || moves
		m.outside(s, i, take)
	}
	m.producer(s, take)
	if moves || s.due == 0 || s.excused {
		return
	}
	for i := range s.consumers {
		if c := &s.consumers[i]; !c.gone && !c.stopping && c.free > 0 {
			to := m.from(s)
			to.bad = 1
			take(Step{What: doNothing}, to)
			return
		}
	}
}

// inside are the steps that follow by themselves, without the fallback.
func (m *Wake) inside(s *WakeState, i uint8, take func(Step, *WakeState)) (moves bool) {
	c := &s.consumers[i]
	act := func(what uint8, change func(s *WakeState, c *wakeConsumer)) {
		moves = true
		to := m.from(s)
		change(to, &to.consumers[i])
		take(Step{What: what, A: i}, to)
	}
	if c.armed && !c.took && s.wake {
		act(doPop, func(s *WakeState, c *wakeConsumer) { s.wake, c.took = false, true })
	}
	if c.took {
		act(doTold, m.woken)
	}
	if c.passing {
		act(doPass, func(s *WakeState, c *wakeConsumer) { s.wake, c.passing = true, false })
	}
	if c.stage == sent {
		if c.ending > 0 {
			act(doRunSettle, m.settle)
		}
		if c.asked > 0 {
			act(doRunClaim, func(s *WakeState, c *wakeConsumer) {
				m.claim(s, c)
				c.stage = ran
			})
		} else if c.ending == 0 {
			act(doLand, func(_ *WakeState, c *wakeConsumer) { c.stage = ran; m.land(c) })
		}
	}
	if c.stage == ran && c.ending > 0 {
		act(doRunSettle, m.settle)
	}
	if c.stage == ran && c.ending == 0 || c.stage == failed {
		act(doLand, func(_ *WakeState, c *wakeConsumer) { m.land(c) })
	}
	if c.timer > 0 && c.timer <= s.passed {
		act(doTimer, m.fired)
	}
	if c.paused {
		act(doPauseOver, func(_ *WakeState, c *wakeConsumer) { c.paused = false; m.launch(c) })
	}
	if c.orphans > 0 {
		act(doOrphan, func(s *WakeState, c *wakeConsumer) {
			c.orphans--
			s.due++
			s.wake = s.wake || m.has(BackPushes)
		})
	}
	return moves
}

// outside are the steps that nobody can count on.
func (m *Wake) outside(s *WakeState, i uint8, take func(Step, *WakeState)) {
	c := &s.consumers[i]
	act := func(what uint8, change func(s *WakeState, c *wakeConsumer)) {
		to := m.from(s)
		change(to, &to.consumers[i])
		take(Step{What: what, A: i}, to)
	}
	if c.gone {
		return
	}
	if c.stage == sent && s.left.failures > 0 && c.asked > 0 {
		act(doFail, func(s *WakeState, c *wakeConsumer) { s.left.failures--; c.stage = failed })
	}
	if c.running > 0 {
		act(doFinish, func(_ *WakeState, c *wakeConsumer) { m.finish(c, false) })
		if s.left.nacks > 0 {
			act(doFinishBack, func(s *WakeState, c *wakeConsumer) { s.left.nacks--; m.finish(c, true) })
		}
	}
	if s.left.stops > 0 && !c.stopping {
		act(doStopConsumer, func(s *WakeState, c *wakeConsumer) { s.left.stops--; m.stop(c) })
	}
	if s.left.deaths > 0 {
		act(doDieConsumer, func(s *WakeState, c *wakeConsumer) { s.left.deaths--; m.die(s, c) })
	}
}

// producer enqueues jobs, and time passes.
func (m *Wake) producer(s *WakeState, take func(Step, *WakeState)) {
	if s.left.enqueues > 0 {
		to := m.from(s)
		to.left.enqueues--
		m.enqueue(to, 0)
		take(Step{What: doEnqueue}, to)
	}
	for at := s.passed + 1; at <= wakeTimes && s.left.later > 0; at++ {
		to := m.from(s)
		to.left.later--
		m.enqueue(to, at)
		take(Step{What: doEnqueue, A: at}, to)
	}
	if s.passed < wakeTimes && m.o.Later > 0 {
		to := m.from(s)
		to.passed++
		to.due += to.ahead[to.passed]
		to.ahead[to.passed] = 0
		take(Step{What: doTime, A: to.passed}, to)
	}
}

// Tell names a step.
func (m *Wake) Tell(step Step) string {
	who := fmt.Sprintf("consumer %d", step.A+1)
	switch step.What {
	case doEnqueue:
		return "a job is enqueued, due " + [...]string{"now", "at the first time", "at the second time"}[step.A]
	case doTime:
		return "the " + [...]string{"", "first", "second"}[step.A] + " time has come"
	}
	return [...]string{
		doPop: "Redis gives the wake-up to " + who, doTold: who + " is told of its wake-up",
		doPass: who + " passes a wake-up on", doRunSettle: "Redis runs the verdicts of " + who,
		doRunClaim: "Redis runs the claim of " + who, doFail: "the round trip of " + who + " fails",
		doLand: who + " receives the answers", doTimer: who + "'s timer for the next due time fires",
		doPauseOver: "the pause of " + who + " is over", doFinish: "a handler of " + who + " returns",
		doFinishBack: "a handler of " + who + " returns an error", doStopConsumer: who + " begins to stop",
		doDieConsumer: who + " dies", doOrphan: "a lease of the dead " + who + " runs out, and a sweeper takes it",
		doNothing: "nothing more happens until the fallback",
	}[step.What]
}
