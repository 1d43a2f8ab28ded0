package script

import (
	"context"
	"slices"
)

// A flight takes calls from their first try to their outcomes: at first in its caller, and in the background if that
// leaves. One goroutine has it at a time, so that handing a result over and sealing it exclude each other.
type flight struct {
	s        *Sessions
	calls    []*Call
	attempts *attempts
	open     []*Call         // whose requests are under way
	lost     context.Context // ends when nobody waits for any answer any more
	cut      context.CancelFunc
	done     chan struct{} // closed when every call has its outcome, once the caller has left
}

// Do runs the calls in one round trip, each in a session of its own, and repeats those that have no answer until all
// have one. When ctx ends first it returns an [*UnknownError]; the calls are then sealed in the background, after which
// each has its true outcome (Resolve waits for that). A nil error says that all calls have ended: each has an answer or
// its own Err, which is an [*UnknownError] too where it can never be known whether the call ran, or where it never did
// because ctx had ended.
func (s *Sessions) Do(ctx context.Context, calls ...*Call) error {
	if err := s.begin(); err != nil {
		return err
	}
	f := s.newFlight(ctx, calls)
	if f.fly(ctx) {
		f.handOver(ctx)
		s.running.Done()
		return nil
	}
	f.done = make(chan struct{})
	go func() {
		defer s.running.Done()
		defer close(f.done)
		f.finish(ctx.Err())
	}()
	return NewUnknownError(calls[0].Op, ctx.Err(), func(ctx context.Context) error {
		select {
		case <-f.done:
			return calls[0].Err
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

func (s *Sessions) newFlight(ctx context.Context, calls []*Call) *flight {
	f := &flight{s: s, calls: calls, attempts: newAttempts(s)}
	f.lost, f.cut = context.WithCancel(context.WithoutCancel(ctx)) // an answer is worth having, until nobody waits for any
	return f
}

// fly goes on until every call has ended; false means that ctx ended before that was clear.
func (f *flight) fly(ctx context.Context) bool {
	for wait := newBackoff(defaultCap); ; {
		if ctx.Err() != nil {
			if slices.ContainsFunc(f.calls, (*Call).mayRun) {
				return false
			}
			f.s.leave(f.calls, ctx.Err())
		}
		pending, progress, here := f.round(ctx.Done())
		switch {
		case !here:
			return false
		case pending == 0:
			return true
		case !progress:
			_ = wait.sleep(f.lost, ctx.Done())
		}
	}
}

// finish makes the outcome of every call known for a caller that has left: a claim that was answered is sealed too,
// since nobody saw its jobs.
func (f *flight) finish(cause error) {
	wait := newBackoff(defaultCap)
	for {
		if len(f.open) == 0 {
			f.s.leave(f.calls, cause)
		}
		pending, progress, _ := f.round(nil)
		if pending == 0 && !f.sealUnseen() {
			break
		}
		if !progress {
			_ = wait.sleep(f.lost, f.s.ctx.Done())
		}
	}
	f.end()
}

// round sends what is not finished, unless that is under way, and digests the answers. progress says that something is
// to be sent at once; here is false if left ended first: the answers are then still awaited by the next round.
func (f *flight) round(left <-chan struct{}) (pending int, progress, here bool) {
	if f.s.ctx.Err() != nil {
		f.s.abandon(f.calls)
	}
	if len(f.open) == 0 {
		var requests []*Request
		for _, c := range f.calls {
			if c.phase != finished {
				f.open = append(f.open, c)
				requests = append(requests, c.request(f.s))
			}
		}
		if len(f.open) == 0 {
			return 0, false, true
		}
		f.attempts.send(f.lost, requests)
	}
	answers := f.attempts.await(left)
	if answers == nil {
		return len(f.open), false, false
	}
	for i, c := range f.open {
		before := c.phase
		if before != finished { // not abandoned meanwhile
			c.digest(f.s, answers[i])
		}
		if c.phase != finished {
			pending++
		}
		if c.phase != before && c.reopened < 2 {
			progress = true
		}
	}
	f.open = f.open[:0]
	return pending, progress, true
}

// handOver gives the results to the caller, who is still there.
func (f *flight) handOver(ctx context.Context) {
	for _, c := range f.calls {
		c.told(ctx)
	}
	f.end()
}

// sealUnseen begins to give back what answered claims have leased; false means that there is nothing to be given back.
func (f *flight) sealUnseen() bool {
	again := false
	for _, c := range f.calls {
		if c.Claim > 0 && c.Err == nil && c.Reply != nil && c.sess != nil {
			c.seal(f.s, nil)
			again = again || c.phase != finished
		}
	}
	return again
}

func (f *flight) end() {
	for _, c := range f.calls {
		c.release(f.s)
	}
	f.cut()
}

// mayRun reports whether it is open if the call ran, or runs yet.
func (c *Call) mayRun() bool { return c.phase == sealing || c.phase == running && c.maybe }
