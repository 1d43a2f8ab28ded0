package idempotency

import (
	"errors"
	"fmt"
	"time"

	"github.com/leaseq/leaseq/internal/script"
)

var (
	// ErrNotOwner: the record is another holder's, done, or gone. The call that returns it changed nothing. It is also the
	// cause of a permit's context that ended because its lease could not be kept.
	ErrNotOwner = errors.New("the idempotency record is not this permit's any more")
	// ErrCancelled: the job that was to hold the record has been cancelled.
	ErrCancelled = errors.New("the job was cancelled: no effect of it may begin")
	// ErrNotDone marks an error after which it is certain that the effect did not happen; see [NotDone].
	ErrNotDone = errors.New("the effect did not happen")
	// ErrRan marks an error of [Do] or [Run] after the effect had run: it could not be written down, and is in doubt. Other
	// errors of theirs are those of Begin, after which it did not run, or the effect's own.
	ErrRan = errors.New("the effect ran, and that could not be written down")
	// ErrClosed: the Guard was closed. It is the cause of the contexts of its permits too.
	ErrClosed = script.ErrClosed
	// ErrNeverRan and ErrNeverKnown are answers of UnknownError.Resolve.
	ErrNeverRan   = script.ErrNeverRan
	ErrNeverKnown = script.ErrNeverKnown
)

type (
	// UnknownError says that a call's context ended before it was known whether the call ran; Resolve tells the truth.
	UnknownError = script.UnknownError
	// ServerError is an error reply of Redis, after which the call did nothing.
	ServerError = script.ServerError
)

// An InFlightError says that somebody else has begun the effect, and holds the record for Wait at least.
type InFlightError struct {
	Key  string
	Wait time.Duration
}

func (e *InFlightError) Error() string {
	return fmt.Sprintf("idempotency key %q is in flight: its holder's lease lasts for another %v", e.Key, e.Wait)
}

// An OtherRequestError says that the key was used before, for another request: one of the two is a mistake of their
// caller. Nothing was changed.
type OtherRequestError struct{ Key string }

func (e *OtherRequestError) Error() string {
	return fmt.Sprintf("idempotency key %q was used for another request before", e.Key)
}

// An InDoubtError says that a holder has begun the effect at Since, that its lease is over, and that nobody knows
// whether the effect happened. [Do] returns it where the policy is [Ask] and there is nobody to ask. The key stays in
// doubt.
type InDoubtError struct {
	Key   string
	Since time.Time
}

func (e *InDoubtError) Error() string {
	return fmt.Sprintf("idempotency key %q is in doubt since %s: a holder began the effect and did not finish", e.Key, e.Since.UTC().Format(time.RFC3339Nano))
}

// A TooLargeError refuses a result, before anything is sent.
type TooLargeError struct{ Size, Limit int }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("a result of %d bytes: at most %d are kept", e.Size, e.Limit)
}

// A TooManyError refuses a further effect of one job.
type TooManyError struct {
	Key   string
	Limit int
}

func (e *TooManyError) Error() string {
	return fmt.Sprintf("%q has %d effects already: a job's record holds no more", e.Key, e.Limit)
}

// NotDone wraps an error after which it is certain that the effect did not happen, as a refusal of the downstream: [Do]
// then takes its beginning back. After any other error the key is in doubt, since a timeout, say, tells nothing.
func NotDone(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrNotDone, err)
}
