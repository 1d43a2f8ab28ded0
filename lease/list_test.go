package lease

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fillDead puts bare members into dead, for looking only.
func (b *bench) fillDead(t *testing.T, scores map[string]float64) {
	t.Helper()
	for id, score := range scores {
		require.NoError(t, b.rdb.ZAdd(t.Context(), b.key("dead"), redis.Z{Score: score, Member: id}).Err())
		require.NoError(t, b.rdb.HSet(t.Context(), b.key("jobs"), id, "r").Err())
	}
}

func (b *bench) page(t *testing.T, n int, o ListOptions) Listed {
	t.Helper()
	got, err := b.List(t.Context(), Dead, n, &o)
	require.NoError(t, err)
	return got
}

func TestAListingGoesOnBehindTheLastJobWhereverThatIsByNow(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		scores := map[string]float64{}
		for i := range 40 {
			scores[fmt.Sprintf("j%02d", i)] = float64(100 + i/10) // ten of each score
		}
		b.fillDead(t, scores)
		var seen []string
		o := ListOptions{}
		for more := true; more; {
			got := b.page(t, 7, o)
			seen, more = append(seen, got.IDs...), got.More
			parsed, err := ParsePosition(got.Next.String())
			require.NoError(t, err)
			require.Equal(t, got.Next, parsed)
			o.After = parsed
			last := got.IDs[len(got.IDs)-1]
			switch len(seen) / 7 % 3 { // the job behind which it goes on stays, goes, or dies again
			case 1:
				require.NoError(t, b.rdb.ZRem(t.Context(), b.key("dead"), last).Err())
				require.NoError(t, b.rdb.HDel(t.Context(), b.key("jobs"), last).Err())
			case 2:
				b.fillDead(t, map[string]float64{last: 90})
			}
			b.fillDead(t, map[string]float64{fmt.Sprintf("a%02d", len(seen)): 100})
		}
		require.Len(t, seen, 40)
		assert.True(t, slices.IsSorted(seen))
		late := b.page(t, 7, o)
		assert.Equal(t, []any{0, false, o.After}, []any{len(late.IDs), late.More, late.Next}, "the end stays where it is")
	})
}

// The last job of a page is gone, and half a million others have its score: where it stood is found by halving.
func TestAListingIsExactAmongManyOfOneScore(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		all := []string{"\x01", "a", "ab", "abc", "b", "é", "日", "\xff", "\xffa", "z", "Z", "A"}
		scores := map[string]float64{"first": 1, "last": 9}
		for _, id := range all {
			scores[id] = 5
		}
		b.fillDead(t, scores)
		slices.Sort(all)
		for i, id := range all {
			gone := b.page(t, 100, ListOptions{After: Position{"5", id}})
			require.NoError(t, b.rdb.ZRem(t.Context(), b.key("dead"), id).Err())
			without := b.page(t, 100, ListOptions{After: Position{"5", id}})
			b.fillDead(t, map[string]float64{id: 5})
			assert.Equal(t, append(slices.Clone(all[i+1:]), "last"), gone.IDs, "%q", id)
			assert.Equal(t, gone.IDs, without.IDs, "%q is gone", id)
		}
	})
}

func TestAListingKeepsToItsBounds(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.fillDead(t, map[string]float64{"a": 10, "b": 20, "c": 20, "d": 30, "inf": infinity, "none": negativeInfinity})
		at := func(ms int64) time.Time { return time.UnixMilli(ms) }
		for _, one := range []struct {
			n    int
			o    ListOptions
			want []string
			more bool
		}{
			{9, ListOptions{}, []string{"none", "a", "b", "c", "d", "inf"}, false},
			{6, ListOptions{}, []string{"none", "a", "b", "c", "d", "inf"}, false},
			{5, ListOptions{}, []string{"none", "a", "b", "c", "d"}, true},
			{9, ListOptions{From: at(20), To: at(20)}, []string{"b", "c"}, false},
			{2, ListOptions{From: at(20), To: at(29)}, []string{"b", "c"}, false},
			{1, ListOptions{From: at(20), To: at(29)}, []string{"b"}, true},
			{9, ListOptions{From: at(11), To: at(30), After: Position{"20", "b"}}, []string{"c", "d"}, false},
			{9, ListOptions{From: at(20), After: Position{"10", "a"}}, []string{"b", "c", "d", "inf"}, false},
			{9, ListOptions{After: Position{"inf", "a"}}, []string{"inf"}, false},
			{9, ListOptions{From: at(31), To: at(99)}, nil, false},
		} {
			got := b.page(t, one.n, one.o)
			assert.Equal(t, one.want, got.IDs, "%+v", one)
			assert.Equal(t, one.more, got.More, "%+v", one)
			assert.WithinDuration(t, b.now(t), got.Now, time.Minute)
		}
		for _, id := range []string{"inf", "none"} {
			require.NoError(t, b.rdb.ZRem(t.Context(), b.key("dead"), id).Err())
			require.NoError(t, b.rdb.HDel(t.Context(), b.key("jobs"), id).Err())
		}
		_, err := b.List(t.Context(), Nowhere, 1, nil)
		assert.Error(t, err)
		_, err = b.List(t.Context(), Dead, MaxBatch+1, nil)
		assert.ErrorAs(t, err, new(*BatchError))
		for _, text := range []string{"5", "x/a", "5/", "/a"} {
			_, err := ParsePosition(text)
			assert.Error(t, err, text)
		}
	})
}

// Whatever moves between two pages, what stays is told exactly once.
func TestWhatStaysInAPlaceIsListedOnceWhileOthersMove(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	stay, all := map[string]float64{}, map[string]float64{}
	for i := range 500 {
		id := fmt.Sprintf("%x", rand.Uint64())
		all[id] = float64(1000 + rand.IntN(20))
		if i%2 == 0 {
			stay[id] = all[id]
		}
	}
	b.fillDead(t, all)
	seen := map[string]int{}
	o := ListOptions{}
	for more := true; more; {
		got := b.page(t, 1+rand.IntN(40), o)
		for _, id := range got.IDs {
			seen[id]++
		}
		o.After, more = got.Next, got.More
		for id := range all {
			if _, stays := stay[id]; !stays && rand.IntN(10) == 0 {
				b.fillDead(t, map[string]float64{id: float64(1000 + rand.IntN(20))})
			}
		}
	}
	for id := range stay {
		assert.Equal(t, 1, seen[id], id)
	}
}
