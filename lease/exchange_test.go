package lease

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/script"
)

func TestExchangeSettlesAndClaimsInOneRoundTrip(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.put(t, names("j", 10)...)
		held := b.take(t, 3)
		done, settleErr, claimed, claimErr := b.Exchange(t.Context(), []Verdict{
			verdict(Ack, held[0]), verdict(Ack, held[0]), {Op: Nack, ID: held[1].ID, Token: held[1].Token, Delay: 1e12},
		}, 4, nil)
		require.NoError(t, settleErr)
		require.NoError(t, claimErr)
		assert.Equal(t, []Settled{{}, {Err: ErrGone}, {Place: Due}}, done)
		assert.Equal(t, []string{"j0003", "j0004", "j0005", "j0006"}, idsOf(claimed.Jobs))

		done, settleErr, claimed, claimErr = b.Exchange(t.Context(), nil, 2, nil)
		require.NoError(t, settleErr)
		require.NoError(t, claimErr)
		assert.Empty(t, done)
		assert.Len(t, claimed.Jobs, 2)
		done, settleErr, claimed, claimErr = b.Exchange(t.Context(), []Verdict{verdict(Ack, held[2])}, 0, nil)
		require.NoError(t, settleErr)
		require.NoError(t, claimErr)
		assert.Equal(t, []Settled{{}}, done)
		assert.Empty(t, claimed.Jobs)
	})
}

func TestExchangeNeedsOneScriptCallAndTwoSessions(t *testing.T) {
	t.Parallel()
	b, proxy := behindProxy(t, nil)
	b.put(t, names("j", 10)...)
	held := b.take(t, 1)
	var scripts atomic.Int64
	proxy.Decide(func(cmd []string) netfault.Action {
		if cmd[0] == "evalsha" {
			scripts.Add(1)
		}
		return netfault.Pass
	})
	_, settleErr, _, claimErr := b.Exchange(t.Context(), []Verdict{verdict(Ack, held[0])}, 1, nil)
	require.NoError(t, settleErr)
	require.NoError(t, claimErr)
	assert.EqualValues(t, 1, scripts.Load())
	assert.EqualValues(t, 2, b.rdb.HLen(t.Context(), b.key("sessions")).Val())
}

func TestARefusedHalfOfAnExchangeLeavesTheOtherHalfAlone(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.publish(t, Policy{Lease: 1e10})
		b.put(t, "a", "b")
		held := b.take(t, 1)
		done, settleErr, _, claimErr := b.Exchange(t.Context(), []Verdict{verdict(Ack, held[0])}, 1, &ClaimOptions{Lease: 1})
		require.NoError(t, settleErr)
		assert.Equal(t, []Settled{{}}, done)
		var short *ShortLeaseError
		require.ErrorAs(t, claimErr, &short)
	})
}

// The claim's reply is lost, or both replies: the settle keeps its answer, and the next claim gives back what it leased.
func TestExchangeKeepsItsAnswersWhenRepliesAreLost(t *testing.T) {
	t.Parallel()
	for name, victim := range map[string]*script.Script{"settle": settleScript, "claim": claimScript} {
		for _, action := range []netfault.Action{netfault.DropReply, netfault.DropRequest} {
			t.Run(name+" "+action.String(), func(t *testing.T) {
				t.Parallel()
				b, proxy := behindProxy(t, nil)
				b.put(t, names("j", 30)...)
				held := b.take(t, 4)
				intercept(proxy, victim, first(2, action))
				verdicts := []Verdict{verdict(Ack, held[0]), verdict(Nack, held[1]), verdict(Release, held[2]), verdict(Bury, held[3])}
				done, settleErr, claimed, claimErr := b.Exchange(t.Context(), verdicts, 8, nil)
				require.NoError(t, settleErr)
				require.NoError(t, claimErr)
				assert.Equal(t, []Settled{{}, {Place: Due}, {Place: Due}, {Place: Dead}}, done, "the first answers")
				require.NotEmpty(t, claimed.Jobs)
				for i := range claimed.Jobs {
					assert.Equal(t, claimed.Jobs[i].Token, b.rdb.HGet(t.Context(), b.key("leases"), claimed.Jobs[i].ID).Val())
				}
				assert.EqualValues(t, len(claimed.Jobs), b.rdb.ZCard(t.Context(), b.key("processing")).Val(), "nothing is leased to nobody")
				for stat, want := range map[string]int{"acked": 1, "nacked": 1, "buried": 1} {
					assert.Equal(t, want, b.count(t, stat), stat)
				}
			})
		}
	}
}
