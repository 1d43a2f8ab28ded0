package script

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
)

// asked reads what a grab told: the highest number seen, and how many it asks for.
func asked(t *testing.T, r request) (seen int64, n int) {
	t.Helper()
	fields := strings.Fields(r.args)
	require.Len(t, fields, 2)
	seen, err := strconv.ParseInt(fields[0], 10, 64)
	require.NoError(t, err)
	n, err = strconv.Atoi(fields[1])
	require.NoError(t, err)
	return seen, n
}

func TestClaimWhoseReplyIsLostIsNotRepeatedUnderItsNumber(t *testing.T) {
	t.Parallel()
	d, proxy := faultyDesk(t, withRepeats)
	rec := watch(proxy, grabScript, func(n int, _ request) netfault.Action {
		if n <= 3 {
			return netfault.DropReply
		}
		return netfault.Pass
	})
	c := grab(100)
	require.NoError(t, d.Do(t.Context(), c))
	require.NoError(t, c.Err)

	seen := rec.requests()
	require.Len(t, seen, 4)
	for i, want := range []int{100, 50, 25, 12} {
		highest, n := asked(t, seen[i])
		assert.Equal(t, want, n, "halved after each unknown outcome")
		assert.Zero(t, highest, "nothing was seen yet")
		assert.Equal(t, strconv.Itoa(i+1), seen[i].number)
		assert.Equal(t, c.Session, seen[i].session)
	}
	assert.Equal(t, uint64(4), c.Number)
	_, given := grabbed(c.Reply)
	assert.Equal(t, 12, given)
	assert.Equal(t, 187, d.stat(t, "grabbed"))
	assert.Equal(t, 175, d.stat(t, "taken_back"), "all that nobody saw")
}

func TestTheNumberAskedForIsDoubledAfterEachSuccessUpToTheWish(t *testing.T) {
	t.Parallel()
	d, proxy := faultyDesk(t, withRepeats)
	rec := watch(proxy, grabScript, dropFirst)
	for range 6 {
		c := grab(400)
		require.NoError(t, d.Do(t.Context(), c))
		require.NoError(t, c.Err)
	}
	var wishes []int
	last := int64(0)
	for _, r := range rec.requests() {
		highest, n := asked(t, r)
		wishes = append(wishes, n)
		assert.GreaterOrEqual(t, highest, last)
		last = highest
	}
	assert.Equal(t, []int{400, 200, 400, 400, 400, 400, 400}, wishes)
	assert.Equal(t, 400, d.stat(t, "taken_back"))
}

func TestTheNumberAskedForNeverFallsBelowOne(t *testing.T) {
	t.Parallel()
	d, proxy := faultyDesk(t, withRepeats)
	rec := watch(proxy, grabScript, func(n int, _ request) netfault.Action {
		if n <= 4 {
			return netfault.DropReply
		}
		return netfault.Pass
	})
	var wishes []int
	for range 3 {
		c := grab(3)
		require.NoError(t, d.Do(t.Context(), c))
		require.NoError(t, c.Err)
	}
	for _, r := range rec.requests() {
		_, n := asked(t, r)
		wishes = append(wishes, n)
	}
	assert.Equal(t, []int{3, 1, 1, 1, 1, 2, 3}, wishes)
}

func TestAClaimSaysTheHighestNumberThatItsSessionWasGiven(t *testing.T) {
	t.Parallel()
	d, proxy := faultyDesk(t, withRepeats)
	rec := watch(proxy, grabScript, func(n int, _ request) netfault.Action { return netfault.Pass })
	highest := int64(0)
	for i := range 4 {
		c := grab(5)
		require.NoError(t, d.Do(t.Context(), c))
		told, _ := asked(t, rec.requests()[i])
		assert.Equal(t, highest, told)
		highest = c.Fences
		first, n := grabbed(c.Reply)
		assert.Equal(t, first+int64(n)-1, highest)
	}
	assert.Zero(t, d.stat(t, "taken_back"))
}

func TestARepeatByTheClientIsAnsweredAgainAndTakenBack(t *testing.T) {
	t.Parallel()
	d := plainDesk(t)
	ctx := t.Context()
	first := grab(4)
	require.NoError(t, d.Do(ctx, first))
	// The next number was run, by a repeat that nobody told us of.
	req := &Request{Script: grabScript, Args: []any{first.Session, first.Number + 1, first.Fences, 7}}
	d.runner.Send(ctx, req)
	require.NoError(t, req.Err)
	second := grab(4)
	require.NoError(t, d.Do(ctx, second))
	require.NoError(t, second.Err)
	assert.Equal(t, first.Number+2, second.Number)
	assert.Equal(t, 7, d.stat(t, "taken_back"))
	_, n := grabbed(second.Reply)
	assert.Equal(t, 2, n, "asked for half as many")
}

func TestCallerThatLeavesAClaimGivesBackWhatItLeased(t *testing.T) {
	t.Parallel()
	for _, action := range []netfault.Action{netfault.Pass, netfault.DropReply, netfault.DropRequest} {
		t.Run(action.String(), func(t *testing.T) {
			t.Parallel()
			d, proxy := faultyDesk(t, withRepeats)
			proxy.Delay(5e6) // so that the caller has left when the answer comes
			ctx, cancel := context.WithCancel(t.Context())
			rec := watch(proxy, grabScript, func(n int, _ request) netfault.Action {
				if n == 1 {
					cancel()
					return action
				}
				return netfault.Pass
			})
			c := grab(9)
			require.ErrorIs(t, truthOf(t, d.Do(ctx, c), c), ErrNeverRan)
			assert.Nil(t, c.Reply, "nothing is handed over")
			assert.Equal(t, d.stat(t, "grabbed"), d.stat(t, "taken_back"))
			assert.Equal(t, action != netfault.DropRequest, d.stat(t, "grabbed") == 9)

			seen := rec.requests()
			require.Len(t, seen, 2)
			highest, n := asked(t, seen[1])
			assert.Zero(t, n, "the seal of a claim is a claim of none")
			assert.Zero(t, highest)
			assert.Zero(t, d.Waiting())

			next := grab(9)
			require.NoError(t, d.Do(t.Context(), next))
			require.NoError(t, next.Err)
			_, given := grabbed(next.Reply)
			assert.Equal(t, given, d.stat(t, "grabbed")-d.stat(t, "taken_back"), "and nothing of the new claim is taken back")
		})
	}
}
