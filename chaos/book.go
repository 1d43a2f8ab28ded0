package chaos

import (
	"github.com/leaseq/leaseq/chaos/record"
)

// A book is what a check keeps of a history: a little for each lease, and nothing for each event.
type book struct {
	opts   CheckOptions
	final  *Snapshot
	report *Report
	// The results of report by name.
	results map[string]*Result

	procs     []*process
	jobs      map[string]*job
	order     []*job
	fences    map[int64]bool
	faults    []*fault
	windows   []window // of faults, sorted by when they began
	reach     []int64  // of each window: the latest end of it and those before
	ofProcess map[string][]*window
	steps     []step
	graces    []grace
	pardons   []pardon // in their order
	lease     int64    // µs; 0: not known
	disturbed bool     // something in the run can make claims that no process knows of
}

// A process is one Log.
type process struct {
	number   int
	name     string
	wall     int64 // µs since 1970 when its times began
	slots    int
	noExtend bool
	closed   bool
	last     int64 // its last event's time
	first    int64 // its first handler's start; 0: there was none
	pauses   []span
	marks    []mark
	bounds   []bounds // of each epoch
	pending  map[int64]pending
}

// A span of time.
type span struct{ from, to int64 }

// A mark is one reading of the server's clock.
type mark struct{ before, after, server int64 }

// pending is where the answer of a call belongs.
type pending struct {
	job  *job
	call int // in its calls
}

// A job is all that the history says of one ID.
type job struct {
	id      string
	leases  []held
	calls   []call
	flagged bool // a violation was found: what follows from it is not counted as another
	forgets bool // one of its answers lay in a window in which Redis forgets
}

// A call is an operation on a job.
type call struct {
	op       string
	out      string // "": it has no answer
	proc     *process
	at       int64
	answered int64
	delay    int64
}

// mayHaveRun reports whether the call did or could have done what it asks for.
func (c *call) mayHaveRun() bool { return c.out == record.OutOK || c.unknown() }

func (c *call) unknown() bool { return c.out == "" || c.out == record.OutUnknown }

// A held is one lease.
type held struct {
	proc                         *process
	fence                        int64
	failures, expiries, redrives int
	attempt                      int
	due                          int64 // ms
	enqueued                     int64 // µs
	wait                         int64
	claimed                      bool // the fields above are known

	started  bool
	at       int64 // when it was first heard of
	ended    int64 // when the context ended, while the handler ran; 0: it did not
	cause    string
	returned int64 // when the handler returned, or a settle by hand was sent; 0: neither
	result   string
	first    int64 // the local deadline at the start
	deadline int64 // as known when the context ended, or the handler returned
	settled  int64 // when the settle was answered; 0: it was not
	out      string
	delay    int64
	accepted int // settles that were answered as done
}

func (b *book) job(id string) *job {
	j, ok := b.jobs[id]
	if !ok {
		j = &job{id: id}
		b.jobs[id] = j
		b.order = append(b.order, j)
	}
	return j
}

// lease finds a lease of a job, or begins one.
func (j *job) lease(p *process, fence int64, at int64) *held {
	for i := len(j.leases) - 1; i >= 0; i-- {
		if l := &j.leases[i]; l.fence == fence && l.proc == p {
			return l
		}
	}
	j.leases = append(j.leases, held{proc: p, fence: fence, at: at})
	return &j.leases[len(j.leases)-1]
}

// take takes in one event.
func (b *book) take(p *process, e *record.Event) {
	p.last = max(p.last, e.At, e.Until)
	switch e.Kind {
	case record.Opened:
		p.name, p.wall, p.slots, p.noExtend = e.Process, e.Wall, e.Slots, e.NoExtend
		b.lease = max(b.lease, e.Lease*1000)
	case record.Closed:
		p.closed = true
	case record.Called:
		b.called(p, e)
	case record.Answered:
		b.answered(p, e)
	case record.Started, record.Returned, record.Ended, record.Settled:
		b.ofLease(p, e)
	case record.Paused:
		p.pauses = append(p.pauses, span{e.At, e.Until})
		b.report.Cases["process stood still"]++
		b.disturbed = true
	case record.Clocked:
		p.marks = append(p.marks, mark{e.At, e.Until, e.Server})
	case record.Swept:
		if e.Grace > 0 {
			b.report.Cases["sweep with a grace"]++
			b.graces = append(b.graces, grace{proc: p, at: e.At, left: e.Grace * 1000})
		}
	case record.Faulted:
		b.faulted(p, e)
	default:
		b.violation(CheckHistory, nil, "process %s wrote a line of the unknown kind %q", p.name, e.Kind)
	}
}

func (b *book) called(p *process, e *record.Event) {
	j := b.job(e.ID)
	j.calls = append(j.calls, call{op: e.Op, proc: p, at: e.At, delay: e.Delay})
	if _, twice := p.pending[e.Call]; twice {
		b.violation(CheckHistory, j, "process %s used the number %d for two calls", p.name, e.Call)
	}
	p.pending[e.Call] = pending{job: j, call: len(j.calls) - 1}
}

func (b *book) answered(p *process, e *record.Event) {
	where, ok := p.pending[e.Call]
	b.looked(CheckHistory)
	if !ok {
		b.violation(CheckHistory, nil, "process %s has an answer to call %d, which it did not send, or which was answered", p.name, e.Call)
		return
	}
	c := &where.job.calls[where.call]
	if c.out == record.OutUnknown {
		b.report.Cases["outcome resolved"]++
	}
	c.out, c.answered = e.Out, e.At
	if e.Out != record.OutUnknown {
		delete(p.pending, e.Call)
		return
	}
	if c.op == record.OpEnqueue {
		b.report.Cases["enqueue unknown"]++
	}
}

// ofLease takes in an event of a lease.
func (b *book) ofLease(p *process, e *record.Event) {
	j := b.job(e.ID)
	l := j.lease(p, e.Fence, e.At)
	b.looked(CheckHistory)
	if e.Attempt != 0 {
		l.failures, l.expiries, l.redrives, l.attempt = e.Failures, e.Expiries, e.Redrives, e.Attempt
		l.due, l.enqueued, l.claimed = e.Due, e.Enqueued, true
	}
	switch e.Kind {
	case record.Started:
		b.report.Cases["start"]++
		b.looked(CheckFences)
		if b.fences[e.Fence] {
			b.violation(CheckFences, j, "the fence %d was given twice", e.Fence)
		}
		b.fences[e.Fence] = true
		l.started, l.at, l.wait = true, e.At, e.Wait
		if p.first == 0 {
			p.first = e.At
		}
		l.first, l.deadline = e.Deadline, e.Deadline
	case record.Ended:
		l.ended, l.cause, l.deadline = e.At, e.Out, e.Deadline
		b.report.Cases["context ended: "+e.Out]++
	case record.Returned:
		if !l.started {
			b.violation(CheckHistory, j, "a handler returned that was not started, fence %d", e.Fence)
		}
		if l.returned != 0 && l.result != record.OutSending {
			b.violation(CheckHistory, j, "a handler returned twice, fence %d", e.Fence)
		}
		if e.Out == record.OutPanic {
			b.report.Cases["handler panicked"]++
		}
		if l.returned == 0 && l.settled == 0 { // else it was settled over its head, at the end of the process
			l.returned, l.result = e.At, e.Out
		}
		if l.ended == 0 {
			l.deadline = e.Deadline
		}
	case record.Settled:
		b.settled(j, l, e)
	}
}

func (b *book) settled(j *job, l *held, e *record.Event) {
	if e.Out == record.OutSending {
		if l.returned == 0 {
			l.returned, l.result = e.At, record.OutSending
		}
		return
	}
	b.report.Cases["settle "+e.Out]++
	if accepted(e.Out) {
		b.looked(CheckSettles)
		if l.accepted++; l.accepted > 1 {
			b.violation(CheckSettles, j, "two settles of the lease %d were accepted: %s, and %s", e.Fence, l.out, e.Out)
		}
	}
	if !accepted(l.out) || accepted(e.Out) { // a settle by hand that is refused changes nothing of the one before
		l.settled, l.out, l.delay = e.At, e.Out, e.Delay
	}
	if (e.Out == record.OutAcked || e.Out == record.OutRetried) && !l.started {
		b.violation(CheckHistory, j, "a lease was settled as %s without a start, fence %d", e.Out, e.Fence)
	}
}

// accepted reports whether a settle did what it asked for.
func accepted(out string) bool {
	switch out {
	case record.OutAcked, record.OutRetried, record.OutReleased, record.OutDead, record.OutCancelled:
		return true
	}
	return false
}
