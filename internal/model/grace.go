package model

// Time in Grace is counted in ticks, of which a lease has twelve.
const (
	lease      = 12
	beatEvery  = lease / 3
	sweepEvery = lease / 4
	gapLimit   = lease / 2 // a longer gap between sweeps begins a grace
	rowLimit   = 3         // so many graces may come in a row

	companyAfter = lease / 6 // an extend that has no answer for so long gets company
	far          = 3 * lease // times farther away than this are as far as this

	graceHolders = 2
)

// GraceRule is a rule of keeper, sweeper or expire that Grace can do without.
type GraceRule uint16

// The rules.
const (
	// Spares: a gap between sweeps begins a grace.
	Spares GraceRule = 1 << iota
	// RowBound: there are three graces in a row at most.
	RowBound
	// CutGraces: a grace is never longer than one lease from now.
	CutGraces
	// JudgedByScript: expire itself looks for the gap, when it runs. Without: the sweeper does, when it sends.
	JudgedByScript
	// HalfLease: half a lease between sweeps is a gap. Without: only a whole one is.
	HalfLease
	// ExpiryCompared: expire takes only what has run out.
	ExpiryCompared
	// DeadlineFromSend: a holder's deadline counts from before the try that was answered. Without: from the answer.
	DeadlineFromSend
	// BeatsEvenly: the keeper extends every third of a lease. Without: every five sixths.
	BeatsEvenly
	// ShortSleeps: a sweeper sleeps for a quarter of a lease at most. Without: until the next expiry it knows of.
	ShortSleeps
	// VerdictsSent: a holder whose deadline has passed still sends its verdict.
	VerdictsSent
	// Company: an extend without an answer does not hold up the next one.
	Company
	// MarksSweeps: a sweep in a grace is noted as one, too.
	MarksSweeps
)

// Ways in which sweeps come.
const (
	OnTime = iota // as a Sweeper makes them
	Late          // each more than half a lease, and up to two leases, after the one before
	Cron          // a pass every two leases, which calls until an answer tells of no grace
)

// GraceOptions bound a search of Grace.
type GraceOptions struct {
	Sweeps  int   // OnTime, Late or Cron
	Stops   int   // of the server, each for up to Longest ticks
	Longest int   // ticks
	Steps   []int // of the server's clock, in ticks: each happens once at most, at any moment
	Deaths  int   // holders that die
	Cuts    int   // holders that lose their network, for any time
	Claims  int   // beside the two leases of the start
	Delays  int   // answers to extends that take any time
	Horizon int   // ticks that are looked at
	Gap     int   // Late: the shortest time between two sweeps; default a tick more than half a lease
	Dropped GraceRule
}

// Grace is the timed model: what becomes of leases when Redis, its clock, sweepers or holders stop, step, are late or die.
type Grace struct {
	o  GraceOptions
	to GraceState
}

// NewGrace makes the system.
func NewGrace(o GraceOptions) *Grace {
	if o.Gap == 0 {
		o.Gap = gapLimit + 1
	}
	return &Grace{o: o}
}

func (m *Grace) has(r GraceRule) bool { return m.o.Dropped&r == 0 }

// Phases of a holder.
const (
	away    = iota // holds nothing
	working        // within its deadline
	overdue        // its deadline has passed; its verdict is to be sent
	dead
)

type graceHolder struct {
	phase   uint8
	leased  bool // as Redis has it
	cut     bool // from the network
	lapsed  bool // was cut off, and has had no answer since
	left    int8 // until the stored expiry, on the server's clock
	age     int8 // since the last answered extend was sent
	waiting int8 // 1 + the age of an extend in the socket of a stopped server; 0 none
	verdict bool // in that socket
	reply   int8 // 1 + the age of the extend whose answer is under way; 0 none
	over    int8 // how long it is past its expiry although nothing disturbs, where the holder is dead
	passes  int8 // how many sweeps did not take it
}

// GraceState is one state. All times are relative to the server's now.
type GraceState struct {
	holders [graceHolders]graceHolder
	down    int8 // 1 + ticks that the server has been stopped for; 0: it runs
	swept   int8 // since the last sweep
	grace   int8 // left
	row     uint8
	next    int8  // until the sweeper has to call
	sweeps  uint8 // calls of expire in the socket of a stopped server
	judged  bool  // variant: the sweeper found a gap when it sent them
	spared  bool  // the last answer told of a grace
	gaps    uint8 // disturbances since leases could last be taken
	stepped uint8 // which steps of the clock have happened, as bits
	shaken  bool  // a step happened, and since then no grace has ended
	stops   uint8
	deaths  uint8
	cuts    uint8
	claims  uint8
	delays  uint8
	time    uint8
	bad     uint8
}

// What can break.
const (
	_ = iota
	badEarly
	badTaken
	badWorking
	badSlow
	badNever
)

var graceBroken = [...]string{
	0:          "",
	badEarly:   "a lease was taken before its stored expiry (invariant 5)",
	badTaken:   "a lease was taken although its holder lives and was only kept from extending it by an outage",
	badWorking: "a lease was taken before its holder's local deadline",
	badSlow:    "the lease of a dead holder was not taken in time (invariant 9)",
	badNever:   "late sweeps did not take the lease of a dead holder",
}

// Start has two holders with fresh leases, and a sweep just made.
func (m *Grace) Start() GraceState {
	s := GraceState{
		next: sweepEvery, stops: uint8(m.o.Stops), deaths: uint8(m.o.Deaths), cuts: uint8(m.o.Cuts), claims: uint8(m.o.Claims), delays: uint8(m.o.Delays),
	}
	if m.o.Sweeps != OnTime {
		s.next = 2 * lease
	}
	s.holders[0] = graceHolder{phase: working, leased: true, left: lease}
	if m.o.Claims == 0 {
		s.holders[1] = s.holders[0]
	}
	return s
}

// Broken names what a step to this state broke.
func (m *Grace) Broken(s *GraceState) string { return graceBroken[s.bad] }

// Key folds a state into 64 bits; the two holders may change places.
//
//go:norace
func (m *Grace) Key(s *GraceState) uint64 {
	a, b := s.holders[0].key(), s.holders[1].key()
	var k mixer
	k.add(min(a, b))
	k.add(max(a, b))
	k.add(uint64(uint8(s.down)) | uint64(uint8(s.swept))<<8 | uint64(uint8(s.grace))<<16 | uint64(s.row)<<24 |
		uint64(uint8(s.next))<<32 | uint64(s.sweeps)<<40 | bit(s.judged)<<44 | bit(s.spared)<<45 | uint64(s.gaps)<<48 | bit(s.shaken)<<56)
	k.add(uint64(s.stepped) | uint64(s.stops)<<8 | uint64(s.deaths)<<16 | uint64(s.cuts)<<24 | uint64(s.claims)<<32 |
		uint64(s.time)<<40 | uint64(s.bad)<<48 | uint64(s.delays)<<56)
	return k.sum()
}

//go:norace
func (h *graceHolder) key() uint64 {
	var k mixer
	k.add(uint64(h.phase) | bit(h.leased)<<4 | bit(h.cut)<<5 | bit(h.verdict)<<6 | bit(h.lapsed)<<7 | uint64(uint8(h.left))<<8 |
		uint64(uint8(h.age))<<16 | uint64(uint8(h.waiting))<<24 | uint64(uint8(h.over))<<32 | uint64(uint8(h.passes))<<40 | uint64(uint8(h.reply))<<48)
	return k.sum()
}
