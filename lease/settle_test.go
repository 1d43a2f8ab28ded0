package lease

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redistest"
)

func TestAckRemovesEverythingOfAJob(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.putItems(t, Item{ID: "a", Record: record("a"), MaxRetries: ptr(9)})
		l := b.take(t, 1)[0]
		b.settle(t, Verdict{Op: Nack, ID: "a", Token: l.Token, Reason: "once"})
		l = b.take(t, 1)[0]
		assert.Equal(t, Settled{}, b.settle(t, verdict(Ack, l))[0])
		b.wakeUps(t)
		assert.Empty(t, b.dump(t))
		assert.Equal(t, Info{ID: "a", Record: []byte{}}, b.look(t, "a"))
		assert.Equal(t, 1, b.count(t, "acked"))
	})
}

func TestNackPutsTheJobBackUntilItsRetriesAreUsedUp(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		for name, limits := range map[string]struct {
			queue, own *int
			starts     int
		}{
			"queue 0": {ptr(0), nil, 1}, "queue 1": {ptr(1), nil, 2}, "queue 4": {ptr(4), nil, 5},
			"own 0": {ptr(4), ptr(0), 1}, "own 1": {ptr(0), ptr(1), 2}, "own 3": {ptr(0), ptr(3), 4},
		} {
			b.publish(t, Policy{MaxRetries: limits.queue})
			b.putItems(t, Item{ID: name, Record: record(name), MaxRetries: limits.own})
			for start := 1; ; start++ {
				l := b.take(t, 1)[0]
				assert.Equal(t, start, l.Attempt(), name)
				assert.Equal(t, start-1, l.Failures, name)
				got := b.settle(t, Verdict{Op: Nack, ID: name, Token: l.Token, Reason: "no"})[0]
				require.NoError(t, got.Err)
				if got.Place == Dead {
					assert.Equal(t, limits.starts, start, name)
					break
				}
				require.Equal(t, Due, got.Place)
				require.Less(t, start, limits.starts, name)
			}
			info := b.look(t, name)
			assert.Equal(t, limits.starts, info.Failures, name)
			assert.Equal(t, string(record(name)), string(info.Record), name)
		}
	})
}

func TestTwentyRetriesHoldWhereNothingWasPublished(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.put(t, "a")
		starts := 0
		for b.look(t, "a").Place == Due {
			l := b.take(t, 1)[0]
			starts++
			b.settle(t, Verdict{Op: Nack, ID: "a", Token: l.Token})
		}
		assert.Equal(t, 21, starts)
	})
}

func TestDelaysOfNackAndReleaseCountFromRedisNowAndRoundUp(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		for i, delay := range []time.Duration{0, 1, time.Millisecond, 1500 * time.Microsecond, time.Minute + 1, 36 * time.Hour} {
			for _, op := range []Op{Nack, Release} {
				id := string(op) + delay.String()
				b.put(t, id)
				l := b.take(t, 1)[0]
				v := verdict(op, l)
				v.Delay = delay
				before := b.now(t)
				assert.Equal(t, Settled{Place: Due}, b.settle(t, v)[0])
				after := b.now(t)
				due := b.score(t, Due, id)
				if delay == 0 {
					assert.True(t, due >= before.UnixMilli() && due <= after.UnixMilli())
				} else {
					assert.GreaterOrEqual(t, due*1000, before.Add(delay).UnixMicro(), "%d: not early", i)
					assert.Less(t, due*1000, after.Add(delay).UnixMicro()+2001)
				}
				_, err := b.Cancel(t.Context(), []string{id})
				require.NoError(t, err)
			}
		}
	})
}

func TestReleaseCountsNothingAndCanKeepThePlaceInTheQueue(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		var items []Item
		for i, id := range []string{"a", "b", "c", "d"} {
			items = append(items, Item{ID: id, Record: record(id), At: time.UnixMilli(int64(1_000_000 + i))})
		}
		b.putItems(t, items...)
		leases := b.take(t, 3)
		for i := range leases { // the last goes back first
			l := &leases[2-i]
			v := verdict(Release, *l)
			v.KeepDue(l)
			assert.Equal(t, Settled{Place: Due}, b.settle(t, v)[0])
			assert.Equal(t, l.Due.UnixMilli(), b.score(t, Due, l.ID))
		}
		again := b.take(t, 4)
		assert.Equal(t, []string{"a", "b", "c", "d"}, idsOf(again), "each in its old place")
		for _, l := range again {
			assert.Equal(t, 1, l.Attempt())
		}
		b.settle(t, verdict(Release, again[0])) // without its old time it queues up behind
		b.settle(t, Verdict{Op: Release, ID: "b", Token: again[1].Token, KeepAt: again[1].due, Newer: true})
		assert.Equal(t, []string{"b", "a"}, idsOf(b.take(t, 2)))
		assert.Equal(t, 5, b.count(t, "released"))
		assert.Equal(t, 1, b.count(t, "newer"))
		assert.Empty(t, b.rdb.HGetAll(t.Context(), b.key("counts")).Val())
	})
}

func TestBuryGoesToDeadWithReasonAndStack(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.put(t, "a")
		l := b.take(t, 1)[0]
		stack := "goroutine 1\n\nframe\n\tline\n\nlast"
		before := b.now(t).UnixMilli()
		got := b.settle(t, Verdict{Op: Bury, ID: "a", Token: l.Token, Reason: "permanent: \tbad", Stack: stack})
		assert.Equal(t, Settled{Place: Dead}, got[0])
		info := b.look(t, "a")
		assert.Equal(t, Dead, info.Place)
		assert.GreaterOrEqual(t, info.At.UnixMilli(), before)
		assert.Equal(t, 1, info.Failures)
		assert.Equal(t, stack, info.Stack)
		require.Len(t, info.Errors, 1)
		assert.Equal(t, Failure{At: info.At, Attempt: 1, Holder: "test/1", Reason: "permanent: \tbad"}, info.Errors[0])
		assert.Equal(t, 1, b.count(t, "buried"))
		assert.Equal(t, 1, b.count(t, "died"))
	})
}

func TestAJobThatDiesWithoutItsRecordGetsAStubAndIsCounted(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.publish(t, Policy{MaxRetries: ptr(0)})
		b.put(t, "a", "b", "c")
		l := b.take(t, 3)
		require.NoError(t, b.rdb.HDel(t.Context(), b.key("jobs"), "a", "b", "c").Err()) // by somebody's hand
		got := b.settle(t, verdict(Nack, l[0]), verdict(Bury, l[1]), verdict(Ack, l[2]))
		assert.Equal(t, []Settled{{Place: Dead}, {Place: Dead}, {}}, got)
		for _, id := range []string{"a", "b"} {
			assert.Equal(t, "stub", string(b.look(t, id).Record))
		}
		assert.Equal(t, 2, b.count(t, "missing"))
	})
}

func TestTheLastFiveFailuresAreKeptAndTheStackOnlyOfADeadJob(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.publish(t, Policy{MaxRetries: ptr(6)})
		b.put(t, "a")
		reasons := []string{"one", "two", "", "four\tof seven", "fünf", "six", strings.Repeat("7", 512)}
		for i, reason := range reasons {
			l := b.take(t, 1)[0]
			b.settle(t, Verdict{Op: Nack, ID: "a", Token: l.Token, Reason: reason, Stack: "stack " + reason})
			info := b.look(t, "a")
			assert.LessOrEqual(t, len(info.Errors), 5)
			assert.Equal(t, reason, info.Errors[len(info.Errors)-1].Reason)
			assert.Equal(t, i+1, info.Errors[len(info.Errors)-1].Attempt)
			if i < len(reasons)-1 {
				assert.Empty(t, info.Stack)
			}
		}
		info := b.look(t, "a")
		assert.Equal(t, Dead, info.Place)
		assert.Equal(t, "stack "+reasons[6], info.Stack)
		var kept []string
		for _, e := range info.Errors {
			kept = append(kept, e.Reason)
		}
		assert.Equal(t, reasons[2:], kept)
	})
}

// lostTo returns a lease on id that is not the newest any more, with the job in the place that bring puts it.
func TestARefusedSettleTellsWhereTheJobIsAndChangesNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		expired := func(id string) Lease {
			b.put(t, id)
			l := b.take(t, 1)[0]
			b.expireAll(t, l)
			return l
		}
		stale := map[Place]Lease{}
		stale[Processing] = expired("p")
		b.take(t, 1)
		stale[Dead] = expired("x")
		b.settle(t, verdict(Bury, b.take(t, 1)[0]))
		stale[Nowhere] = expired("g")
		b.settle(t, verdict(Ack, b.take(t, 1)[0]))
		stale[Done] = expired("f")
		b.settle(t, verdict(Ack, b.take(t, 1)[0]))
		require.NoError(t, b.rdb.ZAdd(t.Context(), b.key("done"), redis.Z{Score: 1e12, Member: "f"}).Err())
		stale[Due] = expired("d")

		before := b.dump(t)
		refused := 0
		for place, l := range stale {
			for _, op := range []Op{Ack, Nack, Release, Bury} {
				got := b.settle(t, verdict(op, l))[0]
				require.ErrorIs(t, got.Err, ErrLost)
				refused++
				if place == Nowhere {
					require.ErrorIs(t, got.Err, ErrGone, "gone is also lost")
					continue
				}
				assert.Equal(t, &LostError{ID: l.ID, Place: place}, got.Err)
				assert.NotErrorIs(t, got.Err, ErrGone)
			}
		}
		for _, v := range []Verdict{{Op: Ack, ID: "never"}, {Op: Bury, ID: "p"}, {Op: Ack, ID: "p", Token: "!" + stale[Processing].Token}} {
			assert.ErrorIs(t, b.settle(t, v)[0].Err, ErrLost)
			refused++
		}
		assert.Equal(t, before, b.dump(t))
		assert.Equal(t, refused, b.count(t, "refused"))
	})
}

func TestASecondUseOfAnIDInABatchSeesWhatTheFirstLeft(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.put(t, "a", "b", "c", "d")
		l := b.take(t, 4)
		wrong := l[0]
		wrong.Token = "1:s:1"
		got := b.settle(t,
			verdict(Ack, wrong), verdict(Ack, l[0]), verdict(Nack, l[0]), verdict(Ack, l[0]),
			verdict(Nack, l[1]), verdict(Ack, l[1]),
			verdict(Bury, l[2]), verdict(Release, l[2]),
			Verdict{Op: Release, ID: "d", Token: l[3].Token, Delay: time.Hour}, verdict(Bury, l[3]),
			verdict(Ack, Lease{ID: "e"}))
		want := []Settled{
			{Err: &LostError{ID: "a", Place: Processing}}, {}, {Err: ErrGone}, {Err: ErrGone},
			{Place: Due}, {Err: &LostError{ID: "b", Place: Due}},
			{Place: Dead}, {Err: &LostError{ID: "c", Place: Dead}},
			{Place: Due}, {Err: &LostError{ID: "d", Place: Due}}, {Err: ErrGone},
		}
		assert.Equal(t, want, got)
		for name, n := range map[string]int{"acked": 1, "nacked": 1, "buried": 1, "released": 1} {
			assert.Equal(t, n, b.count(t, name), name)
		}
	})
}

func TestSettleWakesOnlyWhereItMadeSomethingClaimableOrTheHeadEarlier(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.put(t, "a", "b", "c", "d", "e")
		l := b.take(t, 5)
		b.wakeUps(t)
		for i, step := range []struct {
			v     Verdict
			delay time.Duration
			wakes int64
		}{
			{verdict(Ack, l[0]), 0, 0}, {verdict(Bury, l[1]), 0, 0},
			{verdict(Nack, l[2]), time.Hour, 1}, {verdict(Nack, l[3]), 2 * time.Hour, 0}, {verdict(Release, l[4]), 0, 1},
		} {
			step.v.Delay = step.delay
			require.NoError(t, b.settle(t, step.v)[0].Err)
			assert.Equal(t, step.wakes, b.wakeUps(t), i)
		}
	})
}

func TestVerdictsThatCannotBeStoredAreRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	b.put(t, "a", "b")
	l := b.take(t, 2)
	before := redistest.Dump(t, b.rdb, keys.DefaultPrefix, b.queue)
	for name, v := range map[string]Verdict{
		"no op": {}, "unknown op": {Op: 'z'}, "delay": {Op: Nack, Delay: -1}, "two lines": {Op: Nack, Reason: "a\nb"},
		"long reason": {Op: Bury, Reason: strings.Repeat("x", 513)}, "no UTF-8": {Op: Nack, Reason: "\xe8"},
		"long stack": {Op: Bury, Stack: strings.Repeat("x", 4097)}, "no time": {Op: Release, KeepAt: "soon"}, "NaN": {Op: Release, KeepAt: "NaN"},
	} {
		v.ID, v.Token = l[1].ID, l[1].Token
		_, err := b.Settle(t.Context(), []Verdict{verdict(Nack, l[0]), v})
		require.ErrorContains(t, err, "settle b: ", name)
		_, settleErr, _, claimErr := b.Exchange(t.Context(), []Verdict{v}, 1, nil)
		require.Error(t, settleErr, name)
		require.Error(t, claimErr, name)
	}
	assert.Equal(t, before, redistest.Dump(t, b.rdb, keys.DefaultPrefix, b.queue))
}
