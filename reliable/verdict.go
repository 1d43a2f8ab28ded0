package reliable

import (
	"errors"
	"fmt"
	"time"

	"github.com/leaseq/leaseq/lease"
)

// ErrNegativeDelay is in the error that [RetryAfter] and [ReleaseAfter] return for a delay below zero. Such a call is
// a mistake in the handler. The job is nacked with the queue's own back-off, whichever of the two was called: that
// counts a failure, so the mistake is seen and ends in the dead letters instead of going round for ever.
var ErrNegativeDelay = errors.New("negative delay")

// RetryAfter returns an error that makes a handler's job fail and be due again d from now: it is nacked, one failure
// is counted, and d is kept exactly, without back-off or jitter. When the failures exceed the queue's MaxRetries the
// job goes to the dead letters as after any failure. d = 0 makes it due at once; d below zero is [ErrNegativeDelay].
//
// err is the reason that is kept. It may be nil; the result is an error all the same, so that
// return RetryAfter(d, nil) never acks.
//
// The error can be wrapped with %w or joined. Where several verdicts are found in one error the outermost counts, and
// of joined ones the first, in the order in which [errors.As] would find them.
func RetryAfter(d time.Duration, err error) error {
	if d < 0 {
		return negative("RetryAfter", d, err)
	}
	return &verdictError{verdict: verdict{op: opNack, delay: d, hasDelay: true}, err: err}
}

// Discard returns an error that makes a handler's job go to the dead letters at once, however many tries it had left:
// it is buried, and one failure is counted. err is the reason that is kept and may be nil. For wrapping and for
// several verdicts in one error see [RetryAfter].
func Discard(err error) error {
	return &verdictError{verdict: verdict{op: opBury}, err: err}
}

// Release returns an error that gives a handler's job back unfinished. It costs nothing: no failure is counted, and
// the job is due as it was, in its old place in the queue, so it is likely to be the next one claimed. A handler that
// releases under a condition which lasts should use [ReleaseAfter]. err is for the log only and may be nil. For
// wrapping and for several verdicts in one error see [RetryAfter].
func Release(err error) error {
	return &verdictError{verdict: verdict{op: opRelease}, err: err}
}

// ReleaseAfter is [Release] with a delay: the job is due again d from now, exactly. d = 0 makes it due now, behind
// the jobs that have been due for longer; d below zero is [ErrNegativeDelay]. Nothing limits how often a job can be
// released.
func ReleaseAfter(d time.Duration, err error) error {
	if d < 0 {
		return negative("ReleaseAfter", d, err)
	}
	return &verdictError{verdict: verdict{op: opRelease, delay: d, hasDelay: true}, err: err}
}

func negative(function string, d time.Duration, err error) error {
	mistake := fmt.Errorf("%w: %s was called with %v, want 0 or more", ErrNegativeDelay, function, d)
	if err != nil {
		mistake = fmt.Errorf("%w: %w", mistake, err)
	}
	return &verdictError{verdict: verdict{op: opNack}, err: mistake}
}

// A verdictOp says how a job's lease is settled.
type verdictOp uint8

const (
	opAck verdictOp = iota
	opNack
	opRelease
	opBury
)

// String returns the word of the protocol.
func (op verdictOp) String() string {
	switch op {
	case opAck:
		return "ack"
	case opNack:
		return "nack"
	case opRelease:
		return "release"
	case opBury:
		return "bury"
	}
	return fmt.Sprintf("verdictOp(%d)", uint8(op))
}

// A verdict is what a handler's returned error means.
type verdict struct {
	op       verdictOp
	delay    time.Duration // of a nack or release, if hasDelay
	hasDelay bool          // false: a nack takes the back-off, a release the old due time
	newer    bool          // a release of a record that a newer version wrote
	err      error         // what the handler returned, whole; nil for an ack
	class    DeadClass     // of a nack or bury, if the job is dead after it; none: of a bury, discarded

	commit *lease.Attached // what an ack does to the record of an effect; nil: nothing
}

// verdictError is a verdict on its way through error values. Its text is that of err alone, so that the kept reason
// is the handler's own; only without err it names the verdict.
type verdictError struct {
	verdict verdict
	err     error
}

func (e *verdictError) Error() string {
	switch v := e.verdict; {
	case e.err != nil:
		return e.err.Error()
	case v.op == opBury:
		return "discarded"
	case v.op == opNack:
		return fmt.Sprintf("retry after %v", v.delay)
	case v.hasDelay:
		return fmt.Sprintf("released for %v", v.delay)
	}
	return "released"
}

func (e *verdictError) Unwrap() error { return e.err }

func (e *verdictError) givenVerdict() verdict { return e.verdict }

// verdictGiver is an error that says how the job is to be settled.
type verdictGiver interface{ givenVerdict() verdict }

// verdictOf reads a handler's returned error. nil is an ack, an error without a verdict in it a nack with back-off.
// It never panics, whatever the Unwrap methods in err do.
func verdictOf(err error) verdict {
	if err == nil {
		return verdict{op: opAck}
	}
	v, _ := findVerdict(err)
	v.err = err
	return v
}

// findVerdict returns the first verdict in err and true, or a nack and false.
func findVerdict(err error) (v verdict, found bool) {
	v = verdict{op: opNack}
	found = walkError(err, func(e error) bool {
		giver, ok := e.(verdictGiver)
		if ok {
			v = giver.givenVerdict()
		}
		return ok
	})
	return v, found
}

// maxErrorNodes bounds how many errors of one tree are looked at: an Unwrap can lead in circles.
const maxErrorNodes = 1000

// walkError calls match for err and what it wraps, outer before inner and first before last, until match returns
// true. It returns whether one did. A panic in an Unwrap ends the walk without a match.
func walkError(err error, match func(error) bool) (matched bool) {
	defer func() {
		if recover() != nil {
			matched = false
		}
	}()
	left := maxErrorNodes
	return walkErrorTree(err, &left, match)
}

func walkErrorTree(err error, left *int, match func(error) bool) bool {
	for err != nil && *left > 0 {
		*left--
		if match(err) {
			return true
		}
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			for _, inner := range e.Unwrap() {
				if walkErrorTree(inner, left, match) {
					return true
				}
			}
			return false
		default:
			return false
		}
	}
	return false
}
