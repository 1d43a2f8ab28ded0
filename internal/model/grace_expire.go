package model

// expire is the script: it judges the gap, and takes what has run out.
func (m *Grace) expire(s *GraceState) {
	limit := int8(gapLimit)
	if !m.has(HalfLease) {
		limit = lease
	}
	if m.has(CutGraces) {
		s.grace = min(s.grace, lease)
	}
	gap := s.swept > limit
	if !m.has(JudgedByScript) {
		gap, s.judged = s.judged, false
	}
	if gap && (s.row < rowLimit || !m.has(RowBound)) && m.has(Spares) {
		s.grace = lease
		s.row = min(s.row+1, rowLimit+1)
	}
	late := s.swept > gapLimit
	if s.grace <= 0 {
		s.row = 0
	}
	if s.grace <= 0 || m.has(MarksSweeps) {
		s.swept = 0
	}
	s.spared = s.grace > 0
	if m.o.Sweeps == Late && late {
		s.gaps = min(s.gaps+1, 2*rowLimit)
	}
	if s.spared {
		m.passed(s)
		return
	}
	for i := range s.holders {
		m.take(s, &s.holders[i])
	}
	if m.o.Sweeps != Late || !late {
		s.gaps, s.shaken = 0, false
	}
	m.passed(s)
}

// take ends one lease if it has run out.
func (m *Grace) take(s *GraceState, h *graceHolder) {
	if !h.leased || h.left > 0 && m.has(ExpiryCompared) {
		return
	}
	switch {
	case h.left > 0:
		s.bad = badEarly
	case s.gaps > rowLimit: // more in a row than a grace is promised for
	case h.phase == working:
		s.bad = badWorking
	case h.phase == overdue && !h.lapsed:
		s.bad = badTaken
	}
	h.leased, h.over, h.passes = false, 0, 0
	if h.phase == dead {
		*h = graceHolder{}
	}
}

// passed counts the sweeps that left the lease of a dead holder where it was.
func (m *Grace) passed(s *GraceState) {
	for i := range s.holders {
		h := &s.holders[i]
		if h.phase != dead || !h.leased || h.left > 0 {
			continue
		}
		most := int8(rowLimit)
		if m.o.Gap < lease {
			most++ // the third grace lasts to beyond the fourth sweep
		}
		if h.passes = min(h.passes+1, far); h.passes > most && m.o.Sweeps == Late {
			s.bad = badNever
		}
	}
}

// sleep is how long a sweeper sleeps after an answer.
func (m *Grace) sleep(s *GraceState) int8 {
	switch {
	case m.o.Sweeps == Late:
		return 2 * lease
	case m.o.Sweeps == Cron && !s.spared:
		return 2 * lease
	}
	most := int8(sweepEvery)
	if !m.has(ShortSleeps) {
		most = far
	}
	if s.spared {
		return min(most, s.grace)
	}
	for i := range s.holders {
		if h := &s.holders[i]; h.leased {
			most = min(most, max(h.left, 1))
		}
	}
	return most
}

// tick passes one unit of time, everywhere.
func (m *Grace) tick(s *GraceState) {
	s.time++
	calm := s.down == 0
	if s.down > 0 {
		s.down++
	}
	s.swept, s.grace, s.next = clip(s.swept+1), clip(s.grace-1), max(s.next-1, 0)
	for i := range s.holders {
		h := &s.holders[i]
		if h.leased {
			h.left = clip(h.left - 1)
		}
		if h.waiting > 0 {
			h.waiting = min(h.waiting+1, 2*lease)
		}
		if h.reply > 0 {
			h.reply = min(h.reply+1, 2*lease)
		}
		if h.phase == working {
			if h.age++; h.age >= lease {
				h.phase, h.age = overdue, 0
			}
		}
		if h.phase == dead && h.leased && h.left < 0 {
			m.lateBy(s, h, calm)
		}
	}
}

// lateBy counts how long a dead holder's lease is past its expiry.
func (m *Grace) lateBy(s *GraceState, h *graceHolder, calm bool) {
	if h.over++; !calm {
		h.over = 0
	}
	bound := int8(1)
	switch {
	case m.o.Sweeps == Late:
		return // counted in sweeps
	case m.o.Sweeps == Cron:
		bound += 3 * lease
	case s.gaps > 0:
		bound += lease
	}
	if s.shaken {
		bound += sweepEvery
	}
	if h.over > bound {
		s.bad = badSlow
	}
}

func clip(t int8) int8 { return min(max(t, -far), far) }

// step moves the server's clock.
func (s *GraceState) step(by int8) {
	s.swept, s.grace = clip(s.swept+by), clip(s.grace-by)
	s.gaps, s.shaken = min(s.gaps+1, 2*rowLimit), true
	for i := range s.holders {
		h := &s.holders[i]
		if h.leased {
			h.left = clip(h.left - by)
		}
		h.over = 0
	}
}
