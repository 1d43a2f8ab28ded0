package lease

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
)

// At once as many start as 100 ms of the rate make up, and one at least.
func TestAFreshRateGivesWhat100MillisecondsMakeUp(t *testing.T) {
	for _, c := range []struct {
		rate     int
		interval time.Duration
		want     int
		each     time.Duration
	}{
		{1, time.Second, 1, time.Second}, {10, time.Second, 1, 100 * time.Millisecond}, {20, time.Second, 2, 50 * time.Millisecond},
		{100, time.Second, 10, 10 * time.Millisecond}, {1000, time.Minute, 1, 60 * time.Millisecond}, {3, time.Hour, 1, 20 * time.Minute},
		{1, 24 * time.Hour, 1, 24 * time.Hour},
	} {
		for _, n := range []int{1, c.want - 1, c.want, c.want + 1, 100} {
			if n == 0 {
				continue
			}
			t.Run(fmt.Sprintf("%d of %d in %v", n, c.rate, c.interval), func(t *testing.T) {
				onBoth(t, func(t *testing.T, b *bench) {
					b.publish(t, Policy{Rate: &c.rate, RateInterval: c.interval})
					b.put(t, names("j", 110)...)
					b.wakeUps(t)
					got := b.claimSome(t, n)
					if n < c.want {
						assert.Equal(t, claims{n, "", 0}, claimsOf(got))
						return
					}
					assert.Equal(t, []any{c.want, HeldRate}, []any{len(got.Jobs), got.Held})
					left := c.each
					if c.want == 1 {
						left -= 10 * time.Millisecond // which may be caught up
					}
					assert.LessOrEqual(t, got.NextDue, left)
					assert.Greater(t, got.NextDue, left-2*time.Millisecond, "then the next may start")
					assert.Zero(t, b.wakeUps(t), "who knows the time comes then")
				})
			})
		}
	}
}

func TestARateOfNothingIsNoLimitAndAChangeHoldsAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.put(t, names("j", 60)...)
		for _, none := range []int{0, NoLimit} {
			b.publish(t, Policy{Rate: &none})
			assert.Equal(t, claims{10, "", 0}, claimsOf(b.claimSome(t, 10)))
		}
		b.publish(t, Policy{Rate: ptr(1), RateInterval: 24 * time.Hour})
		assert.Len(t, b.claimSome(t, 10).Jobs, 1)
		got := b.claimSome(t, 10)
		assert.Equal(t, []any{0, HeldRate}, []any{len(got.Jobs), got.Held})
		assert.InDelta(t, 24*time.Hour, got.NextDue, float64(time.Minute))
		b.wakeUps(t)
		b.publish(t, Policy{Rate: ptr(10), RateInterval: time.Second}) // what the slow one has booked ahead does not count
		assert.EqualValues(t, 1, b.wakeUps(t), "a raised rate wakes somebody up")
		assert.LessOrEqual(t, b.claimSome(t, 10).NextDue, 100*time.Millisecond)
		b.publish(t, Policy{Rate: ptr(NoLimit)})
		assert.GreaterOrEqual(t, len(b.claimSome(t, 10).Jobs), 9)
	})
}

// What stands there after a step of the clock, or by somebody's hand, does not stop the queue.
func TestARatesStateThatIsOddDoesNotStopTheQueue(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.publish(t, Policy{Rate: ptr(20)})
		b.put(t, "a", "b", "c", "d", "e", "f", "g")
		set := func(state any) {
			require.NoError(t, b.rdb.HSet(t.Context(), b.key("policy"), "rate_next_us", state).Err())
		}
		set(b.now(t).Add(time.Hour).UnixMicro())
		got := b.claimSome(t, 1)
		assert.Equal(t, []any{0, HeldRate}, []any{len(got.Jobs), got.Held})
		assert.LessOrEqual(t, got.NextDue, 51*time.Millisecond)
		for _, state := range []any{"", "nonsense", -5, 1} {
			set(state)
			assert.Len(t, b.claimSome(t, 1).Jobs, 1, "%v", state)
		}
		require.NoError(t, b.rdb.HSet(t.Context(), b.key("policy"), "rate_interval_ms", 0).Err())
		assert.Len(t, b.claimSome(t, 1).Jobs, 1)
	})
}

func TestThePauseAndTheConcurrencyComeBeforeTheRate(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.publish(t, Policy{Rate: ptr(1), RateInterval: time.Hour, Concurrency: ptr(1)})
		b.put(t, "a", "b")
		assert.Equal(t, claims{1, HeldConcurrency, -1 * time.Millisecond}, claimsOf(b.claimSome(t, 5)))
		b.publish(t, Policy{Concurrency: ptr(2)})
		assert.Equal(t, HeldRate, b.claimSome(t, 5).Held)
		require.NoError(t, b.PauseFor(t.Context(), 2*time.Hour))
		assert.Equal(t, HeldPaused, b.claimSome(t, 5).Held)
	})
}

// A start counts also where nobody saw it, and where the job is given back unstarted.
func TestAStartCountsThoughItIsGivenBack(t *testing.T) {
	t.Parallel()
	b, proxy := behindProxy(t, nil)
	b.publish(t, Policy{Rate: ptr(1), RateInterval: time.Hour})
	b.put(t, "a", "b")
	intercept(proxy, claimScript, first(1, netfault.DropReply))
	got := b.claimSome(t, 1)
	assert.Equal(t, []any{0, HeldRate}, []any{len(got.Jobs), got.Held})
	assert.Equal(t, []int{1, 1}, []int{b.count(t, "claimed"), b.count(t, "released")})
}

// Of any starts each k + burst + 1 take k of the rate's steps, whoever claims, by Redis' clock, which the fences have.
func TestManyClaimersKeepTheRateExactly(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		const rate, burst, each = 200, 20, 5_000 // µs
		b.publish(t, Policy{Rate: ptr(rate)})
		b.put(t, names("j", 1000)...)
		var mu sync.Mutex
		var starts []int64
		var claimers sync.WaitGroup
		end := time.Now().Add(1500 * time.Millisecond)
		for range 4 {
			store := b.another(t, nil)
			claimers.Go(func() {
				for time.Now().Before(end) {
					got, err := store.Claim(t.Context(), 7, nil)
					assert.NoError(t, err)
					mu.Lock()
					for i := range got.Jobs {
						starts = append(starts, got.Jobs[i].Fence)
					}
					mu.Unlock()
				}
			})
		}
		claimers.Wait()
		slices.Sort(starts)
		lost := int64(0)
		for i, at := range starts {
			if i > 0 {
				lost += max(at-starts[i-1]-burst*each, 0)
			}
			for _, k := range []int{burst, rate / 2, rate} {
				if i+k < len(starts) {
					require.GreaterOrEqual(t, starts[i+k]-at, int64((k-burst+1)*each-100), "%d starts after the one at %d", k, i)
				}
			}
		}
		took := starts[len(starts)-1] - starts[0]
		want := int(took-lost) / each
		told := fmt.Sprintf("in %d µs, of which nobody came for %d", took, lost)
		assert.LessOrEqual(t, len(starts), want+burst+2, told)
		if strings.HasSuffix(t.Name(), "/miniredis") {
			want = want * 2 / 3 // whose scripts take so long on a busy machine that claimers come late by less than counts as lost
		}
		assert.GreaterOrEqual(t, len(starts), want-2, told)
	})
}
