package reliable

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/lease"
)

func TestWhatIsSettledForEachCauseAndReturnedValue(t *testing.T) {
	t.Parallel()
	wrong := errors.New("wrong")
	returned := []struct {
		name string
		err  error
	}{
		{"nil", nil}, {"Discard", Discard(wrong)}, {"RetryAfter", RetryAfter(time.Second, wrong)},
		{"Release", Release(wrong)}, {"ReleaseAfter", ReleaseAfter(time.Second, wrong)}, {"other", wrong},
	}
	causes := []struct {
		name   string
		ending ending
		want   [6]verdictOp
	}{
		{"none", ending{}, [6]verdictOp{opAck, opBury, opNack, opRelease, opRelease, opNack}},
		{"job timeout", ending{cause: ErrJobTimeout}, [6]verdictOp{opAck, opBury, opNack, opRelease, opRelease, opNack}},
		{"shutdown", ending{cause: ErrShutdown}, [6]verdictOp{opAck, opBury, opNack, opRelease, opRelease, opRelease}},
		{"local deadline", ending{cause: lease.ErrLost, state: lease.HoldOverdue}, [6]verdictOp{opAck, opBury, opNack, opRelease, opRelease, opRelease}},
		{"local deadline, nobody renews", ending{cause: lease.ErrLost, state: lease.HoldOverdue, noExtend: true}, [6]verdictOp{opAck, opBury, opNack, opRelease, opRelease, opNack}},
		{"lost", ending{cause: lease.ErrLost, state: lease.HoldLost}, [6]verdictOp{opAck, opBury, opNack, opRelease, opRelease, opNack}},
		{"cancelled", ending{cause: lease.ErrCancelled, state: lease.HoldCancelled}, [6]verdictOp{opAck, opBury, opNack, opRelease, opRelease, opNack}},
	}
	for _, c := range causes {
		for i, r := range returned {
			t.Run(fmt.Sprintf("%s/%s", c.name, r.name), func(t *testing.T) {
				t.Parallel()
				got := decide(verdictOf(r.err), c.ending)
				require.Equal(t, c.want[i], got.op)
				if r.name == "RetryAfter" {
					require.True(t, got.hasDelay)
					require.Equal(t, time.Second, got.delay)
				}
				if r.name == "other" && c.ending.noExtend {
					require.Contains(t, got.err.Error(), "lease ran out")
				}
				if r.err != nil {
					require.ErrorIs(t, got.err, wrong)
				}
			})
		}
	}
}
