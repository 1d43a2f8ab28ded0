package script

import (
	"slices"
	"sync"
	"time"
)

// How many goroutines wait for more to do, and for how long: one whose owner forgot to close it must not stay.
const (
	mostIdle = 16
	idleFor  = 200 * time.Millisecond
)

// lanes runs functions side by side, in goroutines that are used again: a fresh one begins with a small stack, which the
// client's calls make it grow each time.
type lanes struct {
	mu     sync.Mutex
	idle   []chan func()
	closed bool
	all    sync.WaitGroup
}

// run begins f.
func (l *lanes) run(f func()) {
	l.mu.Lock()
	if n := len(l.idle); n > 0 {
		lane := l.idle[n-1]
		l.idle = l.idle[:n-1]
		l.mu.Unlock()
		lane <- f
		return
	}
	l.mu.Unlock()
	l.all.Go(func() { l.lane(f) })
}

func (l *lanes) lane(f func()) {
	next := make(chan func(), 1)
	tired := time.NewTimer(idleFor)
	defer tired.Stop()
	for f != nil {
		f()
		f = nil
		if !l.wait(next) {
			return
		}
		tired.Reset(idleFor)
		select {
		case f = <-next:
		case <-tired.C:
			if !l.forget(next) {
				f = <-next // it is not idle any more
			}
		}
	}
}

// wait puts a lane among the idle ones; false means that it is not wanted any more.
func (l *lanes) wait(next chan func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.idle) >= mostIdle {
		return false
	}
	l.idle = append(l.idle, next)
	return true
}

// forget takes a lane out of the idle ones; false means that it is not among them.
func (l *lanes) forget(next chan func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.idle, next)
	if i >= 0 {
		l.idle = slices.Delete(l.idle, i, i+1)
	}
	return i >= 0
}

// close waits for what is running, and ends the goroutines.
func (l *lanes) close() {
	l.mu.Lock()
	l.closed = true
	for _, lane := range l.idle {
		close(lane)
	}
	l.idle = nil
	l.mu.Unlock()
	l.all.Wait()
}
