package lease

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// What [Claimed].Held says of jobs that are due and were not given.
const (
	HeldPaused      = "paused"      // the queue is paused
	HeldConcurrency = "concurrency" // as many jobs are in processing as the policy allows; whatever frees a place wakes a waiter
	HeldRate        = "rate"        // as many jobs were started as the policy's rate allows; NextDue says when the next one may
)

// longestPause bounds until when a queue can be paused: the scripts take no later time.
const longestPause = 100 * yearInDays * 24 * time.Hour

// ErrPast refuses a pause until a time that has passed. Nothing was changed.
var ErrPast = errors.New("that time has passed on Redis' clock: want a later one")

// Pause pauses the queue until a time on Redis' clock, or, where until is the zero time, until Resume: claims give
// nothing, and say so in Held. Jobs that are held go on, and are settled, extended and expired as ever; enqueues, too. A queue
// that is paused already is paused until the new time. A time that has passed on Redis' clock is refused ([ErrPast]), and
// changes nothing. After an [*UnknownError] it is safe to call again.
func (s *Store) Pause(ctx context.Context, until time.Time) error {
	if until.IsZero() {
		return s.pause(ctx, "")
	}
	ms := ceilMillis(time.Duration(until.UnixNano()))
	if year := until.Year(); year < 1970 || year > 2200 {
		return fmt.Errorf("pause until %s: want a time of the years 1970 to 2200, or the zero time for until it is resumed", until.Format(time.RFC3339))
	}
	err := s.pause(ctx, "@"+strconv.FormatInt(ms, 10))
	if errors.Is(err, ErrPast) {
		return fmt.Errorf("pause until %s: %w", until.Format(time.RFC3339), err)
	}
	return err
}

// PauseFor is Pause until d from Redis' now: 1 ms to 100 years.
func (s *Store) PauseFor(ctx context.Context, d time.Duration) error {
	if d < time.Millisecond || d > longestPause {
		return fmt.Errorf("pause for %v: want 1 ms to 100 years", d)
	}
	return s.pause(ctx, strconv.FormatInt(ceilMillis(d), 10))
}

// Resume has a paused queue go on at once: a process that waits is woken up. was says that the queue was paused. It is
// safe to call again.
func (s *Store) Resume(ctx context.Context) (was bool, err error) {
	call, err := s.numbered(ctx, "resume", pauseScript, []any{"resume"})
	if err != nil {
		return false, err
	}
	switch call.Rest {
	case "p":
		return true, nil
	case "n":
		return false, nil
	}
	return false, odd(pauseScript, call.Rest)
}

func (s *Store) pause(ctx context.Context, until string) error {
	call, err := s.numbered(ctx, "pause", pauseScript, []any{until})
	switch {
	case err != nil:
		return err
	case call.Rest == "p" || call.Rest == "n":
		return nil
	case call.Rest == "e":
		return ErrPast
	}
	return odd(pauseScript, call.Rest)
}
