package lease

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redistest"
)

func TestInspectTellsEverythingOfAJob(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		l := b.spread(t)
		got, err := b.Inspect(t.Context(), []string{"due", "processing", "dead", "done", "nowhere"})
		require.NoError(t, err)
		places := []Place{Due, Processing, Dead, Done, Nowhere}
		for i, info := range got {
			assert.Equal(t, places[i], info.Place)
			assert.Equal(t, info.Place == Nowhere, info.At.IsZero())
			if i < 3 {
				assert.Equal(t, string(record(info.ID)), string(info.Record))
			} else {
				assert.Empty(t, info.Record)
			}
		}
		assert.InDelta(t, time.Hour, got[0].In, float64(10*time.Second))
		assert.InDelta(t, DefaultLease, got[1].In, float64(10*time.Second))
		assert.Equal(t, []any{l.Fence, "test/1", false}, []any{got[1].Fence, got[1].Holder, got[1].Cancelling})
		assert.Equal(t, 1, got[2].Failures)
		assert.Negative(t, got[3].In)
		assert.Equal(t, "nowhere", Nowhere.String())
		assert.Equal(t, "due", Due.String())
	})
}

func TestStatsAreOnePictureOfAPartition(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		empty, err := b.Stats(t.Context())
		require.NoError(t, err)
		assert.Equal(t, Stats{
			OldestDue: -time.Millisecond, NextExpiry: -time.Millisecond, SinceSweep: -time.Millisecond, Counters: map[string]int64{},
		}, empty)

		b.spread(t)
		b.putItems(t, Item{ID: "old", Record: []byte("r"), At: b.now(t).Add(-time.Minute)})
		_, err = b.Expire(t.Context(), 1, true)
		require.NoError(t, err)
		got, err := b.Stats(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []int64{2, 1, 1, 0, 1, 1, 4}, []int64{got.Due, got.Claimable, got.Processing, got.Expired, got.Dead, got.Done, got.Records})
		assert.EqualValues(t, 2, got.Sessions)
		assert.InDelta(t, time.Minute, got.OldestDue, float64(10*time.Second))
		assert.InDelta(t, DefaultLease, got.NextExpiry, float64(10*time.Second))
		assert.InDelta(t, 0, got.SinceSweep, float64(10*time.Second))
		assert.Equal(t, map[string]int64{"enqueued": 4, "claimed": 2, "buried": 1, "died": 1}, got.Counters)
		b.runOut(t, Lease{ID: "processing"})
		got, err = b.Stats(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 1, got.Expired)
		assert.Zero(t, got.NextExpiry)
	})
}

func TestReadingWritesNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.spread(t)
		before := redistest.Dump(t, b.rdb, keys.DefaultPrefix, b.queue)
		_, err := b.Stats(t.Context())
		require.NoError(t, err)
		_, err = b.Inspect(t.Context(), []string{"due", "processing", "nowhere"})
		require.NoError(t, err)
		for _, place := range []Place{Due, Processing, Dead, Done} {
			got, err := b.List(t.Context(), place, 10, nil)
			require.NoError(t, err)
			assert.Equal(t, []string{string(place)}, got.IDs)
		}
		assert.Equal(t, before, redistest.Dump(t, b.rdb, keys.DefaultPrefix, b.queue))
	})
}

func TestInspectTellsOfManyLargeRecordsInSeveralSteps(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	large := bytes.Repeat([]byte("r"), MaxBytes/3)
	ids := names("j", 8)
	for _, id := range ids {
		b.putItems(t, Item{ID: id, Record: append([]byte(id), large...)})
	}
	b.putItems(t, Item{ID: "larger", Record: bytes.Repeat([]byte("r"), MaxBytes+1)})
	got, err := b.Inspect(t.Context(), append(ids, "larger", "nowhere"))
	require.NoError(t, err)
	require.Len(t, got, 10)
	for i, id := range ids {
		assert.Equal(t, id, got[i].ID)
		assert.Len(t, got[i].Record, len(large)+len(id))
		assert.True(t, bytes.HasPrefix(got[i].Record, []byte(id)))
	}
	assert.Len(t, got[8].Record, MaxBytes+1)
	assert.Equal(t, Nowhere, got[9].Place)

	heads, err := b.InspectHeads(t.Context(), ids, 5)
	require.NoError(t, err)
	for i, id := range ids {
		assert.Equal(t, id, string(heads[i].Record))
	}
	_, err = b.InspectHeads(t.Context(), ids, 0)
	assert.Error(t, err)
}
