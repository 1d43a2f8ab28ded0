package model

const (
	wakeConsumers = 3
	wakeTimes     = 2 // different due times that lie ahead
)

// WakeRule is a rule of waking up that Wake can do without.
type WakeRule uint16

// The rules.
const (
	// ClaimPassesOn: a claim that took a job and leaves more pushes a wake-up.
	ClaimPassesOn WakeRule = 1 << iota
	// FullPassesOn: who takes a wake-up and has no free slot passes it on.
	FullPassesOn
	// FailedPassesOn: a claim that failed and owed it passes the wake-up on.
	FailedPassesOn
	// StoppedPassesOn: who takes a wake-up while stopping passes it on.
	StoppedPassesOn
	// Again: a wake-up that comes during a claim asks for another one.
	Again
	// DueTimer: a process waits for the next due time by itself.
	DueTimer
	// FreeArms: a process waits for wake-ups only while it has a free slot.
	FreeArms
	// TimerOwes: whose timer fires owes a claim, as who took a wake-up does.
	TimerOwes
	// StopTellsTime: who stops while it waits for a due time wakes somebody who then does.
	StopTellsTime
	// BackPushes: nack, release and expire push a wake-up.
	BackPushes
	// EarlierPushes: an enqueue ahead of the head of due pushes one.
	EarlierPushes
)

// WakeOptions bound a search of Wake.
type WakeOptions struct {
	Consumers, Slots int // up to 3, each with so many slots
	Enqueues         int // of jobs that are due at once
	Later            int // of jobs that are due at one of two times ahead
	Failures         int // claims that fail
	Nacks            int // verdicts that put a job back
	Stops            int // consumers that stop in order
	Deaths           int // consumers that die; their leases run out
	Dropped          WakeRule
}

// Wake is the model of waking up: with a free slot and a due job a claim is under way, or something that leads to one.
type Wake struct {
	o  WakeOptions
	to WakeState
}

// NewWake makes the system.
func NewWake(o WakeOptions) *Wake { return &Wake{o: o} }

func (m *Wake) has(r WakeRule) bool { return m.o.Dropped&r == 0 }

// Stages of a round trip.
const (
	grounded = iota
	sent     // neither ran
	ran      // answered
	failed
)

// wakeConsumer is what the dispatcher of one consumer knows, by the names that it has there.
type wakeConsumer struct {
	free, running, pending uint8 // slots; jobs with a handler; verdicts to be sent
	back                   uint8 // how many of those put the job back
	stage                  uint8
	asked, got, ending     uint8 // of the round trip: jobs asked for and taken; verdicts not run yet
	endingBack             uint8
	more                   bool // in its answer
	next                   uint8

	claimable, again, owed bool
	armed, took            bool  // waits at wake; took an element that the dispatcher was not told of yet
	passing                bool  // a wake-up is being passed on
	timer                  uint8 // for the first or the second time ahead; 0 none
	paused, stopping, gone bool
	orphans                uint8 // leases of a dead consumer
}

// WakeState is one state.
type WakeState struct {
	consumers [wakeConsumers]wakeConsumer
	due       uint8
	ahead     [wakeTimes + 1]uint8 // jobs due at a later time; index 0 unused
	passed    uint8                // times that have come
	wake      bool
	excused   bool // an element was lost with its process
	left      wakeLeft
	bad       uint8
}

type wakeLeft struct{ enqueues, later, failures, nacks, stops, deaths uint8 }

var wakeBroken = [...]string{
	"",
	"a job is due and a slot is free, and nothing but the fallback would bring them together (invariant 12)",
}

// Start has idle consumers about to make their first claim.
func (m *Wake) Start() WakeState {
	o := &m.o
	s := WakeState{left: wakeLeft{
		enqueues: uint8(o.Enqueues), later: uint8(o.Later), failures: uint8(o.Failures), nacks: uint8(o.Nacks),
		stops: uint8(o.Stops), deaths: uint8(o.Deaths),
	}}
	for i := range s.consumers {
		c := &s.consumers[i]
		if c.gone = i >= o.Consumers; !c.gone {
			c.free, c.claimable = uint8(o.Slots), true
			m.launch(c)
		}
	}
	return s
}

// Broken names what a step to this state broke.
func (m *Wake) Broken(s *WakeState) string { return wakeBroken[s.bad] }

// Key folds a state into 64 bits; consumers may change places.
//
//go:norace
func (m *Wake) Key(s *WakeState) uint64 {
	var sum uint64
	for i := range m.o.Consumers {
		sum += s.consumers[i].key()
	}
	var k mixer
	k.add(sum)
	k.add(uint64(s.due) | uint64(s.ahead[1])<<4 | uint64(s.ahead[2])<<8 | uint64(s.passed)<<12 | bit(s.wake)<<16 | bit(s.excused)<<17 |
		uint64(s.left.enqueues)<<20 | uint64(s.left.later)<<24 | uint64(s.left.failures)<<28 | uint64(s.left.nacks)<<32 |
		uint64(s.left.stops)<<36 | uint64(s.left.deaths)<<40 | uint64(s.bad)<<44)
	return k.sum()
}

//go:norace
func (c *wakeConsumer) key() uint64 {
	flags := bit(c.more) | bit(c.claimable)<<1 | bit(c.again)<<2 | bit(c.owed)<<3 | bit(c.armed)<<4 | bit(c.took)<<5 |
		bit(c.passing)<<6 | bit(c.paused)<<7 | bit(c.stopping)<<8 | bit(c.gone)<<9
	return scatter(flags | uint64(c.free)<<10 | uint64(c.running)<<14 | uint64(c.pending)<<18 | uint64(c.back)<<22 | uint64(c.stage)<<26 |
		uint64(c.asked)<<28 | uint64(c.got)<<32 | uint64(c.ending)<<36 | uint64(c.endingBack)<<40 | uint64(c.next)<<44 |
		uint64(c.timer)<<46 | uint64(c.orphans)<<48)
}
