package lease

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
)

func idsOf(leases []Lease) []string {
	out := make([]string, len(leases))
	for i := range leases {
		out[i] = leases[i].ID
	}
	return out
}

func TestTheLowestDueTimesAreClaimedFirst(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		var items []Item
		want := names("j", 40)
		for i, id := range want {
			items = append(items, Item{ID: id, Record: record(id), At: time.UnixMilli(int64(1000 + i/2))})
		}
		rand.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
		b.putItems(t, items...)
		b.putItems(t, Item{ID: "later", Record: record("later"), Delay: time.Hour})
		var got []string
		for _, n := range []int{1, 7, 32} {
			for _, l := range b.take(t, n) {
				assert.Equal(t, string(record(l.ID)), string(l.Record))
				got = append(got, l.ID)
			}
		}
		assert.Equal(t, want, got, "within one millisecond by ID")
		rest, err := b.Claim(t.Context(), 10, nil)
		require.NoError(t, err)
		assert.Empty(t, rest.Jobs)
		assert.Equal(t, 40, b.count(t, "claimed"))
	})
}

func TestAClaimTellsWhenTheNextJobIsDue(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		got, err := b.Claim(t.Context(), 3, nil)
		require.NoError(t, err)
		assert.Negative(t, got.NextDue, "nothing is due at all")
		assert.Equal(t, "", got.Held)
		assert.Equal(t, DefaultLease, got.Length)

		b.putItems(t, Item{ID: "soon", Record: []byte("r"), Delay: time.Minute})
		asked := time.Now()
		got, err = b.Claim(t.Context(), 3, nil)
		require.NoError(t, err)
		assert.InDelta(t, time.Minute, got.NextDue, float64(5*time.Second))
		assert.False(t, got.At.Before(asked), "counted from just before the call")

		b.put(t, "a", "b")
		got, err = b.Claim(t.Context(), 1, nil)
		require.NoError(t, err)
		assert.Zero(t, got.NextDue, "more may be claimed now")
	})
}

func TestALeaseIsWhatRedisHolds(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.publish(t, Policy{Lease: 20 * time.Second})
		b.put(t, "a", "b", "c")
		before, asked := b.now(t), time.Now()
		leases := b.take(t, 3)
		after := b.now(t)
		tokens := b.rdb.HGetAll(t.Context(), b.key("leases")).Val()
		require.Len(t, tokens, 3)
		for i, l := range leases {
			assert.Equal(t, tokens[l.ID], l.Token)
			assert.True(t, strings.HasPrefix(l.Token, strconv.FormatInt(l.Fence, 10)+":"))
			assert.Equal(t, leases[0].Fence+int64(i), l.Fence, "consecutive")
			assert.Equal(t, 20*time.Second, l.Length)
			assert.WithinDuration(t, asked.Add(l.Length), l.Deadline, 5*time.Second)
			assert.False(t, l.Deadline.Before(asked.Add(l.Length)))
			expiry := b.score(t, Processing, l.ID)
			assert.GreaterOrEqual(t, expiry*1000, before.Add(l.Length).UnixMicro(), "rounded up")
			assert.LessOrEqual(t, expiry, after.Add(l.Length).UnixMilli()+1)
		}
		last := leases[2].Fence
		assert.Equal(t, strconv.FormatInt(last, 10), b.rdb.Get(t.Context(), b.key("fence")).Val())
		info := b.look(t, "a")
		assert.Equal(t, leases[0].Fence, info.Fence)
		assert.Equal(t, "test/1", info.Holder)
	})
}

func TestFencesHaveSixteenDigitsAndGrowStrictly(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.put(t, names("j", 30)...)
		last := int64(0)
		stores := []*Store{b.Store, b.another(t, nil), b.another(t, nil)}
		for round := range 12 {
			leases := takeFrom(t, stores[round%3], 1+round%5)
			for _, l := range leases {
				assert.Greater(t, l.Fence, last)
				assert.Len(t, strconv.FormatInt(l.Fence, 10), 16)
				assert.Equal(t, l.Token, b.rdb.HGet(t.Context(), b.key("leases"), l.ID).Val(), "no digit is lost on the way")
				last = l.Fence
			}
			for _, l := range leases {
				require.NoError(t, b.settle(t, Verdict{Op: Release, ID: l.ID, Token: l.Token})[0].Err)
			}
		}
		ahead := int64(9_007_199_254_740_001) // a clock that once was ahead: odd, and near the end of what Lua counts exactly
		require.NoError(t, b.rdb.Set(t.Context(), b.key("fence"), ahead, 0).Err())
		leases := b.take(t, 5)
		for i, l := range leases {
			assert.Equal(t, ahead+1+int64(i), l.Fence)
			assert.Equal(t, l.Token, b.rdb.HGet(t.Context(), b.key("leases"), l.ID).Val())
		}
		assert.NoError(t, b.settle(t, verdict(Ack, leases[4]))[0].Err)
	})
}

func TestFencesGrowAcrossFlushAll(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, nil)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	b := newBench(t, "flushed", rdb, rdb)
	last := int64(0)
	for range 5 {
		b.put(t, "same")
		l := b.take(t, 1)[0]
		assert.Greater(t, l.Fence, last)
		last = l.Fence
		require.NoError(t, rdb.FlushAll(t.Context()).Err())
		got := b.settle(t, verdict(Ack, l))
		assert.ErrorIs(t, got[0].Err, ErrGone)
	}
}

func TestBytesBoundAClaimButOneJobAlwaysComes(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		big := bytes.Repeat([]byte("x"), 1000)
		for _, id := range names("j", 7) {
			b.putItems(t, Item{ID: id, Record: big})
		}
		claim := func(bytes int) int {
			got, err := b.Claim(t.Context(), 10, &ClaimOptions{Bytes: bytes})
			require.NoError(t, err)
			for _, l := range got.Jobs {
				assert.Equal(t, big, l.Record)
			}
			return len(got.Jobs)
		}
		assert.Equal(t, 1, claim(1))
		assert.Equal(t, 1, claim(1999))
		assert.Equal(t, 2, claim(2000))
		assert.Equal(t, 3, claim(0))
		assert.Zero(t, b.rdb.ZCard(t.Context(), b.key("due")).Val())
		for _, bytes := range []int{-1, MaxBytes + 1} {
			_, err := b.Claim(t.Context(), 1, &ClaimOptions{Bytes: bytes})
			assert.Error(t, err)
		}
	})
}

func TestAMemberWithoutARecordGoesToDeadOnceAndIsCounted(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.put(t, "a", "b", "c", "d")
		require.NoError(t, b.rdb.HDel(t.Context(), b.key("jobs"), "a", "c").Err())
		got, err := b.Claim(t.Context(), 10, nil)
		require.NoError(t, err)
		assert.Equal(t, []string{"b", "d"}, idsOf(got.Jobs))
		assert.Equal(t, 2, got.Missing)
		assert.Equal(t, got.Jobs[0].Fence+1, got.Jobs[1].Fence)
		for _, id := range []string{"a", "c"} {
			info := b.look(t, id)
			assert.Equal(t, Dead, info.Place)
			assert.Equal(t, "stub", string(info.Record))
			require.Len(t, info.Errors, 1)
			assert.Equal(t, "no record", info.Errors[0].Reason)
			assert.Zero(t, info.Failures)
		}
		again, err := b.Claim(t.Context(), 10, nil)
		require.NoError(t, err)
		assert.Zero(t, again.Missing)
		assert.Equal(t, 2, b.count(t, "missing"))
		assert.Equal(t, 2, b.count(t, "died"))
		assert.Equal(t, 2, b.count(t, "claimed"), "not as claimed")
	})
}

func TestManyMissingRecordsDoNotHoldUpTheOthers(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		var items []Item
		for _, id := range names("bad", 100) {
			items = append(items, Item{ID: id, Record: []byte("r"), At: time.UnixMilli(5)})
		}
		b.putItems(t, items...)
		b.put(t, "good")
		require.NoError(t, b.rdb.HDel(t.Context(), b.key("jobs"), names("bad", 100)...).Err())
		missing, claims := 0, 0
		for {
			got, err := b.Claim(t.Context(), 30, nil)
			require.NoError(t, err)
			missing += got.Missing
			claims++
			if len(got.Jobs) > 0 {
				assert.Equal(t, "good", got.Jobs[0].ID)
				break
			}
			require.Zero(t, got.NextDue, "so that its caller asks again at once")
		}
		assert.Equal(t, 100, missing)
		assert.Equal(t, 4, claims)
	})
}

func TestAShorterLeaseIsRefusedAndALongerOneGiven(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.publish(t, Policy{Lease: 30 * time.Second})
		b.put(t, "a", "b")
		before := b.dump(t)
		_, err := b.Claim(t.Context(), 1, &ClaimOptions{Lease: 30*time.Second - time.Millisecond})
		var short *ShortLeaseError
		require.ErrorAs(t, err, &short)
		assert.Equal(t, 30*time.Second, short.Published)
		assert.Equal(t, 30*time.Second-time.Millisecond, short.Asked)
		assert.Equal(t, before, b.dump(t))

		got, err := b.Claim(t.Context(), 1, &ClaimOptions{Lease: 30 * time.Second})
		require.NoError(t, err)
		assert.Equal(t, 30*time.Second, got.Jobs[0].Length)
		got, err = b.Claim(t.Context(), 1, &ClaimOptions{Lease: 40*time.Second + 1})
		require.NoError(t, err)
		assert.Equal(t, 40*time.Second+time.Millisecond, got.Jobs[0].Length, "rounded up")
		_, err = b.Claim(t.Context(), 1, &ClaimOptions{Lease: -1})
		assert.Error(t, err)
	})
}

func TestOddScoresByHandAreClaimedAndDoNotBreakAnything(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.put(t, "a", "b", "c", "d")
		for id, score := range map[string]float64{"a": -5, "b": negativeInfinity, "c": 1.5, "d": infinity} {
			require.NoError(t, b.rdb.ZAdd(t.Context(), b.key("due"), redis.Z{Score: score, Member: id}).Err())
		}
		got, err := b.Claim(t.Context(), 10, nil)
		require.NoError(t, err)
		require.Equal(t, []string{"b", "a", "c"}, idsOf(got.Jobs))
		assert.Greater(t, got.NextDue, 1000*time.Hour)
		assert.True(t, got.Jobs[0].Due.IsZero())
		for i := range got.Jobs {
			v := verdict(Release, got.Jobs[i])
			v.KeepDue(&got.Jobs[i])
			assert.NoError(t, b.settle(t, v)[0].Err)
		}
		stats, err := b.Stats(t.Context())
		require.NoError(t, err)
		assert.Greater(t, stats.OldestDue, 1000*time.Hour)
		assert.EqualValues(t, 4, stats.Due)
		require.NoError(t, b.rdb.ZAdd(t.Context(), b.key("due"), redis.Z{Score: 1, Member: "a"}, redis.Z{Score: 1, Member: "b"},
			redis.Z{Score: 1, Member: "c"}, redis.Z{Score: 1, Member: "d"}).Err())
	})
}

func TestAClaimPassesTheWakeUpOnOnlyIfItTookAJobAndMoreIsDue(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.put(t, "a", "b", "c")
		b.wakeUps(t)
		b.take(t, 1)
		assert.EqualValues(t, 1, b.wakeUps(t), "more is due")
		b.take(t, 2)
		assert.EqualValues(t, 0, b.wakeUps(t), "nothing more is due")
		b.putItems(t, Item{ID: "later", Record: []byte("r"), Delay: time.Hour})
		b.wakeUps(t)
		_, err := b.Claim(t.Context(), 1, nil)
		require.NoError(t, err)
		assert.EqualValues(t, 0, b.wakeUps(t), "nothing was taken")
	})
}

func TestNothingIsClaimedBeforeItsDueTime(t *testing.T) {
	t.Parallel()
	redistest.NeedServer(t)
	b := onRedis(t)
	const n = 400
	want := map[string]int64{} // µs
	for i := range n {
		id, delay := fmt.Sprint("j", i), rand.N(300*time.Millisecond)
		want[id] = b.now(t).Add(delay).UnixMicro()
		b.putItems(t, Item{ID: id, Record: []byte("r"), Delay: delay})
	}
	got := 0
	require.Eventually(t, func() bool {
		claimed, err := b.Claim(t.Context(), 100, nil)
		require.NoError(t, err)
		now := b.now(t).UnixMicro() // a little later than the claim
		for _, l := range claimed.Jobs {
			assert.GreaterOrEqual(t, now, want[l.ID])
			assert.GreaterOrEqual(t, l.Due.UnixMicro(), want[l.ID])
		}
		got += len(claimed.Jobs)
		return got == n
	}, patience, time.Millisecond)
}
