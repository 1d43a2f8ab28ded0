package lease

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
)

// resolved waits for the truth about a call whose outcome was unknown.
func resolved(t *testing.T, err error) error {
	t.Helper()
	var unknown *UnknownError
	require.ErrorAs(t, err, &unknown)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	truth := unknown.Resolve(ctx)
	require.NoError(t, ctx.Err(), "it must become known")
	return truth
}

// takeAll claims n jobs, however few come at a time.
func (b *bench) takeAll(t *testing.T, n int) (all []Lease) {
	t.Helper()
	for len(all) < n {
		got, err := b.Claim(t.Context(), n, nil)
		require.NoError(t, err)
		require.NotEmpty(t, got.Jobs)
		all = append(all, got.Jobs...)
	}
	return all
}

func TestJobsOfAClaimWhoseReplyWasLostComeBackUncountedWithTheNextNumber(t *testing.T) {
	t.Parallel()
	b, proxy := behindProxy(t, nil)
	b.publish(t, Policy{Lease: time.Hour})
	b.put(t, names("j", 100)...)
	seen := intercept(proxy, claimScript, first(3, netfault.DropReply))
	before := b.now(t).UnixMilli()
	got, err := b.Claim(t.Context(), 80, nil)
	require.NoError(t, err)
	assert.EqualValues(t, 4, seen.Load())
	require.Len(t, got.Jobs, 10, "80, 40, 20, and then 10")
	assert.EqualValues(t, 10, b.rdb.ZCard(t.Context(), b.key("processing")).Val(), "nothing is leased to nobody")
	assert.EqualValues(t, 90, b.rdb.ZCard(t.Context(), b.key("due")).Val())
	for _, z := range b.rdb.ZRangeWithScores(t.Context(), b.key("due"), 0, -1).Val() {
		if z.Score >= float64(before) {
			assert.LessOrEqual(t, int64(z.Score), b.now(t).UnixMilli(), "back at once")
		}
	}
	assert.Equal(t, 150, b.count(t, "claimed"))
	assert.Equal(t, 140, b.count(t, "released"))

	rest := 90
	for _, want := range []int{20, 40, 30} {
		claimed, err := b.Claim(t.Context(), 80, nil)
		require.NoError(t, err)
		assert.Len(t, claimed.Jobs, want, "twice as many after each success")
		got.Jobs = append(got.Jobs, claimed.Jobs...)
		rest -= want
	}
	require.Zero(t, rest)
	last := int64(0)
	starts := map[string]bool{}
	for _, l := range got.Jobs {
		assert.Equal(t, 1, l.Attempt())
		assert.Greater(t, l.Fence, last)
		assert.False(t, starts[l.ID])
		last, starts[l.ID] = l.Fence, true
		require.NoError(t, b.settle(t, verdict(Ack, l))[0].Err)
	}
	assert.Equal(t, 100, b.count(t, "acked"))
}

func TestNothingThatWasSeenIsGivenBackWithTheUnseen(t *testing.T) {
	t.Parallel()
	b, proxy := behindProxy(t, nil)
	b.put(t, names("j", 12)...)
	kept := b.take(t, 4)
	other := takeFrom(t, b.another(t, nil), 2)
	intercept(proxy, claimScript, first(2, netfault.DropReply))
	more := b.take(t, 1)
	proxy.Decide(nil)
	for _, l := range append(append(kept, other...), more...) {
		assert.Equal(t, l.Token, b.rdb.HGet(t.Context(), b.key("leases"), l.ID).Val(), "still held")
	}
	assert.EqualValues(t, 7, b.rdb.ZCard(t.Context(), b.key("processing")).Val())
	for _, l := range append(kept, more...) {
		assert.NoError(t, b.settle(t, verdict(Ack, l))[0].Err)
	}
}

func TestAJobThatWasCancelledWhileNobodyHadSeenItsLeaseIsRemoved(t *testing.T) {
	t.Parallel()
	b, proxy := behindProxy(t, nil)
	direct := b.another(t, b.rdb)
	b.putItems(t, Item{ID: "a", Record: []byte("r"), MaxRetries: ptr(3)}, Item{ID: "b", Record: []byte("r")})
	intercept(proxy, claimScript, func(n int64) netfault.Action {
		if n == 1 {
			return netfault.DropReply
		}
		_, err := direct.Cancel(context.Background(), []string{"a"})
		assert.NoError(t, err)
		return netfault.Pass
	})
	got, err := b.Claim(t.Context(), 2, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"b"}, idsOf(got.Jobs))
	assert.Equal(t, Info{ID: "a", Record: []byte{}}, b.look(t, "a"))
	assert.Equal(t, 1, b.count(t, "cancelled_processing"))
	assert.Equal(t, 1, b.count(t, "released"))
	assert.Empty(t, b.rdb.HGetAll(t.Context(), b.key("counts")).Val())
}

func TestACallerThatLeavesDuringAClaimGivesTheJobsBack(t *testing.T) {
	t.Parallel()
	for _, action := range []netfault.Action{netfault.Pass, netfault.DropReply, netfault.DropRequest} {
		for _, cancelled := range []bool{false, true} {
			t.Run(action.String(), func(t *testing.T) {
				t.Parallel()
				b, proxy := behindProxy(t, nil)
				b.put(t, "a", "b", "c")
				b.wakeUps(t)
				proxy.Delay(5 * time.Millisecond) // so that the caller has left when the answer comes
				direct := b.another(t, b.rdb)
				ctx, cancel := context.WithCancel(t.Context())
				intercept(proxy, claimScript, func(n int64) netfault.Action {
					cancel()
					if n == 1 {
						return action
					}
					if cancelled { // between the claim and its seal
						_, err := direct.Cancel(context.Background(), []string{"a"})
						assert.NoError(t, err)
					}
					return netfault.Pass
				})
				_, err := b.Claim(ctx, 3, nil)
				require.ErrorIs(t, resolved(t, err), ErrNeverRan)
				want := []string{"a", "b", "c"}
				if cancelled {
					want = want[1:]
				}
				assert.Equal(t, want, b.rdb.ZRange(t.Context(), b.key("due"), 0, -1).Val())
				assert.Zero(t, b.rdb.Exists(t.Context(), b.key("processing"), b.key("leases")).Val())
				if action != netfault.DropRequest {
					assert.EqualValues(t, 1, b.wakeUps(t), "others are told")
				}
				proxy.Decide(nil)
				for _, l := range b.takeAll(t, len(want)) {
					assert.Equal(t, 1, l.Attempt())
				}
			})
		}
	}
}

// The request arrives after the claim was sealed, from a socket of a server that slept: it must lease nothing.
func TestAClaimThatArrivesAfterItsSealLeasesNothing(t *testing.T) {
	t.Parallel()
	b, proxy := behindProxy(t, func(o *redis.Options) { o.ReadTimeout = 100 * time.Millisecond })
	b.put(t, "a", "b", "c")
	ctx, cancel := context.WithCancel(t.Context())
	var marked atomic.Bool
	proxy.Decide(func(cmd []string) netfault.Action {
		if cmd[0] == "evalsha" && cmd[1] == claimScript.SHA() && marked.CompareAndSwap(false, true) {
			cancel()
			return netfault.Hold
		}
		return netfault.Pass
	})
	_, err := b.Claim(ctx, 3, nil)
	require.ErrorIs(t, resolved(t, err), ErrNeverRan)
	connections := proxy.Connections()
	require.Equal(t, 1, proxy.ReleaseHeld())
	require.Eventually(t, func() bool { return proxy.Connections() < connections }, patience, pollEvery, "it arrives, and its connection ends")
	assert.Zero(t, b.rdb.ZCard(t.Context(), b.key("processing")).Val())
	assert.Len(t, b.takeAll(t, 3), 3)
	assert.Equal(t, 3, b.count(t, "claimed"))
}

func TestAShorterLeaseThanPublishedStillGivesBackTheUnseen(t *testing.T) {
	t.Parallel()
	b, proxy := behindProxy(t, nil)
	direct := b.another(t, b.rdb)
	b.put(t, "a", "b")
	intercept(proxy, claimScript, func(n int64) netfault.Action {
		if n == 1 {
			return netfault.DropReply
		}
		_, err := direct.Publish(context.Background(), &Policy{Lease: time.Hour})
		assert.NoError(t, err)
		return netfault.Pass
	})
	_, err := b.Claim(t.Context(), 2, &ClaimOptions{Lease: time.Minute})
	var short *ShortLeaseError
	require.ErrorAs(t, err, &short)
	assert.EqualValues(t, 2, b.rdb.ZCard(t.Context(), b.key("due")).Val())
	assert.Equal(t, 2, b.count(t, "released"))
	proxy.Decide(nil)
	b.takeAll(t, 2)
	assert.Equal(t, 2, b.count(t, "released"), "once")
}
