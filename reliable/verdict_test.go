package reliable

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leaseq/leaseq/lease"
)

var errCard = errors.New("card declined")

func TestReturnedErrorsMeanTheirVerdict(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		err  error
		want verdict
		text string
	}{
		{"nil acks", nil, verdict{op: opAck}, ""},
		{"an error nacks", errCard, verdict{op: opNack}, "card declined"},
		{"RetryAfter", RetryAfter(time.Minute, errCard), verdict{op: opNack, delay: time.Minute, hasDelay: true}, "card declined"},
		{"RetryAfter at once", RetryAfter(0, errCard), verdict{op: opNack, hasDelay: true}, "card declined"},
		{"RetryAfter without an error", RetryAfter(time.Minute, nil), verdict{op: opNack, delay: time.Minute, hasDelay: true}, "retry after 1m0s"},
		{"Discard", Discard(errCard), verdict{op: opBury}, "card declined"},
		{"Discard without an error", Discard(nil), verdict{op: opBury}, "discarded"},
		{"Release", Release(errCard), verdict{op: opRelease}, "card declined"},
		{"Release without an error", Release(nil), verdict{op: opRelease}, "released"},
		{"ReleaseAfter", ReleaseAfter(time.Second, errCard), verdict{op: opRelease, delay: time.Second, hasDelay: true}, "card declined"},
		{"ReleaseAfter now", ReleaseAfter(0, nil), verdict{op: opRelease, hasDelay: true}, "released for 0s"},
		{"bad payload", &BadPayloadError{Kind: "k", Err: errCard}, verdict{op: opBury, class: lease.ClassBadPayload}, "bad payload: card declined"},
		{"a panic", panicked("x"), verdict{op: opNack}, "panic: x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := verdictOf(c.err)
			require.Equal(t, c.err, got.err, "the verdict keeps the whole error")
			c.want.err = c.err
			require.Equal(t, c.want, got)
			if c.err != nil {
				require.Equal(t, c.text, c.err.Error())
			}
		})
	}
}

func TestVerdictsKeepTheErrorTheyWereGiven(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		RetryAfter(1, errCard), Discard(errCard), Release(errCard), ReleaseAfter(1, errCard),
		RetryAfter(-1, errCard), ReleaseAfter(-1, errCard),
	} {
		require.ErrorIs(t, err, errCard)
	}
}

func TestNegativeDelaysNackWithBackOffWhicheverFunctionWasCalled(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(time.Duration, error) error{"RetryAfter": RetryAfter, "ReleaseAfter": ReleaseAfter} {
		for _, inner := range []error{errCard, nil, Discard(errCard)} {
			err := call(-time.Second, inner)
			v := verdictOf(err)
			require.Equal(t, opNack, v.op)
			require.False(t, v.hasDelay, "the back-off decides")
			require.ErrorIs(t, err, ErrNegativeDelay)
			require.Contains(t, err.Error(), name+" was called with -1s, want 0 or more")
			if inner != nil {
				require.Contains(t, err.Error(), "card declined")
			}
		}
	}
}

func TestVerdictsAreFoundThroughWrappingAndJoining(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("charging: %w", Discard(errCard))
	require.Equal(t, verdict{op: opBury, err: err}, verdictOf(err))
	require.Equal(t, "charging: card declined", verdictOf(err).err.Error())

	joined := errors.Join(errors.New("first"), nil, fmt.Errorf("second: %w", Release(errCard)))
	require.Equal(t, opRelease, verdictOf(joined).op)

	both := fmt.Errorf("%w and %w", errCard, RetryAfter(time.Hour, nil))
	require.Equal(t, time.Hour, verdictOf(both).delay)
}

func TestOfSeveralVerdictsTheOutermostAndOfJoinedOnesTheFirstCounts(t *testing.T) {
	t.Parallel()
	require.Equal(t, opBury, verdictOf(Discard(RetryAfter(time.Hour, errCard))).op)
	require.Equal(t, opNack, verdictOf(RetryAfter(time.Hour, Discard(errCard))).op)
	require.Equal(t, opNack, verdictOf(RetryAfter(time.Hour, &BadPayloadError{Err: errCard})).op)
	require.Equal(t, opBury, verdictOf(errors.Join(Discard(nil), Release(nil))).op)
	require.Equal(t, opRelease, verdictOf(errors.Join(Release(nil), Discard(nil))).op)
	deepFirst := errors.Join(fmt.Errorf("a: %w", fmt.Errorf("b: %w", Release(nil))), Discard(nil))
	require.Equal(t, opRelease, verdictOf(deepFirst).op, "depth does not matter among joined errors, order does")
}

func TestVerdictsAreFoundInTheOrderOfErrorsAs(t *testing.T) {
	t.Parallel()
	var tree *rapid.Generator[error]
	tree = rapid.Custom(func(t *rapid.T) error {
		switch rapid.IntRange(0, 6).Draw(t, "node") {
		case 0:
			return errCard
		case 1:
			return Discard(tree.Draw(t, "inner"))
		case 2:
			return RetryAfter(time.Duration(rapid.Int64Range(0, 1e12).Draw(t, "d")), tree.Draw(t, "inner"))
		case 3:
			return Release(nil)
		case 4:
			return fmt.Errorf("wrapped: %w", tree.Draw(t, "inner"))
		case 5:
			return errors.Join(tree.Draw(t, "a"), tree.Draw(t, "b"))
		default:
			return fmt.Errorf("%w, %w", tree.Draw(t, "a"), tree.Draw(t, "b"))
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		err := tree.Draw(t, "err")
		want := verdict{op: opNack}
		var carrier *verdictError
		if errors.As(err, &carrier) {
			want = carrier.verdict
		}
		want.err = err
		require.Equal(t, want, verdictOf(err))
	})
}

type unwrapPanics struct{ errCode int }

func (*unwrapPanics) Error() string { return "text" }
func (e *unwrapPanics) Unwrap() error {
	if e.errCode == 0 {
		return nil
	}
	return Discard(nil)
}

type circular struct{ next error }

func (*circular) Error() string   { return "round" }
func (e *circular) Unwrap() error { return e.next }

type widening struct{}

func (widening) Error() string   { return "wide" }
func (widening) Unwrap() []error { return []error{widening{}, widening{}} }

func TestErrorsThatUnwrapBadlyAreNacked(t *testing.T) {
	t.Parallel()
	var typedNil *unwrapPanics
	require.Panics(t, func() { _ = errors.Unwrap(typedNil) }, "the error is as bad as it should be")
	round := &circular{}
	round.next = round
	for _, err := range []error{typedNil, fmt.Errorf("x: %w", error(typedNil)), round, widening{}} {
		v := verdictOf(err)
		assert.Equal(t, opNack, v.op)
		assert.False(t, v.hasDelay)
		assert.False(t, saysNoHandler(err))
	}
}

func TestVerdictOpsAreNamedByTheWordsOfTheProtocol(t *testing.T) {
	t.Parallel()
	require.Equal(t, "ack nack release bury verdictOp(9)", fmt.Sprint(opAck, " ", opNack, " ", opRelease, " ", opBury, " ", verdictOp(9)))
}
