// Package pulse tells whether loops that talk to Redis do their work: from what came of their last calls, not from a
// question asked for the purpose.
package pulse

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A Pulse is that of one loop. The zero value has not begun. It is safe for concurrent use.
type Pulse struct {
	mu      sync.Mutex
	began   time.Time
	worked  time.Time     // the last success
	failing time.Time     // the first failure since then; zero: none
	err     error         // the last failure
	known   chan struct{} // closed at the first success or failure
}

// A Problem says that a loop cannot do its work.
type Problem struct {
	For time.Duration // since the first failure, or since the last success
	Err error         // the last failure; nil: nothing has failed, and nothing has worked either
}

func (p *Problem) Error() string {
	if p.Err == nil {
		return fmt.Sprintf("nothing has worked for %v", p.For.Round(time.Millisecond))
	}
	return fmt.Sprintf("failing for %v: %v", p.For.Round(time.Millisecond), p.Err)
}

// Unwrap returns the last failure.
func (p *Problem) Unwrap() error { return p.Err }

// Begin says that the loop begins, or begins anew.
func (p *Pulse) Begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.began, p.worked, p.failing, p.err = time.Now(), time.Time{}, time.Time{}, nil
	if p.known == nil || p.isKnown() {
		p.known = make(chan struct{}) // else somebody may wait for the one there is
	}
}

func (p *Pulse) isKnown() bool {
	select {
	case <-p.known:
		return true
	default:
		return false
	}
}

// Worked says that the loop has done its work.
func (p *Pulse) Worked() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.worked, p.failing, p.err = time.Now(), time.Time{}, nil
	p.tell()
}

// Resume says that the loop had nothing to do until now: its silence counts from here.
func (p *Pulse) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.worked.IsZero() {
		p.worked = time.Now()
	}
}

// Failing keeps an error of Check if it says that something has failed, and drops one that only knows of no success yet.
func Failing(err error) error {
	var problem *Problem
	if errors.As(err, &problem) && problem.Err != nil {
		return err
	}
	return nil
}

// Failed says that a try has failed; the loop goes on.
func (p *Pulse) Failed(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failing.IsZero() {
		p.failing = time.Now()
	}
	p.err = err
	p.tell()
}

func (p *Pulse) tell() {
	if p.known == nil {
		p.known = make(chan struct{})
	}
	if !p.isKnown() {
		close(p.known)
	}
}

// Check returns a [*Problem] if the last try failed, or nothing has worked for longer than most (0: however long).
// Before anything is known of a loop that has begun it waits, until ctx ends.
func (p *Pulse) Check(ctx context.Context, most time.Duration) error {
	p.mu.Lock()
	known := p.known
	p.mu.Unlock()
	if known != nil {
		select {
		case <-known:
		case <-ctx.Done():
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.worked
	if last.IsZero() {
		last = p.began
	}
	switch {
	case !p.failing.IsZero():
		return &Problem{For: time.Since(p.failing), Err: p.err}
	case p.worked.IsZero() || most > 0 && time.Since(last) > most:
		return &Problem{For: time.Since(last)}
	}
	return nil
}
