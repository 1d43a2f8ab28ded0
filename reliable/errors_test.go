package reliable

import (
	"errors"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestADrainErrorNamesJobsAndWhatBecomesOfThem(t *testing.T) {
	t.Parallel()
	cause := errors.New("no answer")
	err := &DrainError{IDs: []string{"a", "b"}, Cause: cause}
	require.EqualError(t, err, "stopped with 2 jobs not settled (a, b), which run again when their leases have run out: no answer")
	require.ErrorIs(t, err, cause)
	for i := range 20 {
		err.IDs = append(err.IDs, strconv.Itoa(i))
	}
	require.EqualError(t, err, "stopped with 22 jobs not settled (a, b, 0, 1, 2, 3, 4, 5, 6, 7, …), which run again when their leases have run out: no answer")
}
