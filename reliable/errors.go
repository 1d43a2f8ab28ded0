package reliable

import (
	"errors"
	"fmt"
	"strings"

	"github.com/leaseq/leaseq/lease"
)

// Errors of the layers below, here so that a user needs one import.
var (
	// ErrLost: the lease is not this holder's any more; the refused call changed nothing. It is also the cause of the
	// context of a handler whose lease is gone.
	ErrLost = lease.ErrLost
	// ErrGone: no such job any more; it is also ErrLost by errors.Is.
	ErrGone = lease.ErrGone
	// ErrCancelled is the cause of the context of a handler whose job was cancelled.
	ErrCancelled = lease.ErrCancelled
	// ErrDuplicate is what a DuplicateError is by errors.Is.
	ErrDuplicate = lease.ErrDuplicate
	// ErrQueueFull is what a QueueFullError is by errors.Is.
	ErrQueueFull = lease.ErrQueueFull
	// ErrChanged refuses an edit: the job was changed by somebody else meanwhile.
	ErrChanged = lease.ErrChanged
	// ErrNeverRan and ErrNeverKnown are answers of UnknownError.Resolve.
	ErrNeverRan   = lease.ErrNeverRan
	ErrNeverKnown = lease.ErrNeverKnown
	// ErrClosed: the Queue was closed.
	ErrClosed = lease.ErrClosed
	// ErrOutOfMemory, ErrMisconf and ErrAuth: Redis refused the call, which did nothing.
	ErrOutOfMemory = lease.ErrOutOfMemory
	ErrMisconf     = lease.ErrMisconf
	ErrAuth        = lease.ErrAuth
)

// Types of errors of the layers below, here so that a user needs one import. Each has an Error text and, where it has a
// cause, Unwrap.
type (
	// UnknownError says that a call's context ended before it was known whether the call ran. It has Op, as "enqueue",
	// Cause, and Resolve(ctx) error, which waits for the truth: nil, it ran and succeeded; [ErrNeverRan], it did not and
	// never will; [ErrNeverKnown], nobody can tell any more; any other error is the call's true answer. Give Resolve a
	// context of its own: that of an HTTP request may be over.
	UnknownError = lease.UnknownError
	// DuplicateError says that an ID is taken: ID, and Place, where the job is that has it.
	DuplicateError = lease.DuplicateError
	// LostError is [ErrLost] with the job's ID and the Place where it is now.
	LostError = lease.LostError
	// TooLargeError says What is too large ("payload", "headers"), its Size and the Limit, in bytes.
	TooLargeError = lease.TooLargeError
	// DelayTooLongError says which delay was Asked for and the Limit of the queue.
	DelayTooLongError = lease.DelayTooLongError
	// QueueFullError is [ErrQueueFull] with the Limit: jobs in due and processing together.
	QueueFullError = lease.QueueFullError
	// ShortLeaseError says that a shorter lease was Asked for than is Published.
	ShortLeaseError = lease.ShortLeaseError
	// ServerError is an error reply of Redis, by its Code (as "OOM"), after which the call did nothing.
	ServerError = lease.ServerError
)

// ErrShutdown is the cause of the context of a handler that did not return within DrainTimeout after Run's context
// ended.
var ErrShutdown = errors.New("the consumer is shutting down")

// ErrSettled says that a job was settled already, by this holder.
var ErrSettled = errors.New("the job was settled already, by this holder: settle each job once")

// ErrRunning says that a Consumer runs already.
var ErrRunning = errors.New("the consumer runs already: wait until Run has returned")

// A DrainError says that a Consumer stopped before Redis had taken all verdicts: these jobs' leases run out by
// themselves, and the jobs run again.
type DrainError struct {
	IDs    []string
	Queues []string // of a MultiConsumer: the queue of each of IDs. nil for a Consumer
	Cause  error
}

func (e *DrainError) Error() string {
	shown := e.IDs
	more := ""
	if len(shown) > 10 {
		shown, more = shown[:10], ", …"
	}
	return fmt.Sprintf("stopped with %d jobs not settled (%s%s), which run again when their leases have run out: %v", len(e.IDs), strings.Join(shown, ", "), more, e.Cause)
}

// Unwrap returns the cause.
func (e *DrainError) Unwrap() error { return e.Cause }
