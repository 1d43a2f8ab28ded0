// Package lazyctx makes contexts that cost next to nothing until somebody waits for their end: a handler that returns
// before it has looked at its context, as most do that are short, needs no channel, no timer and no goroutine for it.
package lazyctx

import (
	"context"
	"sync"
	"time"
)

// A Context is a [context.Context] that ends by Cancel or, if it was begun with one, with its parent or at its
// deadline. What the standard library makes for that is made when Done is called, or a value asked for that the root
// does not have; [context.Cause], and contexts that are derived from this one, work as with any other.
type Context struct {
	root   context.Context // never ends: the values
	parent *Context        // nil: there is none
	at     time.Time       // the deadline; zero: there is none
	reason error           // the cause at the deadline

	mu    sync.Mutex
	inner context.Context // nil: nobody has asked yet
	end   context.CancelCauseFunc
	cause error // of an end before somebody asked
}

// Begin makes c a context with the values of root, and not its end. A Context is a part of something else, and used from
// where it is.
func (c *Context) Begin(root context.Context) {
	if root.Done() != nil {
		root = context.WithoutCancel(root)
	}
	c.root = root
}

// BeginUntil makes c a context that ends with parent, or at a time, with a cause; its error is then
// [context.DeadlineExceeded].
func (c *Context) BeginUntil(parent *Context, at time.Time, reason error) {
	c.root, c.parent, c.at, c.reason = parent.root, parent, at, reason
}

// Cancel ends the context with a cause, if it has not ended.
func (c *Context) Cancel(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.end != nil:
		c.end(cause)
	case c.ended() == nil:
		c.cause = cause
	}
}

// Cause is that of the end, or nil.
func (c *Context) Cause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended()
}

// ended is Cause under the lock.
func (c *Context) ended() error {
	switch {
	case c.inner != nil:
		return context.Cause(c.inner)
	case c.cause != nil:
		return c.cause
	}
	if c.parent != nil {
		c.cause = c.parent.Cause()
	}
	if c.cause == nil && !c.at.IsZero() && time.Until(c.at) <= 0 {
		c.cause = c.reason
	}
	return c.cause
}

// Deadline is that of the context.
func (c *Context) Deadline() (time.Time, bool) { return c.at, !c.at.IsZero() }

// Done makes the channel when it is asked for.
func (c *Context) Done() <-chan struct{} { return c.made().Done() }

// Err is nil until the end.
func (c *Context) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch cause := c.ended(); {
	case cause == nil:
		return nil
	case c.inner != nil:
		return c.inner.Err()
	case !c.at.IsZero() && cause == c.reason:
		return context.DeadlineExceeded
	}
	return context.Canceled
}

// Value is the root's, where that has one.
func (c *Context) Value(key any) any {
	if value := c.root.Value(key); value != nil {
		return value
	}
	return c.made().Value(key)
}

// made makes what the standard library needs for a context.
func (c *Context) made() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner != nil {
		return c.inner
	}
	cause := c.ended()
	from := c.root
	if c.parent != nil {
		from = c.parent.made()
	}
	if !c.at.IsZero() {
		var cancel context.CancelFunc
		c.inner, cancel = context.WithDeadlineCause(from, c.at, c.reason)
		c.end = func(error) { cancel() }
	} else {
		c.inner, c.end = context.WithCancelCause(from)
	}
	if cause != nil {
		c.end(cause)
	}
	return c.inner
}
