package reliable

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestBackoffDefaultsAreOneSecondUpToFiveMinutes(t *testing.T) {
	t.Parallel()
	b := Backoff{}.withDefaults()
	require.NoError(t, Backoff{}.validate())
	require.Equal(t, Backoff{Base: time.Second, Cap: 5 * time.Minute}, b)
	for failures, want := range map[int]time.Duration{
		-1: time.Second, 0: time.Second, 1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 9: 256 * time.Second,
		10: 5 * time.Minute, 11: 5 * time.Minute, math.MaxInt: 5 * time.Minute,
	} {
		require.Equal(t, want, b.ceiling(failures), "after %d failures", failures)
	}
}

func TestBackoffDelayIsPositiveAndNeverOverItsCeiling(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.Int64Range(int64(minBackoff), math.MaxInt64).Draw(t, "base")
		b := Backoff{Base: time.Duration(base), Cap: time.Duration(rapid.Int64Range(base, math.MaxInt64).Draw(t, "cap"))}
		require.NoError(t, b.validate())
		failures := rapid.OneOf(rapid.IntRange(1, 80), rapid.Int()).Draw(t, "failures")

		want := float64(b.Cap)
		if doubled := float64(b.Base) * math.Pow(2, float64(max(failures, 1)-1)); doubled < want {
			want = doubled
		}
		require.InEpsilon(t, want, float64(b.ceiling(failures)), 1e-9)
		d := b.delay(failures)
		require.Positive(t, d)
		require.LessOrEqual(t, d, b.ceiling(failures))
		require.LessOrEqual(t, b.ceiling(failures), b.ceiling(max(failures, failures+1)), "more failures never mean less")
	})
}

func TestBackoffDrawsEvenlyFromTheWholeRange(t *testing.T) {
	t.Parallel()
	b := Backoff{Base: time.Second, Cap: time.Minute}
	const draws, buckets = 100_000, 10
	var count [buckets]int
	for range draws {
		d := b.delay(3) // up to 4 s
		count[min(int(d*buckets/(4*time.Second)), buckets-1)]++
	}
	for i, n := range count {
		require.InDelta(t, draws/buckets, n, 700, "bucket %d (seven standard deviations)", i)
	}
	require.Equal(t, time.Duration(1), drawUpTo(1), "the ceiling itself can be drawn")
}

func TestBackoffReportsEverythingThatIsWrong(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		b    Backoff
		want []string
	}{
		{Backoff{Base: -1}, []string{"Base is -1ns: want at least 1ms, or 0 for 1s"}},
		{Backoff{Base: time.Microsecond, Cap: -time.Second}, []string{"Base is 1µs", "Cap is -1s: want at least 1ms, or 0 for 5m0s", "longer than its Cap"}},
		{Backoff{Base: 2 * time.Second, Cap: time.Second}, []string{"Base 2s is longer than its Cap 1s: want Base ≤ Cap"}},
		{Backoff{Base: time.Hour}, []string{"Base 1h0m0s is longer than its Cap 5m0s (the default)"}},
		{Backoff{Cap: time.Millisecond}, []string{"Base 1s (the default) is longer than its Cap 1ms"}},
	} {
		err := c.b.validate()
		for _, want := range c.want {
			require.ErrorContains(t, err, want)
		}
	}
	require.NoError(t, Backoff{Base: time.Millisecond, Cap: time.Millisecond}.validate())
	require.NoError(t, Backoff{Cap: time.Hour}.validate())
}
