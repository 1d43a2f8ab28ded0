package lease

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An ID is refused while less than the age has passed since the ack, and free when the age has: by Redis' clock in whole
// milliseconds, as the call's own record tells when that was.
func TestAnIDIsFreeInTheMillisecondInWhichItsTimeIsOver(t *testing.T) {
	const age = 60_000
	onBoth(t, func(t *testing.T, b *bench) {
		b.publish(t, Policy{DoneAge: age * time.Millisecond})
		b.put(t, "opens a session")
		ids := names("j", MaxBatch)
		items := make([]Item, len(ids))
		var refused, free int
		for refused == 0 || free == 0 { // again, if the process stood still for a second
			now, members := b.now(t).UnixMilli(), make([]redis.Z, len(ids))
			for i, id := range ids {
				members[i] = redis.Z{Score: float64(now - age - 20 + int64(i)), Member: id}
				items[i] = Item{ID: id, Record: []byte("r")}
			}
			require.NoError(t, b.rdb.ZAdd(t.Context(), b.key("done"), members...).Err())
			require.NoError(t, b.rdb.HSet(t.Context(), b.key("results"), ids[0], "old").Err())
			made, forgotten := map[string]bool{}, b.count(t, "forgotten")
			results, err := b.Enqueue(t.Context(), items)
			require.NoError(t, err)
			when := b.lastCall(t)
			refused, free = 0, 0
			for i, err := range results {
				if left := when - int64(members[i].Score); left < age {
					refused++
					require.Equal(t, &DuplicateError{ID: ids[i], Place: Done}, err, "%d ms after its ack", left)
				} else {
					free++
					made[ids[i]] = true
					require.NoError(t, err, "%d ms after its ack", left)
				}
			}
			require.Equal(t, forgotten+free, b.count(t, "forgotten"))
			require.Equal(t, []int64{int64(refused), 0}, b.inDone(t), "the old result is gone")
			_, err = b.DeleteNext(t.Context(), MaxBatch, RefuseRunning)
			require.NoError(t, err)
			_, err = b.DeleteNext(t.Context(), MaxBatch, RefuseRunning)
			require.NoError(t, err)
		}
	})
}

// lastCall is when the newest call of any session ran, in ms.
func (b *bench) lastCall(t *testing.T) (when int64) {
	t.Helper()
	for _, text := range b.rdb.HGetAll(t.Context(), b.key("sessions")).Val() {
		when = max(when, readSession(t, text).When)
	}
	return when
}

func TestAMillisecondOfRetentionIsOverSoon(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.publish(t, Policy{DoneAge: time.Millisecond})
		b.finish(t, "a")
		require.Equal(t, []int64{1, 1}, b.inDone(t))
		require.Eventually(t, func() bool { return b.again(t, "a") == Nowhere }, patience, pollEvery)
		assert.Equal(t, []int64{0, 0}, b.inDone(t))
	})
}

func TestWhatIsInDoneRunsOutAlthoughRetentionIsSwitchedOff(t *testing.T) {
	off := map[string]func(t *testing.T, b *bench){
		"published": func(t *testing.T, b *bench) { b.publish(t, Policy{DoneAge: NoLimit}) },
		"pinned":    func(t *testing.T, b *bench) { require.True(t, b.pin(t, Policy{DoneAge: NoLimit})) },
	}
	for name, switchOff := range off {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, b *bench) {
				b.publish(t, Policy{DoneAge: time.Hour})
				b.finish(t, "old", "young")
				switchOff(t, b)
				b.put(t, "later")
				b.settle(t, verdict(Ack, b.take(t, 1)[0]))
				assert.Equal(t, []int64{2, 2}, b.inDone(t), "what is acked now is not kept")

				hour := time.Hour.Milliseconds()
				b.since(t, b.now(t).UnixMilli()-hour, "old")
				got, err := b.Retain(t.Context(), 10)
				require.NoError(t, err)
				assert.Equal(t, Forgotten{Done: 1}, got)
				assert.Equal(t, Done, b.again(t, "young"), "its time is not over")
				assert.Equal(t, Nowhere, b.again(t, "old"))
				b.since(t, b.now(t).UnixMilli()-hour, "young")
				assert.Equal(t, Nowhere, b.again(t, "young"))
				assert.Equal(t, []int64{0, 0}, b.inDone(t))
			})
		})
	}
}

func TestOfDoneJobsTheNewestAreKept(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.publish(t, Policy{DoneAge: time.Hour, DoneKeep: ptr(3)})
		ids := names("j", 10)
		b.finish(t, ids...)
		b.laid(t, names("dead", 3)...)
		b.publish(t, Policy{DeadKeep: ptr(1)})
		b.put(t, "stays")
		for _, want := range []Forgotten{{Dead: 2, Done: 4, More: true}, {Done: 3}, {}} {
			got, err := b.Retain(t.Context(), 4)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		assert.Equal(t, []int64{3, 3}, b.inDone(t))
		assert.Equal(t, []int{7, 2}, []int{b.count(t, "forgotten"), b.count(t, "trimmed")})
		left, err := b.rdb.ZRange(t.Context(), b.key("done"), 0, -1).Result()
		require.NoError(t, err)
		assert.Equal(t, ids[7:], left)
		assert.Equal(t, Due, b.look(t, "stays").Place)
	})
}

func TestASweeperForgetsFinishedJobsAtTheirTime(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.publish(t, Policy{DoneAge: time.Minute})
		ids := names("j", 8)
		b.finish(t, ids...)
		b.since(t, b.now(t).Add(-time.Minute).UnixMilli(), ids[:7]...)
		w, err := NewSweeper(b.Store, &SweeperOptions{Batch: 3})
		require.NoError(t, err)
		w.keepEvery = time.Millisecond
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = w.Run(ctx) }()
		require.Eventually(t, func() bool { return b.count(t, "forgotten") == 7 }, patience, pollEvery)
		cancel()
		<-ended
		assert.Equal(t, []int64{1, 1}, b.inDone(t))
	})
}
