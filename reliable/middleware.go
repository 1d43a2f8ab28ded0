package reliable

import (
	"errors"
	"fmt"
)

// A Middleware makes a [Handler] that does something around another one: measure it, give it a context with more in
// it, look at the error that it returns. It is called once, by [NewConsumer]; the Handler that it returns is called for
// every job, by many goroutines at once.
//
// Around next a middleware may do what a handler may:
//
//   - hand next another context, derived from its own. One that is not derived from it does not end with the lease.
//   - return another error than next did, a verdict too ([Discard], [RetryAfter], [Release]): what the outermost
//     middleware returns settles the job. The error of a [Mux] without a handler for the kind, which is [ErrNoHandler],
//     keeps its meaning as long as it is in the returned error and no verdict is; a middleware that returns nil in its
//     place acks a job that nobody has worked on.
//   - not call next, or call it more than once. Each call gets the one *Job, with its one lease.
//   - settle the job by hand, once; what is returned afterwards settles nothing.
//
// A panic and [runtime.Goexit], in next or in a middleware, go through all middlewares around it, whose deferred
// functions run, and are then failures of the job as always. A middleware that catches a panic of next decides by
// what it returns. The job's timeout, that of its kind in a Mux included, runs from before the outermost middleware.
//
// What all jobs need is a Middleware of the Consumer. For one kind alone, wrap its handler where it is added to the
// Mux. A Mux that is wrapped by hand and then given to NewConsumer ends the contexts of its handlers in time, but the
// Consumer cannot ask it for the kinds' timeouts: it extends leases for its own JobTimeout.
type Middleware func(next Handler) Handler

// wrap puts the list around h, the first outermost.
func wrap(h Handler, list []Middleware) (Handler, error) {
	var errs []error
	for i, m := range list {
		if m == nil {
			errs = append(errs, fmt.Errorf("Middleware[%d] is nil: leave it out", i))
		}
	}
	if len(errs) > 0 || isNil(h) { // which is said elsewhere
		return h, errors.Join(errs...)
	}
	for i := len(list) - 1; i >= 0; i-- {
		wrapped, err := list[i].around(h)
		if err != nil {
			return nil, fmt.Errorf("Middleware[%d] %w", i, err)
		}
		h = wrapped
	}
	return h, nil
}

// around calls the middleware, and turns a panic into an error.
func (m Middleware) around(next Handler) (wrapped Handler, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("has panicked: %s", reasonText(panicText(value), maxReason))
		}
	}()
	wrapped = m(next)
	if isNil(wrapped) {
		return nil, errors.New("returned a nil Handler: want one that calls the Handler it was given")
	}
	return wrapped, nil
}
