package lease

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestErrorsSayWhatHappenedAndWhatWouldBeRight(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"the lease is lost: it ran out or was ended, and the job is not this holder's any more": ErrLost,
		"the job is gone: it was acked, purged or cancelled":                                    ErrGone,
		"job 7 is in processing under another lease, and was left as it is":                     &LostError{ID: "7", Place: Processing},
		"job 7 is in due, and was left as it is: the caller has no lease on it":                 &LostError{ID: "7", Place: Due},
		"job 7 exists already, in dead, and was left as it is":                                  &DuplicateError{ID: "7", Place: Dead},
		"headers of 5000 bytes: want at most 4096":                                              &TooLargeError{What: "headers", Size: 5000, Limit: 4096},
		"payload of 5000 bytes: want at most 4096":                                              &TooLargeError{What: "payload", Size: 5000, Limit: 4096},
		"a lease of 1s is shorter than the queue's 15s: ask for as much or more":                &ShortLeaseError{Asked: time.Second, Published: 15 * time.Second},
		"claim of 2000 items: want 1 to 1000":                                                   &BatchError{What: "claim", Size: 2000},
	} {
		require.EqualError(t, err, want)
	}
	for _, err := range []error{ErrGone, &LostError{}} {
		require.ErrorIs(t, err, ErrLost)
	}
	require.NotErrorIs(t, ErrLost, ErrGone)
	require.ErrorIs(t, &DuplicateError{}, ErrDuplicate)
	require.False(t, errors.Is(&TooLargeError{}, ErrLost))
}
