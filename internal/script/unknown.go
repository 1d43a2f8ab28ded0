package script

import (
	"context"
	"errors"
	"fmt"
)

var (
	// ErrNeverRan is what Resolve returns of a call that did not run and never will.
	ErrNeverRan = errors.New("the call did not run and never will")

	// ErrNeverKnown is what Resolve returns where the truth is lost: the session's record is gone (FLUSHALL, a failover
	// that lost writes, a trim), the queue was closed before the answer came, or too many calls were waiting for theirs.
	ErrNeverKnown = errors.New("it can never be known whether the call ran")
)

// An UnknownError says that a call's context ended, or that its session was lost, before it was known whether the call
// ran. It may have run, it may run yet; a new call with the same arguments is a new request. Resolve tells the truth.
type UnknownError struct {
	Op      string // as "enqueue"
	Cause   error  // why the waiting ended
	resolve func(ctx context.Context) error
}

// NewUnknownError makes one; resolve must be safe for concurrent use.
func NewUnknownError(op string, cause error, resolve func(ctx context.Context) error) *UnknownError {
	return &UnknownError{Op: op, Cause: cause, resolve: resolve}
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("%s: outcome unknown: %v", e.Op, e.Cause)
}

// Unwrap returns the cause, so that errors.Is(err, context.DeadlineExceeded) works.
func (e *UnknownError) Unwrap() error { return e.Cause }

// Resolve waits until the truth is known: nil means that the call ran and succeeded, [ErrNeverRan] that it did not and
// never will, [ErrNeverKnown] that nobody can tell any more; any other error is the answer that the call got. When ctx
// ends first its error is returned, and Resolve may be called again.
func (e *UnknownError) Resolve(ctx context.Context) error { return e.resolve(ctx) }

// told makes an UnknownError of what can never be known, and of what never ran since its context ended: the same as if
// the caller had left before that was clear. The other calls of the round trip keep their answers.
func (c *Call) told(ctx context.Context) {
	truth, cause := c.Err, c.Err
	switch {
	case errors.Is(truth, ErrNeverKnown):
	case errors.Is(truth, ErrNeverRan) && ctx.Err() != nil:
		cause = ctx.Err()
	default:
		return
	}
	c.Err = NewUnknownError(c.Op, cause, func(context.Context) error { return truth })
}
