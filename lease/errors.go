package lease

import (
	"errors"
	"fmt"
	"time"

	"github.com/leaseq/leaseq/internal/script"
)

// ErrLost says that a lease is not the caller's any more: it ran out and a sweeper took it, or the job was settled. The
// refused call changed nothing. It is also the cause with which a job's context is cancelled. A [*LostError] is
// ErrLost by errors.Is.
var ErrLost = errors.New("the lease is lost: it ran out or was ended, and the job is not this holder's any more")

// ErrGone says that no job has this ID any more; it is also ErrLost by errors.Is.
var ErrGone error = goneError{}

// ErrCancelled says that the job was cancelled while it was being worked on: its lease is not extended any more, and
// whatever settles it removes it.
var ErrCancelled = errors.New("the job was cancelled: whatever settles it removes it")

// ErrRecord is what every [*RecordError] is by errors.Is.
var ErrRecord = errors.New("the attached record has another owner, or is gone: neither it nor the job was changed")

// ErrChanged refuses an edit: the job's record is not the one any more that the caller has seen. Nothing was changed.
var ErrChanged = errors.New("the job's record has changed since it was read: read it again")

// ErrDuplicate is what every [*DuplicateError] is by errors.Is.
var ErrDuplicate = errors.New("a job with this ID exists already")

type goneError struct{}

func (goneError) Error() string        { return "the job is gone: it was acked, purged or cancelled" }
func (goneError) Is(target error) bool { return target == ErrLost }

// A LostError is ErrLost with what is known: the job exists under another token or in another place.
type LostError struct {
	ID    string
	Place Place // where the job is now
}

func (e *LostError) Error() string {
	if e.Place == Processing {
		return fmt.Sprintf("job %s is in processing under another lease, and was left as it is", e.ID)
	}
	return fmt.Sprintf("job %s is in %s, and was left as it is: the caller has no lease on it", e.ID, e.Place)
}

// Is makes errors.Is(err, ErrLost) true.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// A RecordError refuses an ack: the record that was attached to it has another owner, or is gone. The lease goes on as it
// was, and can be settled otherwise.
type RecordError struct {
	ID  string // of the job
	Key string // of the record
}

func (e *RecordError) Error() string {
	return fmt.Sprintf("job %s is not acked: its record %q has another owner, or is gone", e.ID, e.Key)
}

// Is makes errors.Is(err, ErrRecord) true.
func (e *RecordError) Is(target error) bool { return target == ErrRecord }

// A DuplicateError refuses an enqueue: a job with this ID exists, and was left as it is.
type DuplicateError struct {
	ID    string
	Place Place
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("job %s exists already, in %s, and was left as it is", e.ID, e.Place)
}

// Is makes errors.Is(err, ErrDuplicate) true.
func (e *DuplicateError) Is(target error) bool { return target == ErrDuplicate }

// A TooLargeError refuses something that is larger than allowed, before anything was stored.
type TooLargeError struct {
	What        string // as "payload"
	Size, Limit int    // bytes
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%s of %d bytes: want at most %d", e.What, e.Size, e.Limit)
}

// ErrQueueFull is what every [*QueueFullError] is by errors.Is.
var ErrQueueFull = errors.New("the queue is full")

// A QueueFullError refuses an enqueue: as many jobs are in due and processing as the queue's published limit allows. Try
// again when some are done.
type QueueFullError struct {
	Limit int // jobs in due and processing together
}

func (e *QueueFullError) Error() string {
	return fmt.Sprintf("the queue is full: it may have %d jobs in due and processing", e.Limit)
}

// Is makes errors.Is(err, ErrQueueFull) true.
func (e *QueueFullError) Is(target error) bool { return target == ErrQueueFull }

// A DelayTooLongError refuses a due time that is further ahead than the queue's published limit allows.
type DelayTooLongError struct {
	ID    string
	Asked time.Duration // of a time that was asked for: until then, by the clock of this process
	Limit time.Duration
}

func (e *DelayTooLongError) Error() string {
	return fmt.Sprintf("job %s was to be due in %v: want at most %v (max_delay)", e.ID, e.Asked, e.Limit)
}

// A ShortLeaseError refuses a claim that asks for a lease shorter than the one the queue publishes.
type ShortLeaseError struct{ Asked, Published time.Duration }

func (e *ShortLeaseError) Error() string {
	return fmt.Sprintf("a lease of %v is shorter than the queue's %v: ask for as much or more", e.Asked, e.Published)
}

// A LongLeaseError refuses a lease that is longer than the queue's published max_lease.
type LongLeaseError struct{ Asked, Most time.Duration }

func (e *LongLeaseError) Error() string {
	return fmt.Sprintf("a lease of %v is longer than the queue allows: want at most %v (max_lease)", e.Asked, e.Most)
}

// A BatchError refuses a call with too many items, or none.
type BatchError struct {
	What string
	Size int
}

func (e *BatchError) Error() string {
	return fmt.Sprintf("%s of %d items: want 1 to %d", e.What, e.Size, MaxBatch)
}

// Errors about calls whose outcome is open, from the layer that repeats them.
type (
	// UnknownError says that it is not known whether a call ran; its Resolve tells.
	UnknownError = script.UnknownError
	// ServerError is an error reply of Redis: the call did nothing.
	ServerError = script.ServerError
)

// ErrNotRunning says of a loop that it does not run.
var ErrNotRunning = errors.New("it is not running")

// Sentinels of that layer.
var (
	ErrNeverRan    = script.ErrNeverRan
	ErrNeverKnown  = script.ErrNeverKnown
	ErrClosed      = script.ErrClosed
	ErrOutOfMemory = script.ErrOutOfMemory
	ErrMisconf     = script.ErrMisconf
	ErrAuth        = script.ErrAuth
)
