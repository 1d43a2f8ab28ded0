package record

// Version is that of the format that this package writes. A reader refuses others.
const Version = 1

// A Kind says what a line is about.
type Kind string

// The kinds of lines.
const (
	Opened   Kind = "open"   // the first line: Version, Process, Queue, Wall, Lease, Slots, NoExtend
	Closed   Kind = "close"  // the last line of a process that ended in order
	Called   Kind = "call"   // an operation is about to be sent: Call, Op, ID, Delay
	Answered Kind = "answer" // what it was told: Call, Out, Place
	Started  Kind = "start"  // a handler is about to be called: the fields of a claim
	Returned Kind = "end"    // it has returned: ID, Fence, Out, Deadline
	Ended    Kind = "ended"  // its context ended before it returned: ID, Fence, Out (the cause), Deadline
	Settled  Kind = "settle" // what became of the lease: ID, Fence, Out, Delay; the fields of a claim unless acked or retried
	Paused   Kind = "pause"  // the process stood still from At until Until
	Swept    Kind = "sweep"  // a sweeper's call was answered: Expired, Died, Removed, Grace
	Clocked  Kind = "clock"  // the server's clock said Server at a moment between At and Until
	Faulted  Kind = "fault"  // a fault begins, bites or ends: Call (its number), Out, Name, Target, Effects
)

// The operations of a call.
const (
	OpEnqueue = "enqueue"
	OpCancel  = "cancel"
	OpRedrive = "redrive"
	OpPurge   = "purge"
)

// Outs of an answer.
const (
	OutOK        = "ok"        // it ran and did what was asked
	OutDuplicate = "duplicate" // an enqueue: the ID has a job already, in Place
	OutRefused   = "refused"   // it did nothing and never will
	OutUnknown   = "unknown"   // it may have run; also of a settle
)

// Outs of a handler's end.
const (
	OutNil   = "nil"
	OutError = "error"
	OutPanic = "panic" // or runtime.Goexit
)

// Outs of a settle. OutUnknown is one too; nothing else ended the lease in these cases.
const (
	OutAcked     = "acked"
	OutRetried   = "retried" // nacked, and due again after Delay
	OutReleased  = "released"
	OutDead      = "dead" // buried, or nacked once too often
	OutCancelled = "cancelled"
	OutLost      = "lost" // refused: the job is under another lease, or in another place
	OutGone      = "gone" // refused: there is no such job
	OutSending   = "sending"
)

// Causes of a context's end. OutLost and OutCancelled are two more.
const (
	CauseTimeout  = "timeout"
	CauseShutdown = "shutdown"
	CauseOther    = "other"
)

// Outs of a fault. It begins before it can have any effect, bites once it has its effect for sure (the process is stopped,
// the link is cut), and ends when it has none any more; of Dies that is when the process is gone. FaultBites is optional.
const (
	FaultBegin = "begin"
	FaultBites = "bites"
	FaultEnd   = "end"
)

// What a fault can do, while it lasts. A fault has one Effect or more.
const (
	Dies    = "dies"    // Target, a process, ended without notice
	Freezes = "freezes" // Target stood still, or is too slow to keep its times
	Cut     = "cut"     // nothing got through from Target to Redis
	Lossy   = "lossy"   // Target's replies were lost or late
	Outage  = "outage"  // Redis answered nobody, or no sweeper ran
	Steps   = "steps"   // the server's clock was moved, by Delay (negative: back)
	Skews   = "skews"   // Target's wall clock is wrong by Delay from its start on, and may jump
	Loses   = "loses"   // what was answered meanwhile may be forgotten, as after a failover or a loss of power
)

// An Event is one line. Fields that do not apply are zero.
type Event struct {
	Kind  Kind  `json:"k"`
	At    int64 `json:"t"`           // µs since the file was opened
	Until int64 `json:"u,omitempty"` // µs since the file was opened

	ID    string `json:"id,omitempty"`
	Fence int64  `json:"f,omitempty"`
	Call  int64  `json:"n,omitempty"` // the number of a call, or of a fault
	Op    string `json:"op,omitempty"`
	Out   string `json:"o,omitempty"`
	Place string `json:"pl,omitempty"` // where the job is instead

	// Of a claim.
	Attempt  int   `json:"a,omitempty"`
	Failures int   `json:"nf,omitempty"`
	Expiries int   `json:"ne,omitempty"`
	Redrives int   `json:"nr,omitempty"`
	Due      int64 `json:"due,omitempty"` // ms, the server's clock
	Enqueued int64 `json:"enq,omitempty"` // µs, the producer's wall clock: tells jobs of one ID apart
	Wait     int64 `json:"w,omitempty"`   // µs from when it was due to the handler's start, as the Consumer reckons
	Deadline int64 `json:"dl,omitempty"`  // µs since the file was opened: the lease's local deadline as known at this moment

	Delay  int64 `json:"d,omitempty"` // µs: of an enqueue (-1: it named a time), a retry, a release; of a step of the clock
	Server int64 `json:"s,omitempty"` // µs, the server's clock

	// Of a sweep.
	Expired int   `json:"exp,omitempty"` // leases put back to due or dead
	Died    int   `json:"die,omitempty"` // of them, to dead
	Removed int   `json:"rem,omitempty"` // jobs that had been cancelled
	Grace   int64 `json:"gr,omitempty"`  // ms for which holders are still spared

	// Of a fault.
	Name    string   `json:"name,omitempty"`
	Target  string   `json:"to,omitempty"` // a process' name; empty: all of them
	Effects []string `json:"fx,omitempty"`

	// Of the first line.
	Version  int    `json:"v,omitempty"`
	Process  string `json:"p,omitempty"`
	Queue    string `json:"q,omitempty"`
	Wall     int64  `json:"wall,omitempty"` // µs since 1970 by the process' wall clock when the file was opened
	Lease    int64  `json:"lease_ms,omitempty"`
	Slots    int    `json:"slots,omitempty"`
	NoExtend bool   `json:"no_extend,omitempty"`
}
