package model

// Key is the smallest of the keys that a state has when its jobs and its clients change their names: states that differ
// in names only behave alike.
func (m *Calls) Key(s *CallsState) uint64 {
	key := ^uint64(0)
	for clients := range uint8(m.o.Clients) {
		for jobs := range uint8(callJobs) {
			key = min(key, s.keyAs(clients, jobs))
		}
	}
	return key
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// The functions below are most of a search's time. A search runs in one goroutine, so there is nothing in them for the race
// detector, under which they would take ten times as long.

// keyAs is the key with clients and jobs swapped where their argument is 1.
//
//go:norace
func (s *CallsState) keyAs(clients, jobs uint8) uint64 {
	var m mixer
	for j := range uint8(callJobs) {
		job := &s.jobs[j^jobs]
		m.add(uint64(job.place) | uint64(job.fence)<<8 | bit(job.marked)<<16 | bit(job.dropped)<<17)
	}
	var word uint64
	for f := range s.leases {
		l := &s.leases[f]
		job, lane := l.job, l.lane
		if l.name != 0 {
			job, lane = job^jobs, swapLane(lane, clients)
		}
		word = word<<16 | uint64(job) | uint64(lane)<<1 | uint64(l.name)<<4 | bit(l.seen)<<8 | bit(l.back)<<9
		if f%4 == 3 {
			m.add(word)
			word = 0
		}
	}
	for at := range uint8(callClients * callLanes) {
		lane := swapLane(at, clients)
		m.add(s.lanes[lane].word(jobs))
		var names uint64
		for _, r := range s.records[lane][1:] {
			names = names<<20 | bit(r.alive) | bit(r.ever)<<1 | uint64(r.last)<<2 | uint64(r.first)<<7 | uint64(r.n)<<11 | uint64(r.code)<<13 | bit(r.sealed)<<16
		}
		m.add(names)
	}
	var net uint64
	for i := range s.sent {
		net += scatter(s.net[i].word(clients, jobs))
	}
	m.add(net)
	l, a, b := &s.left, clients, 1^clients
	m.add(uint64(s.fences) | uint64(s.held[a])<<8 | uint64(s.held[b])<<24 | uint64(s.bad)<<40 |
		uint64(l.claims[a])<<44 | uint64(l.claims[b])<<48 | uint64(l.others[a])<<52 | uint64(l.others[b])<<56)
	m.add(uint64(l.unknown) | uint64(l.repeats)<<4 | uint64(l.leavers)<<8 | uint64(l.refusals)<<12 |
		uint64(l.crashes)<<16 | uint64(l.trims)<<20 | uint64(l.expiries)<<24 | uint64(l.cancels)<<28)
	return m.sum()
}

//go:norace
func swapLane(lane, clients uint8) uint8 {
	if clients == 1 {
		return (lane + callLanes) % (2 * callLanes)
	}
	return lane
}

//go:norace
func (l *callLane) word(jobs uint8) uint64 {
	job := l.job
	if l.op != opNone && l.op != opClaim {
		job ^= jobs
	}
	return uint64(l.name) | uint64(l.names)<<2 | uint64(l.number)<<4 | uint64(l.seen)<<9 | uint64(l.phase)<<13 |
		bit(l.maybe)<<15 | bit(l.left)<<16 | uint64(l.op)<<18 | uint64(job)<<21 | uint64(l.fence)<<22 |
		uint64(l.call)<<26 | uint64(l.ran)<<31 | uint64(l.status)<<34 | uint64(l.first)<<37 | uint64(l.n)<<41 | uint64(l.code)<<43 |
		uint64(l.count)<<46
}

//go:norace
func (r *callRequest) word(clients, jobs uint8) uint64 {
	job := r.job
	if r.op != opClaim {
		job ^= jobs
	}
	return uint64(swapLane(r.lane, clients)) | uint64(r.name)<<3 | uint64(r.number)<<5 | uint64(r.op)<<10 |
		uint64(job)<<13 | uint64(r.fence)<<14 | uint64(r.seen)<<18 | uint64(r.n)<<22 | uint64(r.call)<<24 | bit(r.awaited)<<29
}
