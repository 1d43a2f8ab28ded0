package lease

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
)

// claims are what one claim found.
type claims struct {
	Jobs int
	Held string
	Next time.Duration
}

func claimsOf(got Claimed) claims { return claims{len(got.Jobs), got.Held, got.NextDue} }

func TestAClaimTakesWhatTheConcurrencyLeaves(t *testing.T) {
	for _, limit := range []int{1, 2, 5} {
		for _, n := range []int{1, limit - 1, limit, limit + 1, 100} {
			if n == 0 {
				continue
			}
			t.Run(fmt.Sprintf("%d of %d", n, limit), func(t *testing.T) {
				onBoth(t, func(t *testing.T, b *bench) {
					b.publish(t, Policy{Concurrency: &limit})
					b.put(t, names("j", 3*limit)...)
					var got Claimed
					given := 0
					for given < limit {
						got = b.claimSome(t, n)
						require.Len(t, got.Jobs, min(n, limit-given))
						if given += len(got.Jobs); given < limit {
							require.Equal(t, claims{n, "", 0}, claimsOf(got))
						}
					}
					assert.Equal(t, claims{len(got.Jobs), HeldConcurrency, -1 * time.Millisecond}, claimsOf(got))
					b.wakeUps(t)
					assert.Equal(t, claims{0, HeldConcurrency, -1 * time.Millisecond}, claimsOf(b.claimSome(t, n)))
					assert.Zero(t, b.wakeUps(t), "nobody is woken up in vain")
					assert.Equal(t, Settled{}, b.settle(t, verdict(Ack, got.Jobs[0]))[0])
					assert.EqualValues(t, 1, b.wakeUps(t))
					assert.Equal(t, claims{1, HeldConcurrency, -1 * time.Millisecond}, claimsOf(b.claimSome(t, n)), "the place is given again")
				})
			})
		}
	}
}

func TestAConcurrencyOfNothingIsNoLimit(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.put(t, names("j", 30)...)
		for _, limit := range []int{0, NoLimit} {
			b.publish(t, Policy{Concurrency: &limit})
			assert.Equal(t, claims{10, "", 0}, claimsOf(b.claimSome(t, 10)))
		}
		b.publish(t, Policy{Concurrency: ptr(7)}) // lower than what is held
		assert.Equal(t, claims{0, HeldConcurrency, -1 * time.Millisecond}, claimsOf(b.claimSome(t, 10)))
		b.wakeUps(t)
		b.publish(t, Policy{Concurrency: ptr(21)})
		assert.EqualValues(t, 1, b.wakeUps(t), "a raised limit wakes somebody up")
		assert.Equal(t, claims{1, HeldConcurrency, -1 * time.Millisecond}, claimsOf(b.claimSome(t, 10)))
		b.wakeUps(t)
		b.pin(t, Policy{Concurrency: ptr(NoLimit)})
		assert.EqualValues(t, 1, b.wakeUps(t))
		assert.Equal(t, claims{9, "", -1 * time.Millisecond}, claimsOf(b.claimSome(t, 10)), "nothing is left")
	})
}

// Whatever ends a lease frees a place, and whoever waits for it is told.
func TestEachWayToFreeAPlaceWakesSomebodyUp(t *testing.T) {
	ways := map[string]func(t *testing.T, b *bench, l Lease){
		"ack": func(t *testing.T, b *bench, l Lease) { b.settle(t, verdict(Ack, l)) },
		"nack with a delay": func(t *testing.T, b *bench, l Lease) {
			b.settle(t, Verdict{Op: Nack, ID: l.ID, Token: l.Token, Delay: time.Hour})
		},
		"release with a delay": func(t *testing.T, b *bench, l Lease) {
			b.settle(t, Verdict{Op: Release, ID: l.ID, Token: l.Token, Delay: time.Hour})
		},
		"bury": func(t *testing.T, b *bench, l Lease) { b.settle(t, verdict(Bury, l)) },
		"cancelled": func(t *testing.T, b *bench, l Lease) {
			_, err := b.Cancel(t.Context(), []string{l.ID})
			require.NoError(t, err)
			b.wakeUps(t)
			b.settle(t, verdict(Nack, l))
		},
		"expired to dead": func(t *testing.T, b *bench, l Lease) {
			assert.Equal(t, 1, b.expireAll(t, l).ToDead)
		},
		"cancelled and expired": func(t *testing.T, b *bench, l Lease) {
			_, err := b.Cancel(t.Context(), []string{l.ID})
			require.NoError(t, err)
			b.wakeUps(t)
			assert.Equal(t, 1, b.expireAll(t, l).Cancelled)
		},
		"expired without a record": func(t *testing.T, b *bench, l Lease) {
			require.NoError(t, b.rdb.HDel(t.Context(), b.key("jobs"), l.ID).Err())
			assert.Equal(t, 1, b.expireAll(t, l).Missing)
		},
	}
	for name, free := range ways {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, b *bench) {
				b.publish(t, Policy{Concurrency: ptr(1), MaxExpiries: ptr(0)})
				b.put(t, "a", "b")
				l := b.take(t, 1)[0]
				b.wakeUps(t)
				free(t, b, l)
				assert.EqualValues(t, 1, b.wakeUps(t))
				assert.Equal(t, "b", b.take(t, 1)[0].ID)
				b.wakeUps(t)
			})
		})
	}
}

func TestAFreedPlaceWakesNobodyWhereNothingWaits(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.publish(t, Policy{Concurrency: ptr(2)})
		b.put(t, "a")
		b.putItems(t, Item{ID: "later", Record: record("later"), Delay: time.Hour})
		l := b.take(t, 1)[0]
		b.wakeUps(t)
		b.settle(t, verdict(Ack, l))
		assert.Zero(t, b.wakeUps(t))
		b.publish(t, Policy{Concurrency: ptr(NoLimit)})
		b.put(t, "b", "c")
		l = b.take(t, 1)[0]
		b.wakeUps(t)
		b.settle(t, verdict(Ack, l))
		assert.Zero(t, b.wakeUps(t), "without a limit nobody has waited for a place")
	})
}

// A lease that nobody saw holds its place until its session's next claim, which may use it at once.
func TestPlacesOfWhatNobodySawAreGivenAgain(t *testing.T) {
	t.Parallel()
	b, proxy := behindProxy(t, nil)
	b.publish(t, Policy{Concurrency: ptr(4)})
	b.put(t, names("j", 20)...)
	intercept(proxy, claimScript, first(1, netfault.DropReply))
	got := b.claimSome(t, 8)
	assert.Equal(t, claims{4, HeldConcurrency, -1 * time.Millisecond}, claimsOf(got))
	assert.EqualValues(t, 4, b.rdb.ZCard(t.Context(), b.key("processing")).Val())
	assert.Equal(t, []int{8, 4}, []int{b.count(t, "claimed"), b.count(t, "released")})
}

// A settle and a claim of one round trip are one script, which reads the policy once.
func TestAnExchangeUsesThePlacesThatItFrees(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		loadScripts(t, b.rdb)
		b.publish(t, Policy{Concurrency: ptr(3)})
		b.put(t, names("j", 20)...)
		held := b.take(t, 3)
		for range 5 {
			done, settleErr, got, claimErr := b.Exchange(t.Context(), []Verdict{verdict(Ack, held[0]), verdict(Ack, held[1])}, 10, nil)
			require.NoError(t, settleErr)
			require.NoError(t, claimErr)
			require.Equal(t, []Settled{{}, {}}, done)
			require.Equal(t, claims{2, HeldConcurrency, -1 * time.Millisecond}, claimsOf(got))
			held = append(held[2:], got.Jobs...)
		}
	})
}
