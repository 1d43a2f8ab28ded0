package reliable

import (
	"context"
	"errors"
)

// A Handler works on jobs. It is called by many goroutines at once.
//
// What Handle returns settles the job: nil acks it, an error nacks it with back-off, and [RetryAfter], [Discard],
// [Release] and [ReleaseAfter] do what they say. A panic and [runtime.Goexit] are failures as a returned error is.
// A panic in a goroutine that the handler has started itself cannot be caught by anybody else: it ends the process,
// and the leases of the jobs that it held expire.
//
// ctx ends when the lease is lost, when the job's time is over ([ErrJobTimeout]) or when the Consumer stops;
// [context.Cause] tells which. A handler should return soon after. [JobFrom] finds the job in it. What is to happen around
// every handler is a [Middleware].
type Handler interface {
	Handle(ctx context.Context, job *Job) error
}

// HandlerFunc is a function as a [Handler].
type HandlerFunc func(ctx context.Context, job *Job) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, job *Job) error { return f(ctx, job) }

// ErrJobTimeout is the cause of a handler's context that ended because the job ran for as long as it may. The job is
// still held then, and what the handler returns decides. If it does not return, the lease runs out.
var ErrJobTimeout = errors.New("job timeout")
