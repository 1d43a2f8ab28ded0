package model

// The bounds of Calls that its states have room for.
const (
	callJobs    = 2
	callClients = 2
	callLanes   = 3 // of each client
	callNames   = 3 // sessions that a lane may have had
	callFences  = 11
	callNet     = 7 // requests that were sent and not run
)

// A Safeguard is a rule of the protocol that Calls can do without, to see what it is good for.
type Safeguard uint32

// The safeguards of numbered calls.
const (
	// SmallerNumbers: a number smaller than the session's last does nothing.
	SmallerNumbers Safeguard = 1 << iota
	// OwnClaimSessions: claims have sessions of their own.
	OwnClaimSessions
	// SessionTokens: a token names the session and the number of its claim. Without: the process.
	SessionTokens
	// OpenedSessions: a session is made by open. Without: by its first call, whoever sends it.
	OpenedSessions
	// NoSession: a call whose session has no record does nothing. Without: it begins the record anew.
	NoSession
	// Seals: a call without an answer is sealed. Without: the client only asks what became of it.
	Seals
	// SettleTokens: a settle compares the token. Without: the ID alone.
	SettleTokens
	// Numbers: calls have numbers at all. Without: each that arrives runs.
	Numbers
	// NewClaimNumbers: a claim without an answer is sent again under a new number. Without: under its own, and the
	// stored answer is taken for one.
	NewClaimNumbers
	// GiveBack: a claim gives back what its session leased and nobody saw.
	GiveBack
	// SealsOfClaims: a claim whose caller left is sealed, though it was answered.
	SealsOfClaims
	// SealsOfRefusals: a refused call of which an earlier try may have run is sealed.
	SealsOfRefusals
	// CancelMarks: whatever ends the lease of a cancelled job removes the job.
	CancelMarks
)

// CallsOptions bound a search of Calls. All that is counted here is counted over the whole run.
type CallsOptions struct {
	Lanes    string // of each client, up to three of: c claims, o other calls
	Batch    int    // jobs that a claim asks for, 1 or 2
	Waiting  int    // jobs that are due at the start, 0 to 2; the others are nowhere
	Claims   int    // calls of each client
	Others   int    // settles and enqueues of each client
	Creates  bool   // enqueues too
	Buries   bool   // settles may put a job back, too
	Unknown  int    // tries without an answer: the reply is lost, or the request runs later, or never
	Repeats  int    // tries that the client library repeats by itself
	Leavers  int    // callers whose context ends before the answer
	Refusals int    // tries that the server refuses (out of memory)
	Crashes  int    // processes that end and begin anew
	Trims    int    // sessions that are forgotten, at any moment
	Expiries int    // leases that run out, at any moment
	Cancels  int    // jobs that are cancelled
	Clients  int    // 1 or 2; default 2
	Dropped  Safeguard
}

// Calls is the model of numbered calls: whatever the network does to them, leases and answers stay true.
type Calls struct {
	o     CallsOptions
	kinds [callLanes]byte
	to    CallsState // the state that the step under way leads to
}

// NewCalls makes the system.
func NewCalls(o CallsOptions) *Calls {
	m := &Calls{o: o}
	if m.o.Clients == 0 {
		m.o.Clients = callClients
	}
	copy(m.kinds[:], o.Lanes)
	return m
}

// from begins a step: one at a time.
//
//go:norace
func (m *Calls) from(s *CallsState) *CallsState {
	m.to = *s
	return &m.to
}

func (m *Calls) has(s Safeguard) bool { return m.o.Dropped&s == 0 }

// Places and what a call may do.
const (
	nowhere = iota
	due
	processing
)

const (
	opNone = iota
	opClaim
	opAck
	opBack // nack or release: to due again
	opEnqueue
	opSeal
)

// Statuses of answers.
const (
	noReply = iota
	replyOK
	replyAgain
	replyStale
	replyNoSession
	replyRefused
)

// What became of a call, as stored and as told.
const (
	wasNothing = iota
	wasDone
	wasRefused // lost, gone or duplicate
	wasCancelled
	wasNeverRun
)

// Phases of a lane.
const (
	idle = iota
	running
	sealing
)

type callJob struct {
	place, fence uint8
	marked       bool // cancelled while in processing
	dropped      bool // ghost: somebody cancelled this job
}

// callLease is what a token says. The fence is its index.
type callLease struct {
	job, lane, name uint8
	seen            bool // handed to a caller
	back            bool // given back as unseen
}

// callLane is one numbered stream of calls of a client, and the call that is under way in it.
type callLane struct {
	name, names uint8 // of its session, 0 none; how many it has had
	count       uint8 // the highest number that the session was given
	number      uint8 // of the call under way
	seen        uint8 // the highest fence that was handed to a caller
	phase       uint8
	maybe, left bool
	op          uint8
	job, fence  uint8
	call        uint8 // which call this is, to tell late tries of earlier ones
	ran         uint8 // ghost: what the call really did
	status      uint8 // the reply that waits to be received
	first, n    uint8
	code        uint8
}

// callRecord is what the server keeps of a session.
type callRecord struct {
	alive    bool
	ever     bool
	last     uint8
	first, n uint8 // of a claim's answer
	code     uint8
	sealed   bool // the last call was a seal
}

type callRequest struct {
	lane, name, number uint8
	op, job, fence     uint8
	seen, n            uint8
	call               uint8 // 0: of a process that is no more
	awaited            bool  // somebody waits for the answer of this very try
}

type callsLeft struct {
	claims, others                                                         [callClients]uint8
	unknown, repeats, leavers, refusals, crashes, trims, expiries, cancels uint8
}

// CallsState is one state.
type CallsState struct {
	jobs    [callJobs]callJob
	leases  [callFences + 1]callLease
	fences  uint8 // given so far
	lanes   [callClients * callLanes]callLane
	records [callClients * callLanes][callNames + 1]callRecord
	held    [callClients]uint16 // fences that callers hold, as bits
	net     [callNet]callRequest
	sent    uint8
	left    callsLeft
	bad     uint8
}

// Start has the first jobs due and everybody idle.
func (m *Calls) Start() CallsState {
	var s CallsState
	for j := range m.o.Waiting {
		s.jobs[j].place = due
	}
	for c := range m.o.Clients {
		s.left.claims[c], s.left.others[c] = uint8(m.o.Claims), uint8(m.o.Others)
	}
	l := &s.left
	l.unknown, l.repeats, l.leavers, l.refusals = uint8(m.o.Unknown), uint8(m.o.Repeats), uint8(m.o.Leavers), uint8(m.o.Refusals)
	l.crashes, l.trims, l.expiries, l.cancels = uint8(m.o.Crashes), uint8(m.o.Trims), uint8(m.o.Expiries), uint8(m.o.Cancels)
	return s
}

// slot is the lane whose session a lane uses.
func (m *Calls) slot(lane uint8) uint8 {
	if m.has(OwnClaimSessions) {
		return lane
	}
	return lane - lane%callLanes
}

func clientOf(lane uint8) int { return int(lane / callLanes) }

// Violations.
const (
	sound = iota
	badSettle
	badBack
	badHandOver
	badAnswer
	badTwice
	badLate
	badForgotten
	badNobody
	badCancelled
	badOver
	badRoom
)

var callsBroken = [...]string{
	badSettle:    "a settle ended a lease that is not its caller's (invariant 3)",
	badBack:      "a live lease was given back as if nobody had seen it (invariant 5)",
	badHandOver:  "a caller was handed a lease that had been given back (invariant 5)",
	badAnswer:    "a caller was told something else than what its call did (invariant 11)",
	badTwice:     "one call ran twice (invariant 11)",
	badLate:      "a call ran after its caller was told the outcome (invariants 10 and 11)",
	badForgotten: "an outcome can never be known though the session was never forgotten (invariant 11)",
	badNobody:    "a claim has ended, and nobody holds a lease that it took",
	badCancelled: "a job was claimed or put back though it was cancelled",
	badOver:      "an answer hands out a lease that was over already (invariant 5)",
	badRoom:      "the model has no room for this",
}

// Broken names the invariant that a step to this state broke.
func (m *Calls) Broken(s *CallsState) string { return callsBroken[s.bad] }
