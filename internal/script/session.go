package script

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// MaxWaiting is how many calls whose callers left may wait for their outcome at a time, in one process and partition;
// what exceeds it is abandoned, and answers ErrNeverKnown.
const MaxWaiting = 256

// ErrClosed is returned by calls on a queue that was closed.
var ErrClosed = errors.New("the queue is closed")

// A session is one numbered stream of calls, of which one at most is under way.
type session struct {
	name   string
	number uint64
	seen   int64 // claims only: the highest fence that was handed to a caller
}

// Sessions lends sessions of one partition to the calls of one process.
type Sessions struct {
	// OnRepeat, if set before the first call, is told of each try that had no answer and is repeated, under another number
	// or in another way; by several goroutines at once.
	OnRepeat func(op string, err error)

	runner *Runner
	holder string
	random string // 128 bits that tell this process from all others

	mu      sync.Mutex
	free    []*session // for settles, enqueues and all the others
	claims  []*session // claims have their own, since a claim's stored answer must not be covered
	waiting int        // calls whose caller left
	cap     int        // how many jobs the next claim may ask for; halved after an unknown outcome
	closed  bool
	running sync.WaitGroup // calls
	trying  lanes          // of their tries, also those that are not waited for any more

	lastTrip atomic.Int64    // how long the last answered try took, in ns
	ctx      context.Context // ends when Close gives up waiting
	end      context.CancelFunc
}

// NewSessions does no I/O. holder is the readable name that is kept with each session.
func NewSessions(runner *Runner, holder string) *Sessions {
	// Twice as many as uniqueness asks for: with less than 64 bytes a token would be kept in a list that Redis searches from
	// its head, and a process that holds a hundred jobs would pay for a hundred looks at each.
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	ctx, end := context.WithCancel(context.Background())
	return &Sessions{runner: runner, holder: holder, random: hex.EncodeToString(random[:]), cap: maxClaim, ctx: ctx, end: end}
}

// Close waits until every call under way has its outcome, then closes the sessions in Redis. When ctx ends first, what
// still waits answers ErrNeverKnown, leases of claims that nobody saw run out by themselves, sessions are trimmed by a
// sweeper after an hour, and ctx's error is returned; not before a try that is on the wire has ended, for which the
// client's own timeouts are the bound.
func (s *Sessions) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		s.running.Wait()
		close(idle)
	}()
	var err error
	select {
	case <-idle:
		err = s.forget(ctx)
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.end()
	<-idle
	s.trying.close()
	return errors.Join(err, s.runner.Close())
}

// forget closes the free sessions in Redis. One try is enough: a session that stays is trimmed later.
func (s *Sessions) forget(ctx context.Context) error {
	s.mu.Lock()
	all := append(s.free, s.claims...)
	s.free, s.claims = nil, nil
	s.mu.Unlock()
	for len(all) > 0 {
		n := min(len(all), 1000)
		names := make([]any, n)
		for i, one := range all[:n] {
			names[i] = one.name
		}
		all = all[n:]
		req := &Request{Script: closeScript, Args: names}
		if err := s.runner.Repeat(ctx, req); err != nil {
			return errors.Join(ctx.Err(), err)
		}
	}
	return nil
}

// begin registers one call, or refuses it where the queue is closed.
func (s *Sessions) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.running.Add(1)
	return nil
}

func (s *Sessions) borrow(claim bool) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := &s.free
	if claim {
		list = &s.claims
	}
	n := len(*list)
	if n == 0 {
		return nil
	}
	one := (*list)[n-1]
	*list = (*list)[:n-1]
	return one
}

func (s *Sessions) giveBack(one *session, claim bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if claim {
		s.claims = append(s.claims, one)
	} else {
		s.free = append(s.free, one)
	}
}

func (s *Sessions) openRequest() *Request {
	return &Request{Script: openScript, Args: []any{s.random, s.holder}}
}

// left counts a call whose caller left; false means that too many wait already.
func (s *Sessions) left() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting >= MaxWaiting {
		return false
	}
	s.waiting++
	return true
}

func (s *Sessions) settled() {
	s.mu.Lock()
	s.waiting--
	s.mu.Unlock()
}

// Waiting is how many calls whose callers left still wait for their outcome.
func (s *Sessions) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting
}

const maxClaim = 1000

// claimCap is how many jobs a claim may ask for now.
func (s *Sessions) claimCap() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cap
}

// claimEnded adapts the cap: halved after an unknown outcome of a claim of n, doubled after each success.
func (s *Sessions) claimEnded(n int, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known {
		s.cap = min(2*s.cap, maxClaim)
	} else {
		s.cap = max(n/2, 1)
	}
}

// Trim forgets sessions that no call has used for the given time, a page of them at each call; it returns the cursor
// for the next page, "0" after the last.
func (s *Sessions) Trim(ctx context.Context, cursor string, unused time.Duration) (next string, removed int64, err error) {
	req := &Request{Script: trimScript, Args: []any{cursor, unused.Milliseconds(), 100}}
	if err := s.runner.Repeat(ctx, req); err != nil {
		return cursor, 0, err
	}
	if len(req.Reply) == 3 && req.Status() == "OK" {
		next, isText := req.Reply[1].(string)
		removed, isNumber := req.Reply[2].(int64)
		if isText && isNumber {
			return next, removed, nil
		}
	}
	return cursor, 0, &ReplyError{Script: "trim", Reply: req.Reply}
}
