package script

import (
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// How far apart dials are while a server cannot be reached: the first wait, half as long again each time up to the last;
// a longer last one for the user's client, which dials five times for each.
const (
	firstDialWait = 25 * time.Millisecond
	lastDialWait  = 250 * time.Millisecond
	longDialWait  = time.Second
)

// A gate keeps the loops of a process from dialling a server that cannot be reached each for itself: after a dial that
// failed, calls end with its error at once, but for one now and then, which dials again.
type gate struct {
	most time.Duration // the last wait
	mu   sync.Mutex
	err  error // of the last dial; nil: open
	next time.Time
	wait time.Duration
}

// enter tells whether a call may go: err is why not. probe says that it is the one that dials.
func (g *gate) enter(now time.Time) (probe bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.err == nil:
		return false, nil
	case now.Before(g.next):
		return false, g.err
	}
	g.next = now.Add(g.jittered())
	return true, nil
}

// shut reports whether dials have failed.
func (g *gate) shut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err != nil
}

// leave notes what came of a call.
func (g *gate) leave(now time.Time, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case !isDial(err):
		g.err = nil
		return
	case g.err == nil:
		g.wait = firstDialWait
	default:
		g.wait = min(g.wait+g.wait/2, g.most)
	}
	g.err = err
	g.next = now.Add(g.jittered())
}

func (g *gate) jittered() time.Duration { return g.wait - rand.N(g.wait/4+1) }

func isDial(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}
