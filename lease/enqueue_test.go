package lease

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// spread puts a job into each place and returns the leases on what is in processing.
func (b *bench) spread(t *testing.T) (held Lease) {
	t.Helper()
	b.put(t, "dead")
	b.settle(t, verdict(Bury, b.take(t, 1)[0]))
	b.put(t, "processing")
	held = b.take(t, 1)[0]
	b.putItems(t, Item{ID: "due", Record: record("due"), Delay: time.Hour})
	require.NoError(t, b.rdb.ZAdd(t.Context(), b.key("done"), redis.Z{Score: 1e12, Member: "done"}).Err())
	return held
}

func TestAnIDThatIsInAPlaceIsADuplicateAndStaysAsItIs(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.spread(t)
		before := b.dump(t)
		items := []Item{
			{ID: "due", Record: []byte("new")}, {ID: "processing", Record: []byte("new")},
			{ID: "dead", Record: []byte("new")}, {ID: "done", Record: []byte("new"), MaxRetries: ptr(1)},
		}
		results, err := b.Enqueue(t.Context(), items)
		require.NoError(t, err)
		for i, place := range []Place{Due, Processing, Dead, Done} {
			require.ErrorIs(t, results[i], ErrDuplicate)
			var duplicate *DuplicateError
			require.ErrorAs(t, results[i], &duplicate)
			assert.Equal(t, DuplicateError{ID: items[i].ID, Place: place}, *duplicate)
		}
		assert.Equal(t, before, b.dump(t))
		assert.Equal(t, 3, b.count(t, "enqueued"))
	})
}

func TestItemsOfABatchActInOrder(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		results, err := b.Enqueue(t.Context(), []Item{
			{ID: "a", Record: []byte("first")}, {ID: "b", Record: []byte("b")},
			{ID: "a", Record: []byte("second"), Delay: time.Hour, MaxRetries: ptr(3)}, {ID: "c", Record: []byte("c")},
		})
		require.NoError(t, err)
		assert.Equal(t, []error{nil, nil, &DuplicateError{ID: "a", Place: Due}, nil}, results)
		info := b.look(t, "a")
		assert.Equal(t, "first", string(info.Record))
		assert.Nil(t, info.MaxRetries)
		assert.LessOrEqual(t, info.In, time.Duration(0))
		assert.Equal(t, 3, b.count(t, "enqueued"))
	})
}

// What is alike for all jobs of a call is sent once, so that each must still get its own where they differ.
func TestEachJobOfACallHasItsOwnTimeRecordAndLimits(t *testing.T) {
	at := time.UnixMilli(time.Now().Add(time.Hour).UnixMilli())
	items := []Item{
		{ID: "at", Record: []byte("1"), At: at},
		{ID: "now", Record: []byte("2")},
		{ID: "limited", Record: []byte("3"), Delay: time.Hour, MaxRetries: ptr(3)},
		{ID: "plain", Record: []byte("4"), Delay: time.Hour},
		{ID: "late", Record: []byte("5"), MaxExpiries: ptr(2), NotAfter: at},
		{ID: "last", Record: []byte("6"), At: at.Add(time.Second)},
	}
	counts := map[string]string{"limited": "0 0 0 3 - -", "late": fmt.Sprintf("0 0 0 - 2 %d", at.UnixMilli())}
	for name, call := range map[string][]Item{
		"mixed": items, "one": items[2:3], "limits first": items[4:], "the same time, limits last": {items[3], items[2]},
		"without limits": {items[0], items[1], items[3], items[5]}, "one time": {items[0], {ID: "b", Record: []byte("7"), At: at}},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, b *bench) {
				before := b.now(t)
				b.putItems(t, call...)
				after := b.now(t)
				for _, item := range call {
					due := time.UnixMilli(b.score(t, Due, item.ID))
					if item.At.IsZero() {
						assert.WithinRange(t, due, before.Truncate(time.Millisecond).Add(item.Delay), after.Add(item.Delay+time.Millisecond), item.ID)
					} else {
						assert.True(t, due.Equal(item.At), "%s: %v", item.ID, due)
					}
					assert.Equal(t, string(item.Record), b.rdb.HGet(t.Context(), b.key("jobs"), item.ID).Val())
					assert.Equal(t, counts[item.ID], b.rdb.HGet(t.Context(), b.key("counts"), item.ID).Val(), item.ID)
				}
			})
		})
	}
}

func TestAJobThatReplacesADeadOneTakesAPlaceBeforeTheNext(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.bury(t, "dead")
		b.publish(t, Policy{MaxLength: ptr(1)})
		got, err := b.EnqueueEach(t.Context(), []Item{{ID: "dead", Record: []byte("new"), Replace: true}, {ID: "next", Record: []byte("r")}})
		require.NoError(t, err)
		assert.Equal(t, []Made{{Replaced: true}, {Err: &QueueFullError{Limit: 1}}}, got, "one is in due before the next")
	})
}

func TestPayloadAboveThePublishedLimitIsRefusedAlone(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.publish(t, Policy{PayloadLimit: 100})
		results, err := b.Enqueue(t.Context(), []Item{
			{ID: "a", Record: []byte("r"), Size: 100}, {ID: "b", Record: []byte("r"), Size: 101}, {ID: "c", Record: []byte("r")},
		})
		require.NoError(t, err)
		assert.NoError(t, results[0])
		assert.NoError(t, results[2])
		var large *TooLargeError
		require.ErrorAs(t, results[1], &large)
		assert.Equal(t, TooLargeError{What: "payload", Size: 101, Limit: 100}, *large)
		assert.Equal(t, Nowhere, b.look(t, "b").Place)
		assert.Equal(t, 2, b.count(t, "enqueued"))
	})
}

// whole ms on Redis' clock, and never earlier than asked for.
func TestDueTimesAreRoundedUp(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		for i := range 200 {
			delay := rand.N(3 * time.Millisecond)
			if i%4 == 0 {
				delay = delay.Truncate(time.Millisecond)
			}
			id := fmt.Sprint("delay", i)
			before := b.now(t)
			b.putItems(t, Item{ID: id, Record: []byte("r"), Delay: delay})
			after := b.now(t)
			due := b.score(t, Due, id)
			if delay == 0 {
				assert.Equal(t, true, due >= before.UnixMilli() && due <= after.UnixMilli(), "claimable at once")
				continue
			}
			assert.GreaterOrEqual(t, due*1000, before.Add(delay).UnixMicro(), "not early, for a delay of %v", delay)
			assert.Less(t, due*1000, after.Add(delay).UnixMicro()+2001, "the clock and the delay round up")
		}
		b.publish(t, Policy{MaxDelay: ptr(time.Duration(1<<63 - 1))})
		for _, at := range []time.Time{
			time.UnixMilli(1_900_000_000_000), time.UnixMicro(1_900_000_000_000_001), time.Unix(1_900_000_000, 1),
			time.Unix(-5, 1), time.Unix(1, 999_999_999), time.Date(2299, 1, 1, 0, 0, 0, 1, time.UTC),
		} {
			id := at.String()
			b.putItems(t, Item{ID: id, Record: []byte("r"), At: at})
			due := time.UnixMilli(b.score(t, Due, id))
			assert.False(t, due.Before(at), id)
			assert.Less(t, due.Sub(at), time.Millisecond, id)
		}
	})
}

func TestTheLongestDelayIsKept(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.publish(t, Policy{MaxDelay: ptr(time.Duration(1<<63 - 1))})
		b.putItems(t, Item{ID: "a", Record: []byte("r"), Delay: 1<<63 - 1})
		got, err := b.Claim(t.Context(), 1, nil)
		require.NoError(t, err)
		assert.Empty(t, got.Jobs)
		assert.Greater(t, got.NextDue, 10000*time.Hour, "whatever is told, it is far away")
	})
}

func TestWhatAnOrphanLeftIsOverwritten(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		ctx := t.Context()
		require.NoError(t, b.rdb.HSet(ctx, b.key("jobs"), "a", "orphan").Err())
		require.NoError(t, b.rdb.HSet(ctx, b.key("counts"), "a", "9 9 9 1 1 -").Err())
		require.NoError(t, b.rdb.HSet(ctx, b.key("errors"), "a", "1\t1\t\told").Err())
		require.NoError(t, b.rdb.HSet(ctx, b.key("leases"), "a", "1:s:1").Err())
		b.put(t, "a")
		info := b.look(t, "a")
		assert.Equal(t, Info{
			ID: "a", Place: Due, At: info.At, In: info.In, Record: record("a"),
		}, info)
	})
}

func TestOwnLimitsAreStoredOnlyWhereTheyAreGiven(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.putItems(t,
			Item{ID: "none", Record: []byte("r")},
			Item{ID: "retries", Record: []byte("r"), MaxRetries: ptr(0)},
			Item{ID: "expiries", Record: []byte("r"), MaxExpiries: ptr(7)},
			Item{ID: "both", Record: []byte("r"), MaxRetries: ptr(3), MaxExpiries: ptr(0)})
		assert.Equal(t, map[string]string{
			"retries": "0 0 0 0 - -", "expiries": "0 0 0 - 7 -", "both": "0 0 0 3 0 -",
		}, b.rdb.HGetAll(t.Context(), b.key("counts")).Val())
		for _, l := range b.take(t, 4) {
			info := b.look(t, l.ID)
			assert.Equal(t, info.MaxRetries, l.MaxRetries)
			assert.Equal(t, info.MaxExpiries, l.MaxExpiries)
			assert.Equal(t, 1, l.Attempt())
		}
		assert.Equal(t, 3, *b.look(t, "both").MaxRetries)
		assert.Equal(t, 0, *b.look(t, "both").MaxExpiries)
		assert.Nil(t, b.look(t, "expiries").MaxRetries)
	})
}

func TestEnqueueWakesOnlyForAnEarlierHead(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		for _, step := range []struct {
			id    string
			delay time.Duration
			wakes int64
		}{
			{"first", time.Hour, 1}, {"later", 2 * time.Hour, 0}, {"earlier", time.Minute, 1}, {"now", 0, 1}, {"after it", time.Second, 0},
		} {
			b.putItems(t, Item{ID: step.id, Record: []byte("r"), Delay: step.delay})
			assert.Equal(t, step.wakes, b.wakeUps(t), step.id)
		}
		b.putItems(t, Item{ID: "a", Record: []byte("r"), At: time.Unix(5, 0)})
		b.putItems(t, Item{ID: "b", Record: []byte("r"), At: time.Unix(4, 0)})
		assert.EqualValues(t, 1, b.wakeUps(t), "never more than one")
	})
}

func TestItemsWithMistakesAreRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	for name, item := range map[string]Item{
		"no ID": {Record: []byte("r")}, "no record": {ID: "a"}, "delay below zero": {ID: "a", Record: []byte("r"), Delay: -1},
		"delay and time": {ID: "a", Record: []byte("r"), Delay: 1, At: time.Unix(1, 0)},
	} {
		results, err := b.Enqueue(t.Context(), []Item{{ID: "good", Record: []byte("r")}, item})
		require.Error(t, err, name)
		assert.Empty(t, results)
		var unknown *UnknownError
		assert.False(t, errors.As(err, &unknown), name)
	}
	assert.Empty(t, b.dump(t))
}
