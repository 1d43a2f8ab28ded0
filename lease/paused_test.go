package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
)

func (b *bench) claimSome(t testing.TB, n int) Claimed {
	t.Helper()
	got, err := b.Claim(t.Context(), n, nil)
	require.NoError(t, err)
	return got
}

func (b *bench) statsNow(t testing.TB) Stats {
	t.Helper()
	stats, err := b.Stats(t.Context())
	require.NoError(t, err)
	return stats
}

func TestAPausedQueueGivesNothingUntilItIsResumed(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.put(t, "a", "b", "c")
		held := b.take(t, 1)[0]
		require.NoError(t, b.Pause(t.Context(), time.Time{}))
		b.wakeUps(t)
		got := b.claimSome(t, 10)
		assert.Empty(t, got.Jobs)
		assert.Equal(t, HeldPaused, got.Held)
		assert.Negative(t, got.NextDue, "nobody knows when it ends")
		assert.Zero(t, b.wakeUps(t), "nobody is woken up in vain")
		stats := b.statsNow(t)
		assert.Equal(t, []any{true, time.Duration(0)}, []any{stats.Paused, stats.PauseLeft})

		extended, err := b.Extend(t.Context(), 0, []Held{{ID: held.ID, Token: held.Token}})
		require.NoError(t, err)
		assert.Equal(t, []error{nil}, extended.Results, "what is held goes on")
		assert.Equal(t, Settled{}, b.settle(t, verdict(Ack, held))[0])
		b.put(t, "d")
		b.wakeUps(t)

		was, err := b.Resume(t.Context())
		require.NoError(t, err)
		assert.True(t, was)
		assert.EqualValues(t, 1, b.wakeUps(t))
		assert.Len(t, b.take(t, 3), 3)
		was, err = b.Resume(t.Context())
		require.NoError(t, err)
		assert.False(t, was)
		assert.Zero(t, b.wakeUps(t))
		assert.False(t, b.statsNow(t).Paused)
	})
}

func TestAPauseEndsByItselfAndTheClaimSaysWhen(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.put(t, "a")
		b.putItems(t, Item{ID: "later", Record: record("later"), Delay: 2 * time.Hour})
		require.NoError(t, b.PauseFor(t.Context(), time.Hour))
		got := b.claimSome(t, 10)
		assert.Empty(t, got.Jobs)
		assert.Equal(t, HeldPaused, got.Held)
		assert.InDelta(t, time.Hour, got.NextDue, float64(time.Minute))
		assert.InDelta(t, time.Hour, b.statsNow(t).PauseLeft, float64(time.Minute))

		end := b.now(t).Add(300 * time.Millisecond)
		require.NoError(t, b.Pause(t.Context(), end), "a pause of a paused queue counts")
		require.Eventually(t, func() bool {
			got, err := b.Claim(t.Context(), 1, nil)
			if err != nil || len(got.Jobs) == 0 {
				return false
			}
			assert.GreaterOrEqual(t, got.Jobs[0].Fence, end.UnixMicro(), "not before its time")
			assert.Empty(t, got.Held)
			return true
		}, patience, pollEvery)
		assert.False(t, b.statsNow(t).Paused)
		got = b.claimSome(t, 1)
		assert.InDelta(t, 2*time.Hour, got.NextDue, float64(time.Minute))

		require.NoError(t, b.PauseFor(t.Context(), time.Hour))
		assert.InDelta(t, 2*time.Hour, b.claimSome(t, 1).NextDue, float64(time.Minute), "a job that is due later is due later")
	})
}

func TestAPauseThatCannotBeIsRefusedAndChangesNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		require.NoError(t, b.PauseFor(t.Context(), time.Hour))
		before := b.limitsNow(t)
		err := b.Pause(t.Context(), b.now(t).Add(-time.Millisecond))
		assert.ErrorIs(t, err, ErrPast)
		assert.ErrorContains(t, err, "want a later one")
		assert.ErrorContains(t, b.Pause(t.Context(), time.Date(1969, 1, 1, 0, 0, 0, 0, time.UTC)), "want a time of the years")
		assert.ErrorContains(t, b.Pause(t.Context(), time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC)), "want a time of the years")
		for _, d := range []time.Duration{0, -1, time.Microsecond, 101 * 366 * 24 * time.Hour} {
			assert.ErrorContains(t, b.PauseFor(t.Context(), d), "want 1 ms to 100 years")
		}
		assert.Equal(t, before, b.limitsNow(t))
	})
}

func TestAPauseIsNoPolicyAndOutlivesEachOne(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		require.NoError(t, b.Pause(t.Context(), time.Time{}))
		_, published, err := b.Published(t.Context())
		require.NoError(t, err)
		assert.False(t, published)
		changed, err := b.Restore(t.Context(), &Policy{Lease: time.Minute})
		require.NoError(t, err)
		assert.True(t, changed, "a deployment can still tell its limits")
		b.pin(t, Policy{MaxRetries: ptr(1)})
		b.unpin(t)
		b.publish(t, Policy{Lease: time.Hour})
		assert.Equal(t, HeldPaused, b.claimSome(t, 1).Held)
	})
}

// What a session leased without having seen it goes back though the queue is paused.
func TestAPausedClaimGivesBackWhatWasNotSeen(t *testing.T) {
	t.Parallel()
	b, proxy := behindProxy(t, nil)
	b.put(t, names("j", 8)...)
	seen := intercept(proxy, claimScript, func(n int64) netfault.Action {
		if n == 1 {
			require.NoError(t, b.another(t, b.rdb).Pause(t.Context(), time.Time{})) // before the call that finds the queue paused
		}
		return netfault.Pass
	})
	assert.Empty(t, b.claimSome(t, 8).Jobs)
	require.EqualValues(t, 1, seen.Load())
	_, err := b.another(t, b.rdb).Resume(t.Context())
	require.NoError(t, err)
	intercept(proxy, claimScript, func(n int64) netfault.Action {
		if n == 1 {
			return netfault.DropReply
		}
		if n == 2 {
			assert.NoError(t, b.another(t, b.rdb).Pause(t.Context(), time.Time{}))
		}
		return netfault.Pass
	})
	got := b.claimSome(t, 8)
	assert.Empty(t, got.Jobs)
	assert.Equal(t, HeldPaused, got.Held)
	assert.Equal(t, []int{8, 8}, []int{b.count(t, "claimed"), b.count(t, "released")})
	assert.EqualValues(t, 8, b.rdb.ZCard(t.Context(), b.key("due")).Val())
}
