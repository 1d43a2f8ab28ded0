package lease

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
)

func TestOnlyLeasesWhoseExpiryHasPassedExpire(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.put(t, "long ago", "just now", "soon", "later")
		leases := map[string]Lease{}
		for _, l := range b.take(t, 4) {
			leases[l.ID] = l
		}
		now := b.now(t).UnixMilli()
		for id, expiry := range map[string]int64{"long ago": now - 300_000, "just now": now, "soon": now + 60_000, "later": now + 300_000} {
			require.NoError(t, b.rdb.ZAdd(t.Context(), b.key("processing"), redis.Z{Score: float64(expiry), Member: id}).Err())
		}
		got, err := b.Expire(t.Context(), 10, true)
		require.NoError(t, err)
		assert.Equal(t, 2, got.ToDue)
		assert.Equal(t, 2, got.Moved())
		assert.False(t, got.More)
		assert.InDelta(t, time.Minute, got.NextExpiry, float64(5*time.Second))
		assert.Zero(t, got.Grace)
		assert.Equal(t, DefaultLease, got.Lease)
		for id, place := range map[string]Place{"long ago": Due, "just now": Due, "soon": Processing, "later": Processing} {
			info := b.look(t, id)
			assert.Equal(t, place, info.Place, id)
			assert.Equal(t, place == Due, info.Expiries == 1, id)
			assert.Zero(t, info.Failures, id)
			assert.Equal(t, place != Due, b.settle(t, verdict(Ack, leases[id]))[0].Err == nil, "%s: its token is gone", id)
		}
		again := b.take(t, 2)
		assert.Equal(t, []int{2, 2}, []int{again[0].Attempt(), again[1].Attempt()})
	})
}

// expiry <= now, and not a millisecond before.
func TestALeaseExpiresAtItsExpiryAndNotBefore(t *testing.T) {
	t.Parallel()
	redistest.NeedServer(t)
	b := onRedis(t)
	for round := range 20 {
		id := fmt.Sprint("j", round)
		b.put(t, id)
		b.take(t, 1)
		expiry := b.now(t).UnixMilli() + 8
		require.NoError(t, b.rdb.ZAdd(t.Context(), b.key("processing"), redis.Z{Score: float64(expiry), Member: id}).Err())
		for {
			before := b.now(t).UnixMilli()
			got, err := b.Expire(t.Context(), 10, true)
			require.NoError(t, err)
			after := b.now(t).UnixMilli()
			if got.Moved() == 1 {
				assert.LessOrEqual(t, expiry, after, "not early")
				break
			}
			assert.Less(t, before, expiry, "it was time")
		}
		_, err := b.Cancel(t.Context(), []string{id})
		require.NoError(t, err)
	}
}

func TestAJobThatOnlyCrashesIsStartedOnceMoreThanMaxExpiries(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		for name, limits := range map[string]struct {
			queue, own *int
			starts     int
			reason     string
		}{
			"0": {ptr(0), nil, 1, "lease expired once"}, "1": {ptr(1), nil, 2, "lease expired 2 times"}, "4": {ptr(4), nil, 5, "lease expired 5 times"},
			"own 0": {ptr(3), ptr(0), 1, "lease expired once"}, "own 2": {ptr(0), ptr(2), 3, "lease expired 3 times"},
		} {
			b.publish(t, Policy{MaxExpiries: limits.queue})
			b.putItems(t, Item{ID: name, Record: record(name), MaxExpiries: limits.own})
			for start := 1; start <= limits.starts; start++ {
				l := b.take(t, 1)[0]
				assert.Equal(t, start, l.Attempt(), name)
				got := b.expireAll(t, l)
				assert.Equal(t, start == limits.starts, got.ToDead == 1, "%s, start %d", name, start)
				assert.Equal(t, start != limits.starts, got.ToDue == 1, "%s, start %d", name, start)
			}
			info := b.look(t, name)
			assert.Equal(t, Dead, info.Place)
			assert.Equal(t, limits.starts, info.Expiries)
			require.Len(t, info.Errors, 1)
			assert.Equal(t, Failure{At: info.At, Attempt: limits.starts, Holder: "test/1", Reason: limits.reason}, info.Errors[0])
			assert.Equal(t, string(record(name)), string(info.Record))
		}
	})
}

func TestFiveExpiriesHoldWhereNothingWasPublished(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.put(t, "a")
		for range 5 {
			assert.Equal(t, 1, b.expireAll(t, b.take(t, 1)...).ToDue)
		}
		assert.Equal(t, 1, b.expireAll(t, b.take(t, 1)...).ToDead)
	})
}

func TestFailuresAndExpiriesCountApart(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.publish(t, Policy{MaxRetries: ptr(1), MaxExpiries: ptr(1)})
		b.put(t, "a")
		b.settle(t, verdict(Nack, b.take(t, 1)[0]))
		b.expireAll(t, b.take(t, 1)...)
		l := b.take(t, 1)[0]
		assert.Equal(t, []int{1, 1, 3}, []int{l.Failures, l.Expiries, l.Attempt()})
		b.settle(t, verdict(Release, l))
		assert.Equal(t, 3, b.take(t, 1)[0].Attempt(), "a release counts nothing")
		b.expireAll(t, Lease{ID: "a"})
		assert.Equal(t, Dead, b.look(t, "a").Place)
	})
}

func TestExpireTakesAtMostABatchTheEarliestFirstAndSaysThatThereIsMore(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		ids := names("j", 25)
		b.put(t, ids...)
		now := b.now(t).UnixMilli()
		for i, l := range b.take(t, 25) {
			require.NoError(t, b.rdb.ZAdd(t.Context(), b.key("processing"), redis.Z{Score: float64(now - 1000 + int64(i)), Member: l.ID}).Err())
		}
		b.wakeUps(t)
		for _, want := range []int{10, 10, 5, 0} {
			got, err := b.Expire(t.Context(), 10, true)
			require.NoError(t, err)
			assert.Equal(t, want, got.ToDue)
			assert.Equal(t, want == 10, got.More)
			assert.Equal(t, want == 10, got.NextExpiry == 0, "%v", got.NextExpiry)
			assert.Equal(t, want > 0, b.wakeUps(t) == 1)
		}
		assert.Equal(t, 25, b.count(t, "expired"))
		assert.ElementsMatch(t, ids, idsOf(b.take(t, 25)))
	})
}

func TestExpiryBackOffIsDoubledAndCappedAndNeverEarly(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.publish(t, Policy{MaxExpiries: ptr(100), ExpiryBackoff: time.Second, ExpiryCap: 7 * time.Second})
		b.put(t, "a")
		for _, want := range []time.Duration{1, 2, 4, 7, 7} {
			want *= time.Second
			require.NoError(t, b.rdb.ZAdd(t.Context(), b.key("due"), redis.Z{Score: 1, Member: "a"}).Err())
			l := b.take(t, 1)[0]
			b.runOut(t, l)
			before := b.now(t)
			got, err := b.Expire(t.Context(), 10, true)
			require.NoError(t, err)
			assert.Equal(t, 1, got.ToDue)
			after := b.now(t)
			due := b.score(t, Due, "a")
			assert.GreaterOrEqual(t, due*1000, before.Add(want).UnixMicro(), "not early")
			assert.LessOrEqual(t, due, after.Add(want).UnixMilli()+1)
		}
		require.NoError(t, b.rdb.HSet(t.Context(), b.key("counts"), "a", "0 99 0 - - -").Err())
		require.NoError(t, b.rdb.ZAdd(t.Context(), b.key("due"), redis.Z{Score: 1, Member: "a"}).Err())
		b.expireAll(t, b.take(t, 1)...)
		assert.InDelta(t, 7*time.Second, b.look(t, "a").In, float64(time.Second), "also after very many")
	})
}

func TestALeaseWithoutARecordGoesToDeadOnceAndIsCounted(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.put(t, "a", "b", "c")
		l := b.take(t, 3)
		require.NoError(t, b.rdb.HDel(t.Context(), b.key("jobs"), "b").Err())
		got := b.expireAll(t, l...)
		assert.Equal(t, 1, got.Missing)
		assert.Equal(t, 2, got.ToDue)
		info := b.look(t, "b")
		assert.Equal(t, Dead, info.Place)
		assert.Equal(t, "stub", string(info.Record))
		require.Len(t, info.Errors, 1)
		assert.Equal(t, "no record", info.Errors[0].Reason)
		assert.Equal(t, 1, b.count(t, "missing"))
		assert.Equal(t, 3, b.count(t, "expired"), "its lease ended as the others did")
	})
}

func TestMembersThatCannotBeMovedDoNotStarveTheSweep(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		var bad []redis.Z
		for i, id := range names("bad", 250) { // neither a record nor a lease, scores of all kinds
			bad = append(bad, redis.Z{Score: []float64{-5, negativeInfinity, 0, 1.5}[i%4], Member: id})
		}
		require.NoError(t, b.rdb.ZAdd(t.Context(), b.key("processing"), bad...).Err())
		b.put(t, names("good", 100)...)
		b.runOut(t, b.take(t, 100)...)
		missing, due := 0, 0
		for range 4 {
			got, err := b.Expire(t.Context(), 100, true)
			require.NoError(t, err)
			missing, due = missing+got.Missing, due+got.ToDue
		}
		assert.Equal(t, 250, missing)
		assert.Equal(t, 100, due)
		got, err := b.Expire(t.Context(), 100, true)
		require.NoError(t, err)
		assert.Zero(t, got.Moved())
		assert.Equal(t, 100, b.count(t, "expired"))
	})
}

// A claim of many puts the stretch into processing and takes it out again; a torn append-only file may have lost the second.
func TestWhatStretchesProcessingIsNoJob(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		const n = 20
		for i := range n {
			b.put(t, fmt.Sprintf("j%02d", i))
		}
		leases := b.take(t, n)
		members, err := b.rdb.ZRange(t.Context(), b.key("processing"), 0, -1).Result()
		require.NoError(t, err)
		assert.Len(t, members, n, "only jobs are left: %q", members)

		stretch := "\x01" + strings.Repeat("-", 64)
		require.Contains(t, claimScript.Source(), `'\1`+stretch[1:]+`'`)
		require.NoError(t, b.rdb.ZAdd(t.Context(), b.key("processing"), redis.Z{Member: stretch}).Err())
		got, err := b.Expire(t.Context(), 10, true)
		require.NoError(t, err)
		assert.Zero(t, got.Missing)
		assert.Zero(t, got.Moved())
		members, err = b.rdb.ZRange(t.Context(), b.key("processing"), 0, -1).Result()
		require.NoError(t, err)
		assert.Len(t, members, n, "it is gone: %q", members)
		assert.Zero(t, b.rdb.ZCard(t.Context(), b.key("dead")).Val())
		for _, l := range leases {
			assert.NoError(t, b.settle(t, verdict(Ack, l))[0].Err)
		}
	})
}
