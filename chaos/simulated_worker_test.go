package chaos

import (
	"fmt"
	"slices"
	"strings"

	"github.com/leaseq/leaseq/chaos/record"
)

// poll lets a worker claim.
func (s *sim) poll(p *simProcess) {
	s.by(p, 1000+s.rng.Int64N(1000), func() {
		sent := s.now
		n := 0
		for s.down <= s.now && n < len(s.due) && s.due[n].due <= s.now/1000 && p.busy+n < s.size.slots {
			n++
		}
		if n > 0 {
			s.fence = max(s.now, s.fence+1)
		}
		for i, j := range s.due[:n] {
			if i > 0 {
				s.fence++
			}
			s.claim(p, j, sent-100)
		}
		s.due = s.due[n:]
		if s.running() {
			s.poll(p)
		}
	})
}

func (s *sim) claim(p *simProcess, j *simJob, sent int64) {
	p.busy++
	j.place, j.fence, j.expiry, j.owner, j.deadline = "processing", s.fence, s.now/1000*1000+simLease, p, sent+simLease
	s.held[j] = true
	s.stats["claimed"]++
	line := record.Event{
		Kind: record.Started, ID: j.id, Fence: j.fence, Attempt: j.failures + j.expiries + 1, Failures: j.failures, Expiries: j.expiries,
		Redrives: j.redrives, Due: j.due, Enqueued: j.enqueued,
	}
	late := s.now/1000 - j.due
	s.beat(p, j, j.fence)
	s.by(p, 200+s.rng.Int64N(600), func() {
		if s.now >= j.deadline || j.fence != line.Fence {
			line.Kind, line.Out = record.Settled, record.OutLost
			if s.lost(j, line.Fence) {
				s.stats["refused"]++
			} else {
				line.Out = record.OutReleased
				s.release(j)
			}
			p.busy--
			s.write(p, line)
			return
		}
		line.Wait = late*1000 + s.now - sent
		line.Deadline = j.deadline - p.offset
		j.running = line.Fence
		s.write(p, line)
		run := 1000 + s.rng.Int64N(20_000)
		if s.rng.IntN(200) == 0 {
			run += simLease * 3 / 2
		}
		s.by(p, run, func() { s.end(p, j, line) })
	})
}

// beat extends a lease every third of it.
func (s *sim) beat(p *simProcess, j *simJob, fence int64) {
	s.beatIn(p, j, fence, simLease/3)
}

func (s *sim) beatIn(p *simProcess, j *simJob, fence, in int64) {
	s.by(p, in, func() {
		if j.place != "processing" || j.fence != fence || s.now >= j.deadline {
			return
		}
		if s.down > s.now {
			s.beatIn(p, j, fence, 50_000)
			return
		}
		if j.cancelled {
			if j.running == fence {
				j.told = fence
				s.write(p, record.Event{Kind: record.Ended, ID: j.id, Fence: fence, Out: record.OutCancelled, Deadline: j.deadline - p.offset})
			}
			return
		}
		j.expiry, j.deadline = (s.now+simLease+999)/1000*1000, s.now-100+simLease
		s.beat(p, j, fence)
	})
}

func (s *sim) lost(j *simJob, fence int64) bool {
	return s.jobs[j.id] != j || j.place != "processing" || j.fence != fence
}

// end is a handler's return and what follows from it.
func (s *sim) end(p *simProcess, j *simJob, start record.Event) {
	deadline := start.Deadline
	if j.fence == start.Fence {
		deadline = j.deadline - p.offset
	}
	if s.now-p.offset > deadline && j.told != start.Fence {
		s.write(p, record.Event{Kind: record.Ended, ID: j.id, Fence: start.Fence, Out: record.OutLost, Deadline: deadline})
		p.Lines[len(p.Lines)-1].At = max(deadline, s.thawed(p)-p.offset)
	}
	out, dice := record.OutNil, s.rng.IntN(100)
	switch {
	case dice < 2:
		out = record.OutPanic
	case dice < 15:
		out = record.OutError
	}
	j.running = 0
	s.write(p, record.Event{Kind: record.Returned, ID: j.id, Fence: start.Fence, Out: out, Deadline: deadline})
	s.after(200+s.rng.Int64N(300), func() { // the request is on its way, whatever becomes of the process
		s.reach(func() { s.verdict(p, j, start, dice) })
	})
}

func (s *sim) verdict(p *simProcess, j *simJob, start record.Event, dice int) {
	answer := record.Event{Kind: record.Settled, ID: j.id, Fence: start.Fence}
	s.settle(j, &answer, dice)
	if answer.Out != record.OutAcked && answer.Out != record.OutRetried {
		claim := start
		claim.Kind, claim.Out, claim.Delay, claim.Wait = record.Settled, answer.Out, answer.Delay, 0
		answer = claim
	}
	s.by(p, 200+s.rng.Int64N(300), func() {
		p.busy--
		s.write(p, answer)
	})
}

// thawed is when a process last began to run again.
func (s *sim) thawed(p *simProcess) int64 { return p.frozen }

func (s *sim) settle(j *simJob, answer *record.Event, dice int) {
	switch {
	case s.jobs[j.id] == nil:
		answer.Out = record.OutGone
		s.stats["refused"]++
		return
	case s.lost(j, answer.Fence):
		answer.Out = record.OutLost
		s.stats["refused"]++
		return
	}
	delete(s.held, j)
	switch {
	case dice >= 15:
		answer.Out = record.OutAcked
		s.stats["acked"]++
		s.remove(j)
	case j.cancelled:
		answer.Out = record.OutCancelled
		s.stats["cancelled_processing"]++
		s.remove(j)
	case dice < 2 || dice >= 8:
		s.nack(j, answer)
	case dice < 5:
		answer.Out = record.OutDead
		j.failures++
		s.stats["buried"]++
		s.die(j)
	default:
		answer.Out = record.OutReleased
		s.release(j)
	}
}

func (s *sim) nack(j *simJob, answer *record.Event) {
	j.failures++
	s.stats["nacked"]++
	if j.failures > simTries {
		answer.Out = record.OutDead
		s.die(j)
		return
	}
	answer.Out, answer.Delay = record.OutRetried, 20_000+s.rng.Int64N(50_000)
	s.toDue(j, (s.now+answer.Delay+999)/1000)
}

func (s *sim) release(j *simJob) {
	delete(s.held, j)
	s.stats["released"]++
	s.toDue(j, j.due)
}

// sweep expires what has run out.
func (s *sim) sweep() {
	if s.running() {
		defer s.after(50_000, s.sweep)
	}
	if s.down > s.now {
		return
	}
	if s.now-s.swept > simLease/2 && s.row < 3 {
		s.grace, s.row = s.now+simLease, s.row+1
	}
	if s.swept = s.now; s.now < s.grace {
		return
	}
	s.row = 0
	var over []*simJob
	for j := range s.held {
		if j.expiry <= s.now {
			over = append(over, j)
		}
	}
	slices.SortFunc(over, func(x, y *simJob) int { return strings.Compare(x.id, y.id) })
	for _, j := range over {
		delete(s.held, j)
		if j.cancelled {
			s.stats["cancelled_processing"]++
			s.remove(j)
			continue
		}
		j.expiries++
		s.stats["expired"]++
		if j.expiries > 5 {
			s.die(j)
		} else {
			s.toDue(j, s.now/1000)
		}
	}
}

func (s *sim) fault(name string, p *simProcess, effect string, lasts int64) {
	s.calls++
	n := s.calls
	s.write(s.agent, record.Event{Kind: record.Faulted, Call: n, Out: record.FaultBegin, Name: name, Target: p.name, Effects: []string{effect}})
	s.write(s.agent, record.Event{Kind: record.Faulted, Call: n, Out: record.FaultBites})
	s.by(s.agent, lasts, func() {
		s.write(s.agent, record.Event{Kind: record.Faulted, Call: n, Out: record.FaultEnd})
	})
}

func (s *sim) outage() {
	if s.running() {
		s.down = s.now + simLease/2 + s.rng.Int64N(simLease*2)
		s.fault("outage", &simProcess{}, record.Outage, s.down-s.now+1)
	}
}

func (s *sim) kill() {
	if !s.running() {
		return
	}
	i := s.rng.IntN(len(s.live))
	p := s.live[i]
	s.fault("SIGKILL", p, record.Dies, 1000)
	s.after(100, func() {
		p.dead = true
		s.live = slices.DeleteFunc(s.live, func(x *simProcess) bool { return x == p })
		s.hire(i)
	})
}

func (s *sim) freeze() {
	if !s.running() {
		return
	}
	p := s.live[s.rng.IntN(len(s.live))]
	if p.dead || p.frozen > s.now {
		return
	}
	lasts := int64(simLease/2) + s.rng.Int64N(simLease*2)
	s.fault("SIGSTOP", p, record.Freezes, lasts+1000)
	p.frozen = s.now + lasts
	from := s.now - p.offset
	s.by(p, 1, func() {
		s.write(p, record.Event{Kind: record.Paused, Until: s.now - p.offset})
		p.Lines[len(p.Lines)-1].At = from
	})
}

// String is for messages of tests.
func (z simSize) String() string {
	return fmt.Sprintf("%d jobs, %d workers with %d slots, %d kills, %d freezes, %d outages, operators %v", z.jobs, z.workers, z.slots, z.kills, z.freezes, z.outages, z.operators)
}
