package reliable

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leaseq/leaseq/lease"
)

// handClock is a clock that a test moves by hand.
type handClock struct {
	mu sync.Mutex
	at time.Time
}

func newHandClock() *handClock { return &handClock{at: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} }

func (c *handClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *handClock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// requireDrawnFrom shows that d is in the upper half of what it was drawn from.
func requireDrawnFrom(t require.TestingT, upper, d time.Duration) {
	require.Greater(t, d, upper/2-1)
	require.LessOrEqual(t, d, upper)
}

func TestDelaysOfAKeyDoubleFromOneSecondToThirty(t *testing.T) {
	t.Parallel()
	for name, g := range map[string]*growingDelays{
		"kinds": newUnknownKinds(newHandClock().now), "versions": newNewerVersions(newHandClock().now),
	} {
		for _, upper := range []time.Duration{1, 2, 4, 8, 16, 30, 30, 30} {
			d, expired := g.next("order.close")
			require.False(t, expired, name)
			requireDrawnFrom(t, upper*time.Second, d)
		}
		d, _ := g.next("another")
		requireDrawnFrom(t, time.Second, d)
	}
}

func TestDelaysAreJittered(t *testing.T) {
	t.Parallel()
	g := newUnknownKinds(newHandClock().now)
	seen := map[time.Duration]bool{}
	for range 100 {
		d, _ := g.next("k")
		seen[d] = true
	}
	require.Greater(t, len(seen), 90)
}

func TestAKindExpiresFiveMinutesAfterItWasFirstSeenAndStaysSo(t *testing.T) {
	t.Parallel()
	clock := newHandClock()
	g := newUnknownKinds(clock.now)
	_, expired := g.next("k")
	require.False(t, expired)
	clock.move(5*time.Minute - 1)
	d, expired := g.next("k")
	require.False(t, expired)
	require.Positive(t, d)
	clock.move(1)
	for range 3 {
		d, expired = g.next("k")
		require.True(t, expired)
		require.Zero(t, d)
		clock.move(time.Hour)
	}
	_, expired = g.next("seen later")
	require.False(t, expired, "each kind has its own window")
}

func TestTheWindowIsKeptOnTheRealClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newUnknownKinds(time.Now)
		_, expired := g.next("k")
		require.False(t, expired)
		<-time.After(5*time.Minute - 1)
		_, expired = g.next("k")
		require.False(t, expired)
		<-time.After(1)
		_, expired = g.next("k")
		require.True(t, expired)
	})
}

func TestNewerVersionsAreReleasedWithoutEnd(t *testing.T) {
	t.Parallel()
	clock := newHandClock()
	g := newNewerVersions(clock.now)
	errNewer := errors.New("version 2")
	for n := range 20 {
		v := g.verdictForNewerVersion(2, errNewer)
		require.Equal(t, opRelease, v.op)
		require.True(t, v.hasDelay)
		require.Equal(t, errNewer, v.err)
		requireDrawnFrom(t, min(time.Second<<n, 30*time.Second), v.delay)
		clock.move(24 * time.Hour)
	}
	requireDrawnFrom(t, time.Second, g.verdictForNewerVersion(3, errNewer).delay)
}

func TestAnUnknownKindIsReleasedThenNacked(t *testing.T) {
	t.Parallel()
	clock := newHandClock()
	g := newUnknownKinds(clock.now)
	errMux := NewMux().Handle(t.Context(), &Job{Kind: "k"})
	v := g.verdictForUnknownKind("k", errMux)
	require.Equal(t, opRelease, v.op)
	require.True(t, v.hasDelay)
	requireDrawnFrom(t, time.Second, v.delay)
	clock.move(5 * time.Minute)
	v = g.verdictForUnknownKind("k", errMux)
	require.Equal(t, verdict{op: opNack, class: lease.ClassNoHandler, err: errMux}, v)
	require.Equal(t, `no handler for kind "k"`, reasonOf(v.err))
}

func TestAThousandKindsAreRememberedAndTheOldestIsForgotten(t *testing.T) {
	t.Parallel()
	clock := newHandClock()
	g := newUnknownKinds(clock.now)
	for n := range 1000 {
		g.next(strconv.Itoa(n))
		g.next(strconv.Itoa(n))
	}
	d, _ := g.next("0")
	requireDrawnFrom(t, 4*time.Second, d)

	clock.move(5 * time.Minute)
	d, expired := g.next("new") // forgets 0, whose window is over
	require.False(t, expired)
	requireDrawnFrom(t, time.Second, d)
	_, expired = g.next("1")
	require.True(t, expired, "1 is still known")
	d, expired = g.next("0") // forgets 1
	require.False(t, expired, "0 begins anew")
	requireDrawnFrom(t, time.Second, d)
	_, expired = g.next("1") // forgets 2
	require.False(t, expired, "1 begins anew")
	require.Len(t, g.known, 1000)
	require.Len(t, g.order, 1000)
}

func TestTooManyKindsAtOnceBeginWithTheLongestDelay(t *testing.T) {
	t.Parallel()
	g := newUnknownKinds(newHandClock().now)
	for n := range 1000 {
		g.next(strconv.Itoa(n))
	}
	for range 2 {
		for n := range 1001 {
			if d, _ := g.next("other" + strconv.Itoa(n)); d < 15*time.Second {
				requireDrawnFrom(t, 30*time.Second, d)
			}
		}
	}
}

func TestGrowingDelaysAgreeWithAPlainModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		clock := newHandClock()
		g := newUnknownKinds(clock.now)
		g.limit = rapid.IntRange(1, 4).Draw(t, "limit")
		type seen struct {
			key   string
			since time.Time
			upper time.Duration
		}
		var model []*seen // oldest first
		over := func(s *seen) bool { return clock.now().Sub(s.since) >= 5*time.Minute }
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			clock.move(time.Duration(rapid.Int64Range(0, int64(3*time.Minute)).Draw(t, "wait")))
			key := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}).Draw(t, "key")
			var k *seen
			for _, s := range model {
				if s.key == key {
					k = s
				}
			}
			if k == nil {
				k = &seen{key: key, since: clock.now(), upper: time.Second}
				if len(model) == g.limit {
					if !over(model[0]) {
						k.upper = 30 * time.Second
					}
					model = model[1:]
				}
				model = append(model, k)
			}
			d, expired := g.next(key)
			require.Equal(t, over(k), expired)
			if !expired {
				requireDrawnFrom(t, k.upper, d)
				k.upper = min(2*k.upper, 30*time.Second)
			}
			require.Len(t, g.known, len(model))
		}
	})
}

func TestGrowingDelaysMayBeAskedByManyGoroutines(t *testing.T) {
	t.Parallel()
	g := newUnknownKinds(time.Now)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for n := range 500 {
				g.next(strconv.Itoa(n % 7))
			}
		})
	}
	wg.Wait()
	require.Len(t, g.known, 7)
}

func TestNoHandlerIsToldFromWhatSomebodyHasDecided(t *testing.T) {
	t.Parallel()
	none := fmt.Errorf("%w for kind %q", ErrNoHandler, "k")
	require.True(t, saysNoHandler(none))
	require.True(t, saysNoHandler(fmt.Errorf("middleware: %w", none)))
	require.True(t, saysNoHandler(errors.Join(errCard, none)))
	for _, err := range []error{nil, errCard, Discard(none), RetryAfter(time.Minute, none), errors.Join(none, Release(nil)),
		errors.New("no handler"), &BadPayloadError{Kind: "k", Err: none}} {
		require.False(t, saysNoHandler(err), "%v", err)
	}
}
