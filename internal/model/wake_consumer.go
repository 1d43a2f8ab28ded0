package model

// launch sends what is to be sent, or waits for a wake-up: it is called after everything that happens to a dispatcher.
func (m *Wake) launch(c *wakeConsumer) {
	if c.stage != grounded || c.paused || c.gone {
		return
	}
	asked := uint8(0)
	if c.claimable && !c.stopping {
		asked = c.free
	}
	if c.pending > 0 || asked > 0 {
		c.stage, c.asked, c.got, c.more, c.next = sent, asked, 0, false, 0
		c.ending, c.endingBack, c.pending, c.back = c.pending, c.back, 0, 0
		c.again = c.again && asked == 0
		return
	}
	if (c.free > 0 || !m.has(FreeArms)) && !c.claimable && !c.stopping && !c.armed {
		c.armed = true
	}
}

func (c *wakeConsumer) look(m *Wake) {
	c.claimable = true
	c.again = m.has(Again)
}

// woken is told of a wake-up that this process took.
func (m *Wake) woken(_ *WakeState, c *wakeConsumer) {
	c.took, c.armed = false, false
	c.look(m)
	c.owed = true
	m.payDebt(c)
	m.launch(c)
}

// fired is told that a due time has come which this process waited for.
func (m *Wake) fired(_ *WakeState, c *wakeConsumer) {
	c.timer = 0
	c.look(m)
	c.owed = c.owed || m.has(TimerOwes)
	m.payDebt(c)
	m.launch(c)
}

// payDebt passes on the wake-up that is owed a claim, if there can be none now.
func (m *Wake) payDebt(c *wakeConsumer) {
	if !c.owed {
		return
	}
	full := c.free == 0
	if !full && !c.stopping && !c.paused {
		return
	}
	c.owed = false
	switch {
	case c.stopping:
		c.passing = c.passing || m.has(StoppedPassesOn)
	case c.paused:
		c.passing = c.passing || m.has(FailedPassesOn)
	default:
		c.passing = c.passing || m.has(FullPassesOn)
	}
}

// land digests the answer of a round trip.
func (m *Wake) land(c *wakeConsumer) {
	worked := c.stage == ran
	c.stage = grounded
	if worked && c.asked > 0 {
		c.owed = c.owed && c.again
		c.claimable = c.more || c.again
		if c.timer = 0; m.has(DueTimer) {
			c.timer = c.next
		}
		if c.stopping {
			c.timer = 0
			c.owed = c.owed || c.next > 0 && m.has(StopTellsTime)
			c.pending += c.got
			c.back += c.got // released
		} else {
			c.free -= c.got
			c.running += c.got
		}
	}
	if !worked {
		c.paused = true
		c.pending += c.ending
		c.back += c.endingBack
	}
	c.asked, c.got, c.ending, c.endingBack, c.more, c.next = 0, 0, 0, 0, false, 0
	m.payDebt(c)
	m.launch(c)
}

// finish ends a handler; its verdict waits for the next round trip.
func (m *Wake) finish(c *wakeConsumer, back bool) {
	c.running--
	c.free++
	c.pending++
	if back {
		c.back++
	}
	m.launch(c)
}

// stop begins an orderly end: the blocking connection is closed first.
func (m *Wake) stop(c *wakeConsumer) {
	c.owed = c.owed || c.timer > 0 && m.has(StopTellsTime)
	c.stopping, c.armed, c.timer = true, false, 0
	if c.took {
		c.took = false
		c.passing = c.passing || m.has(StoppedPassesOn)
	}
	if c.stage == grounded {
		m.payDebt(c)
	}
	m.launch(c)
}

// die ends a consumer without a word.
func (m *Wake) die(s *WakeState, c *wakeConsumer) {
	s.excused = s.excused || c.took || c.owed || c.passing || c.timer > 0 || c.next > 0
	orphans := c.running + c.pending + c.ending
	if c.stage == ran {
		orphans += c.got
	}
	*c = wakeConsumer{gone: true, orphans: orphans}
}

// claim runs in Redis.
func (m *Wake) claim(s *WakeState, c *wakeConsumer) {
	c.got = min(c.asked, s.due)
	s.due -= c.got
	if c.more = s.due > 0; c.more && c.got > 0 && m.has(ClaimPassesOn) {
		s.wake = true
	}
	for at := uint8(wakeTimes); at > 0 && !c.more; at-- {
		if s.ahead[at] > 0 {
			c.next = at
		}
	}
}

// settle runs the verdicts of a round trip.
func (m *Wake) settle(s *WakeState, c *wakeConsumer) {
	if c.endingBack > 0 {
		s.due += c.endingBack
		s.wake = s.wake || m.has(BackPushes)
	}
	c.ending, c.endingBack = 0, 0
}

// enqueue makes a job that is due now (0) or at a time ahead.
func (m *Wake) enqueue(s *WakeState, at uint8) {
	earlier := s.due == 0
	for before := uint8(1); before <= at; before++ {
		earlier = earlier && s.ahead[before] == 0
	}
	if at == 0 {
		s.due++
	} else {
		s.ahead[at]++
	}
	if earlier && m.has(EarlierPushes) {
		s.wake = true
	}
}
