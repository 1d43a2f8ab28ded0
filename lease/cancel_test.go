package lease

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCancelRemovesAJobWhereverItIs(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.spread(t)
		require.NoError(t, b.rdb.HSet(t.Context(), b.key("results"), "done", "result").Err())
		ids := []string{"due", "processing", "dead", "done", "nowhere", "due", "processing"}
		got, err := b.Cancel(t.Context(), ids)
		require.NoError(t, err)
		assert.Equal(t, []Removed{
			{Cancelled: true}, {Cancelling: true}, {Cancelled: true}, {Cancelled: true}, {Err: ErrGone}, {Err: ErrGone}, {Cancelling: true},
		}, got)
		got, err = b.Cancel(t.Context(), []string{"processing", "due"})
		require.NoError(t, err)
		assert.Equal(t, []Removed{{Cancelling: true}, {Err: ErrGone}}, got, "also when repeated")
		info := b.look(t, "processing")
		assert.True(t, info.Cancelling)
		assert.Equal(t, Processing, info.Place)
		assert.Len(t, "16 digits: "+b.rdb.Get(t.Context(), b.key("fence")).Val(), 27)
		for _, name := range []string{"due", "dead", "done", "errors", "results", "counts"} {
			assert.Zero(t, b.rdb.Exists(t.Context(), b.key(name)).Val(), name)
		}
		assert.Equal(t, []string{"processing"}, b.rdb.HKeys(t.Context(), b.key("jobs")).Val())
		assert.Equal(t, 3, b.count(t, "cancelled"))
		assert.Zero(t, b.count(t, "cancelled_processing"))
	})
}

func TestWhateverEndsTheLeaseOfACancelledJobRemovesIt(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		for i, way := range []struct {
			name string
			end  func(l Lease) (cancelled bool)
			stat string
		}{
			{"ack", func(l Lease) bool { return b.settle(t, verdict(Ack, l))[0].Cancelled }, "acked"},
			{"nack", func(l Lease) bool { return b.settle(t, verdict(Nack, l))[0].Cancelled }, "cancelled"},
			{"release", func(l Lease) bool { return b.settle(t, verdict(Release, l))[0].Cancelled }, "cancelled"},
			{"bury", func(l Lease) bool { return b.settle(t, verdict(Bury, l))[0].Cancelled }, "cancelled"},
			{"expire", func(l Lease) bool { return b.expireAll(t, l).Cancelled == 1 }, "cancelled"},
		} {
			b.putItems(t, Item{ID: way.name, Record: record(way.name), MaxRetries: ptr(5), MaxExpiries: ptr(0)})
			b.settle(t, Verdict{Op: Nack, ID: way.name, Token: b.take(t, 1)[0].Token, Reason: "before"})
			l := b.take(t, 1)[0]
			_, err := b.Cancel(t.Context(), []string{way.name})
			require.NoError(t, err)
			stats := b.count(t, way.stat)
			assert.Equal(t, way.stat == "cancelled", way.end(l), "%s: an ack counts and acts as an ack", way.name)
			assert.Equal(t, stats+1, b.count(t, way.stat), way.name)
			assert.Equal(t, Info{ID: way.name, Record: []byte{}}, b.look(t, way.name), way.name)
			assert.ErrorIs(t, b.settle(t, verdict(Ack, l))[0].Err, ErrGone)
			assert.Equal(t, max(0, i), b.count(t, "cancelled_processing"))
			assert.Equal(t, i+1, b.count(t, "nacked"), "only the one before")
		}
		assert.Zero(t, b.count(t, "expired"))
		assert.Zero(t, b.count(t, "died"))
		b.wakeUps(t)
		require.NoError(t, b.rdb.Del(t.Context(), b.key("sweep")).Err())
		assert.Empty(t, b.dump(t))
	})
}

func TestACancelledJobIsNeverHandedOutAgainAndItsIDIsFreeOnceItIsGone(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.put(t, "a")
		l := b.take(t, 1)[0]
		_, err := b.Cancel(t.Context(), []string{"a"})
		require.NoError(t, err)
		results, err := b.Enqueue(t.Context(), []Item{{ID: "a", Record: []byte("new")}})
		require.NoError(t, err)
		assert.Equal(t, &DuplicateError{ID: "a", Place: Processing}, results[0])
		b.settle(t, Verdict{Op: Nack, ID: "a", Token: l.Token, Delay: time.Hour})
		b.putItems(t, Item{ID: "a", Record: []byte("new")})
		again := b.take(t, 1)[0]
		assert.Equal(t, "new", string(again.Record))
		assert.Zero(t, again.Failures)
		assert.ErrorIs(t, b.settle(t, verdict(Ack, l))[0].Err, ErrLost)
		assert.NoError(t, b.settle(t, verdict(Ack, again))[0].Err)
	})
}

func TestACancelledJobWithoutARecordIsRemovedBySweepsToo(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.put(t, "a")
		l := b.take(t, 1)[0]
		_, err := b.Cancel(t.Context(), []string{"a"})
		require.NoError(t, err)
		require.NoError(t, b.rdb.HDel(t.Context(), b.key("jobs"), "a").Err())
		got := b.expireAll(t, l)
		assert.Equal(t, []int{1, 0}, []int{got.Cancelled, got.Missing})
		assert.Equal(t, redis.Nil, b.rdb.ZScore(t.Context(), b.key("dead"), "a").Err())
	})
}
