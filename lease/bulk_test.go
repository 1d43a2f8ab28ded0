package lease

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// bury has jobs die, each with one failure.
func (b *bench) bury(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		b.putItems(t, Item{ID: id, Record: record(id), At: time.UnixMilli(1), MaxRetries: ptr(1)})
		b.settle(t, Verdict{Op: Bury, ID: id, Token: b.take(t, 1)[0].Token, Reason: "buried", Stack: "stack"})
	}
}

// nextMilli waits until the server's clock shows another millisecond.
func (b *bench) nextMilli(t *testing.T) {
	t.Helper()
	was := b.now(t).UnixMilli()
	require.Eventually(t, func() bool { return b.now(t).UnixMilli() > was }, patience, 100*time.Microsecond)
}

func TestRedriveByIDTellsOfEachJob(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.spread(t)
		got, err := b.Redrive(t.Context(), []string{"due", "processing", "dead", "done", "nowhere", "dead"})
		require.NoError(t, err)
		assert.Equal(t, []error{
			&LostError{ID: "due", Place: Due}, &LostError{ID: "processing", Place: Processing}, nil,
			&LostError{ID: "done", Place: Done}, ErrGone, &LostError{ID: "dead", Place: Due},
		}, got)
		assert.Equal(t, 1, b.count(t, "redriven"))
		assert.Equal(t, Processing, b.look(t, "processing").Place)
	})
}

func TestARedrivenJobBeginsAnewAndKeepsWhatItIs(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.bury(t, "a")
		for redrives := 1; redrives <= 3; redrives++ {
			b.wakeUps(t)
			before := b.now(t).UnixMilli()
			got, err := b.Redrive(t.Context(), []string{"a"})
			require.NoError(t, err)
			require.NoError(t, got[0])
			assert.EqualValues(t, 1, b.wakeUps(t))
			info := b.look(t, "a")
			assert.Equal(t, Due, info.Place)
			assert.GreaterOrEqual(t, info.At.UnixMilli(), before, "due now")
			assert.Equal(t, []int{0, 0, redrives}, []int{info.Failures, info.Expiries, info.Redrives})
			assert.Equal(t, 1, *info.MaxRetries, "its own limits are kept")
			assert.Nil(t, info.MaxExpiries)
			assert.Equal(t, "buried", info.Errors[0].Reason, "and its last errors")
			assert.Equal(t, string(record("a")), string(info.Record))
			for start := 1; start <= 2; start++ {
				l := b.take(t, 1)[0]
				assert.Equal(t, []int{start, redrives}, []int{l.Attempt(), l.Redrives})
				b.settle(t, Verdict{Op: Nack, ID: "a", Token: l.Token, Reason: "again"})
			}
			assert.Equal(t, Dead, b.look(t, "a").Place, "dead again after its own number of starts, not at once")
		}
		assert.Len(t, b.look(t, "a").Errors, 5)
	})
}

func TestACursorEndsThoughOthersAdd(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		bulk := map[string]func(cursor *Cursor, n int) (int, error){
			"redrive": func(cursor *Cursor, n int) (int, error) { return b.RedriveNext(t.Context(), cursor, n) },
			"purge":   func(cursor *Cursor, n int) (int, error) { return b.PurgeNext(t.Context(), Dead, cursor, n) },
		}
		for name, next := range bulk {
			b.bury(t, names(name, 25)...)
			b.nextMilli(t)
			var cursor Cursor
			var steps []int
			for i := 0; !cursor.Done; i++ {
				require.Less(t, i, 10, "it must end")
				n, err := next(&cursor, 10)
				require.NoError(t, err)
				steps = append(steps, n)
				b.nextMilli(t)
				b.bury(t, names(name+" late", 3*(i+1))[3*i:]...)
			}
			assert.Equal(t, []int{10, 10, 5}, steps, name)
			assert.EqualValues(t, 9, b.rdb.ZCard(t.Context(), b.key("dead")).Val(), "those that died since are left alone")
			n, err := next(&cursor, 10)
			require.NoError(t, err)
			assert.Zero(t, n, "after its end")
			var all Cursor
			for !all.Done {
				_, err := b.PurgeNext(t.Context(), Dead, &all, 1000)
				require.NoError(t, err)
			}
			all = Cursor{}
			for !all.Done {
				_, err := b.PurgeNext(t.Context(), Due, &all, 1000)
				require.NoError(t, err)
			}
		}
		assert.Equal(t, 25, b.count(t, "redriven"))
		assert.Equal(t, 25+25+9+9, b.count(t, "purged"))
	})
}

func TestACursorOverNothingEndsAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		for name, next := range map[string]func(*Cursor) (int, error){
			"redrive": func(c *Cursor) (int, error) { return b.RedriveNext(t.Context(), c, 5) },
			"purge":   func(c *Cursor) (int, error) { return b.PurgeNext(t.Context(), Done, c, 5) },
		} {
			var cursor Cursor
			n, err := next(&cursor)
			require.NoError(t, err)
			assert.Zero(t, n)
			assert.True(t, cursor.Done, name)
			_, err = next(nil)
			assert.Error(t, err, name)
		}
	})
}

func TestPurgeDeletesEverythingOfAJobInThatPlaceOnly(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		ctx := t.Context()
		b.spread(t)
		require.NoError(t, b.rdb.HSet(ctx, b.key("results"), "done", "result").Err())
		for place, id := range map[Place]string{Due: "due", Dead: "dead", Done: "done"} {
			ids := []string{"processing", "nowhere", id, id}
			for other, otherID := range map[Place]string{Due: "due", Dead: "dead", Done: "done"} {
				if other != place {
					ids = append(ids, otherID)
				}
			}
			got, err := b.Purge(ctx, place, ids)
			require.NoError(t, err)
			for i := range ids {
				if i == 2 {
					assert.NoError(t, got[i])
					continue
				}
				assert.Equal(t, ErrGone, got[i], "%s: the %dth", place, i+1)
			}
			require.NoError(t, b.rdb.ZAdd(ctx, b.key(string(place)), redis.Z{Score: 1e15, Member: id}).Err()) // for the next rounds
			require.NoError(t, b.rdb.HSet(ctx, b.key("jobs"), id, "r").Err())
		}
		assert.Zero(t, b.rdb.Exists(ctx, b.key("errors"), b.key("results"), b.key("counts")).Val())
		assert.Equal(t, 3, b.count(t, "purged"))
		assert.Equal(t, Processing, b.look(t, "processing").Place)
		require.NoError(t, b.rdb.HDel(ctx, b.key("jobs"), "done").Err())
	})
}

func TestPurgeOfDueTakesOnlyWhatIsDueByNow(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.put(t, "a", "b")
		b.putItems(t, Item{ID: "later", Record: []byte("r"), Delay: time.Hour})
		var cursor Cursor
		n, err := b.PurgeNext(t.Context(), Due, &cursor, 10)
		require.NoError(t, err)
		assert.Equal(t, 2, n)
		assert.True(t, cursor.Done)
		assert.Equal(t, Due, b.look(t, "later").Place)
	})
}

func TestProcessingIsNeverPurged(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	for _, place := range []Place{Processing, Nowhere, "counts"} {
		_, err := b.Purge(t.Context(), place, []string{"a"})
		assert.Error(t, err, place)
		_, err = b.PurgeNext(t.Context(), place, &Cursor{}, 1)
		assert.Error(t, err, place)
	}
	assert.Empty(t, b.dump(t))
}
