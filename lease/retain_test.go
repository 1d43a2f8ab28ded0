package lease

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// laid makes dead jobs that died at 1, 2, 3 … ms.
func (b *bench) laid(t *testing.T, ids ...string) {
	t.Helper()
	b.put(t, ids...)
	verdicts := make([]Verdict, len(ids))
	for i, l := range b.take(t, len(ids)) {
		verdicts[i] = Verdict{Op: Bury, ID: l.ID, Token: l.Token, Reason: "reason"}
	}
	b.settle(t, verdicts...)
	for i, id := range ids {
		require.NoError(t, b.rdb.ZAdd(t.Context(), b.key("dead"), redis.Z{Score: float64(i + 1), Member: id}).Err())
	}
}

// left is what is dead, with the number of records.
func (b *bench) left(t *testing.T) ([]string, int64) {
	t.Helper()
	ids, err := b.rdb.ZRange(t.Context(), b.key("dead"), 0, -1).Result()
	require.NoError(t, err)
	records, err := b.rdb.HLen(t.Context(), b.key("jobs")).Result()
	require.NoError(t, err)
	for _, hash := range []string{"counts", "errors"} {
		require.Equal(t, records, b.rdb.HLen(t.Context(), b.key(hash)).Val(), "%s of jobs that are gone", hash)
	}
	return ids, records
}

func TestOfDeadJobsTheNewestAreKept(t *testing.T) {
	for _, keep := range []int{0, 1, 9, 10, 11} {
		t.Run(fmt.Sprint(keep), func(t *testing.T) {
			onBoth(t, func(t *testing.T, b *bench) {
				ids := names("j", 10)
				b.laid(t, ids...)
				got, err := b.Retain(t.Context(), 100)
				require.NoError(t, err)
				require.Zero(t, got, "without a limit all are kept")

				b.publish(t, Policy{DeadKeep: &keep})
				got, err = b.Retain(t.Context(), 100)
				require.NoError(t, err)
				gone := max(10-keep, 0)
				assert.Equal(t, Forgotten{Dead: gone}, got)
				left, records := b.left(t)
				assert.Equal(t, ids[gone:], left)
				assert.EqualValues(t, len(left), records)
				assert.Equal(t, gone, b.count(t, "trimmed"))
			})
		})
	}
}

func TestDeadJobsAreKeptForAsLongAsThePolicySays(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.laid(t, "a", "b", "c")
		now := b.now(t).UnixMilli()
		for id, at := range map[string]int64{"b": now - 60_000 + 10_000, "c": now} { // b is younger than a minute, for ten seconds
			require.NoError(t, b.rdb.ZAdd(t.Context(), b.key("dead"), redis.Z{Score: float64(at), Member: id}).Err())
		}
		b.publish(t, Policy{DeadAge: time.Minute})
		got, err := b.Retain(t.Context(), 100)
		require.NoError(t, err)
		assert.Equal(t, Forgotten{Dead: 1}, got)
		left, _ := b.left(t)
		assert.Equal(t, []string{"b", "c"}, left)

		b.publish(t, Policy{DeadAge: time.Second, DeadKeep: ptr(100)})
		got, err = b.Retain(t.Context(), 100)
		require.NoError(t, err)
		assert.Equal(t, Forgotten{Dead: 1}, got, "either limit forgets")
		left, _ = b.left(t)
		assert.Equal(t, []string{"c"}, left)
	})
}

func TestRetainForgetsABatchAndSaysWhetherThereIsMore(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.laid(t, names("j", 10)...)
		b.publish(t, Policy{DeadKeep: ptr(3)})
		for _, want := range []struct {
			n, gone int
			more    bool
		}{{4, 4, true}, {3, 3, false}, {3, 0, false}} {
			got, err := b.Retain(t.Context(), want.n)
			require.NoError(t, err)
			require.Equal(t, Forgotten{Dead: want.gone, More: want.more}, got)
		}
		_, err := b.Retain(t.Context(), MaxBatch+1)
		var batch *BatchError
		require.ErrorAs(t, err, &batch)
	})
}

func TestASweeperForgetsWhatIsNotKept(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.laid(t, names("j", 10)...)
		b.publish(t, Policy{DeadKeep: ptr(2)})
		w, err := NewSweeper(b.Store, &SweeperOptions{Batch: 3})
		require.NoError(t, err)
		w.keepEvery = time.Millisecond
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = w.Run(ctx) }()
		require.Eventually(t, func() bool { return b.count(t, "trimmed") == 8 }, 20*time.Second, time.Millisecond)
		cancel()
		<-ended
		left, records := b.left(t)
		assert.Len(t, left, 2)
		assert.EqualValues(t, 2, records)
	})
}

func TestOnePassForgetsWhatIsNotKept(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.laid(t, names("j", 10)...)
		b.publish(t, Policy{DeadKeep: ptr(1)})
		w, err := NewSweeper(b.Store, &SweeperOptions{Batch: 3})
		require.NoError(t, err)
		_, err = w.Sweep(t.Context(), 0, true)
		require.NoError(t, err)
		assert.Equal(t, 9, b.count(t, "trimmed"))
	})
}
