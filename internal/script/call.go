package script

import (
	"errors"
	"fmt"
	"time"
)

// A Call is one numbered call: what to run, and what came of it. Its fields are read after Do returned nil for it, or,
// where Do returned because its context ended, after its Resolve.
type Call struct {
	Op     string // for errors, as "enqueue"
	Script *Script
	Args   []any // what follows session and number

	// Records are whole keys of idempotency records that follow the script's fixed ones. They are checked before anything
	// is sent; what is refused ends with a [*RecordError].
	Records []string

	// Claim is set for a claim, which is never repeated under its number: after an unknown outcome a new number asks
	// for half as many. ClaimArgs then makes the arguments for the highest fence seen and the number of jobs to ask for.
	Claim     int
	ClaimArgs func(seen int64, n int) []any

	Rest    string    // the stored answer: the same when the call is repeated
	Reply   []any     // the whole answer; nil where only the stored one is known
	Err     error     // the true outcome where it is not an answer: refused, ErrNeverRan, ErrNeverKnown
	SentAt  time.Time // just before the try that was answered
	Session string    // the session and the number under which it ran: both are part of a lease's token
	Number  uint64
	Fences  int64 // claims: the highest fence that the answer gave out, set by Seen

	// Seen reads the highest fence out of a claim's answer.
	Seen func(reply []any) (highest int64)

	phase    phase
	sess     *session
	maybe    bool  // a try of the number under way may have run
	failure  error // the error reply to give if the number turns out never to have run
	asked    int
	counted  bool // among the waiting
	reopened int  // how often its session turned out to be gone
}

type phase int

const (
	opening phase = iota
	running
	sealing
	finished
)

func (c *Call) request(s *Sessions) *Request {
	if c.sess == nil {
		c.sess = s.borrow(c.Claim > 0)
		if c.sess == nil {
			c.phase = opening
			return s.openRequest()
		}
		c.start()
	}
	if c.phase == sealing && c.Claim == 0 {
		return &Request{Script: sealScript, Session: c.sess.name, Number: c.sess.number}
	}
	args := c.Args
	if c.Claim > 0 {
		c.asked = 0
		if c.phase == running {
			c.asked = min(c.Claim, s.claimCap())
		}
		args = c.ClaimArgs(c.sess.seen, c.asked)
	}
	return &Request{Script: c.Script, Session: c.sess.name, Number: c.sess.number, Args: args, Records: c.Records}
}

// start gives the call the next number of its session.
func (c *Call) start() {
	c.phase = running
	c.sess.number++
	c.maybe = false
}

func (c *Call) digest(s *Sessions, req *Request) {
	what, err := classify(req.Err)
	if s.OnRepeat != nil && (what == unknown || what == notExecuted) {
		s.OnRepeat(c.Op, err)
	}
	switch {
	case c.phase == opening:
		c.opened(req, what, err)
	case what == answered:
		c.took(s, req)
	case what == unknown:
		c.maybe = true
		if c.phase == running && c.Claim > 0 {
			s.claimEnded(c.asked, false)
			c.sess.number++ // the next number gives back what this one leased; it has not run yet
		}
	case what == refused && c.phase == running:
		switch {
		case c.maybe && c.Claim == 0:
			c.seal(s, err) // an earlier try may have run, or may run yet
		case c.maybe:
			s.sealAside(c)
			c.end(err)
		default:
			c.end(err)
		}
	}
}

func (c *Call) opened(req *Request, what outcome, err error) {
	if what == refused {
		c.end(err)
		return
	}
	if what != answered {
		return
	}
	name, ok := "", false
	if len(req.Reply) == 2 && req.Status() == "OK" {
		name, ok = req.Reply[1].(string)
	}
	if !ok || name == "" {
		c.end(&ReplyError{Script: req.Script.Name, Reply: req.Reply})
		return
	}
	c.sess = &session{name: name}
	c.start()
}

func (c *Call) took(s *Sessions, req *Request) {
	c.SentAt = req.SentAt
	switch status := req.Status(); {
	case status == "NOSESSION" && c.phase == running && !c.maybe:
		c.sess, c.phase = nil, opening // it did nothing: again in another session
		c.reopened++
	case status == "NOSESSION" || status == "STALE":
		c.sess = nil
		c.end(fmt.Errorf("%w: the session's record is gone", ErrNeverKnown))
	case c.phase == sealing:
		c.sealed(req)
	case status == "OK" || status == "AGAIN":
		c.ran(s, req, status == "OK")
	default:
		// A value that is no outcome: the script did nothing, and says why (as SHORT of a claim).
		c.Reply = req.Reply
		c.end(nil)
	}
}

func (c *Call) ran(s *Sessions, req *Request, first bool) {
	c.Session, c.Number = c.sess.name, c.sess.number
	if c.Claim > 0 {
		if !first { // the client repeated it by itself: what it leased was never seen
			s.claimEnded(c.asked, false)
			c.maybe = true // so a caller that leaves now leaves something to give back
			c.sess.number++
			return
		}
		s.claimEnded(c.asked, true)
		c.Fences = c.Seen(req.Reply)
		c.Reply = req.Reply
		c.end(nil)
		return
	}
	rest, ok := "", false
	if len(req.Reply) > 1 {
		rest, ok = req.Reply[1].(string)
	}
	if !ok {
		c.end(&ReplyError{Script: req.Script.Name, Reply: req.Reply})
		return
	}
	c.Rest = rest
	if first {
		c.Reply = req.Reply
	}
	c.end(nil)
}

func (c *Call) sealed(req *Request) {
	if c.Claim > 0 { // a claim of none ran: nothing that was leased unseen is left
		c.Reply = nil
		c.end(ErrNeverRan)
		return
	}
	what := ""
	if len(req.Reply) > 1 {
		what, _ = req.Reply[1].(string)
	}
	switch {
	case what == "n" && c.failure != nil:
		c.end(c.failure)
	case what == "n":
		c.end(ErrNeverRan)
	case len(what) > 0 && what[0] == 'r':
		c.Rest, c.Session, c.Number = what[1:], c.sess.name, c.sess.number-1
		c.end(nil)
	default:
		c.end(&ReplyError{Script: req.Script.Name, Reply: req.Reply})
	}
}

func (c *Call) end(err error) { c.phase, c.Err = finished, err }

// seal begins to make the outcome known: the next number, with no other effect.
func (c *Call) seal(s *Sessions, failure error) {
	if failure == nil && !c.counted {
		if !s.left() {
			c.sess = nil // abandoned: nobody may use this session again
			c.end(fmt.Errorf("%w: %d calls wait already", ErrNeverKnown, MaxWaiting))
			return
		}
		c.counted = true
	}
	c.phase, c.failure = sealing, failure
	c.sess.number++
}

// leave is what the end of the caller's context means for each call.
func (s *Sessions) leave(calls []*Call, cause error) {
	for _, c := range calls {
		switch {
		case c.phase == opening || c.phase == running && !c.maybe:
			c.end(fmt.Errorf("%w: %w", ErrNeverRan, cause))
		case c.phase == running:
			c.seal(s, nil)
		}
	}
}

// abandon ends the calls whose outcome nobody will wait for: the queue was closed.
func (s *Sessions) abandon(calls []*Call) {
	for _, c := range calls {
		if c.phase != finished {
			c.sess = nil
			c.end(fmt.Errorf("%w: the queue was closed", ErrNeverKnown))
		}
	}
}

// release gives the session back and notes what a claim's caller has now seen.
func (c *Call) release(s *Sessions) {
	if c.counted {
		s.settled()
		c.counted = false
	}
	if c.sess == nil {
		return
	}
	if _, odd := errors.AsType[*ReplyError](c.Err); odd {
		return // a server that answers so is not to be trusted with this session
	}
	if c.Claim > 0 && c.Err == nil {
		c.sess.seen = max(c.sess.seen, c.Fences)
	}
	s.giveBack(c.sess, c.Claim > 0)
	c.sess = nil
}
