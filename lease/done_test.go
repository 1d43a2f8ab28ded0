package lease

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
)

// finish enqueues, claims and acks jobs, whose IDs are their results, too.
func (b *bench) finish(t *testing.T, ids ...string) {
	t.Helper()
	b.put(t, ids...)
	verdicts := make([]Verdict, len(ids))
	for i, l := range b.take(t, len(ids)) {
		verdicts[i] = verdict(Ack, l)
		verdicts[i].Result = []byte(l.ID)
	}
	for _, got := range b.settle(t, verdicts...) {
		require.Equal(t, Settled{}, got)
	}
}

// since has jobs been done since then.
func (b *bench) since(t *testing.T, ms int64, ids ...string) {
	t.Helper()
	for _, id := range ids {
		n, err := b.rdb.ZAddArgs(t.Context(), b.key("done"), redis.ZAddArgs{XX: true, Ch: true, Members: []redis.Z{{Score: float64(ms), Member: id}}}).Result()
		require.NoError(t, err)
		require.LessOrEqual(t, n, int64(1))
	}
}

// inDone is how many jobs are in done, and how many results there are.
func (b *bench) inDone(t *testing.T) []int64 {
	t.Helper()
	jobs, err := b.rdb.ZCard(t.Context(), b.key("done")).Result()
	require.NoError(t, err)
	results, err := b.rdb.HLen(t.Context(), b.key("results")).Result()
	require.NoError(t, err)
	return []int64{jobs, results}
}

// again enqueues a job of this ID, and says where one is that has it; Nowhere is created.
func (b *bench) again(t *testing.T, id string) Place {
	t.Helper()
	got, err := b.Enqueue(t.Context(), []Item{{ID: id, Record: record(id)}})
	require.NoError(t, err)
	if got[0] == nil {
		return Nowhere
	}
	var duplicate *DuplicateError
	require.ErrorAs(t, got[0], &duplicate)
	return duplicate.Place
}

// The ways in which a batch can ack: each has another way through the script.
var ackings = map[string]func(b *bench, l []Lease) ([]Settled, error){
	"acks alone": func(b *bench, l []Lease) ([]Settled, error) {
		return b.Settle(context.Background(), []Verdict{verdict(Ack, l[0]), verdict(Ack, l[1])})
	},
	"one with a result": func(b *bench, l []Lease) ([]Settled, error) {
		return b.Settle(context.Background(), []Verdict{verdict(Ack, l[0]), {Op: Ack, ID: l[1].ID, Token: l[1].Token, Result: []byte("b")}})
	},
	"beside a claim": func(b *bench, l []Lease) ([]Settled, error) {
		done, settleErr, _, _ := b.Exchange(context.Background(), []Verdict{verdict(Ack, l[0]), verdict(Ack, l[1])}, 5, nil)
		return done, settleErr
	},
	"with a result beside a claim": func(b *bench, l []Lease) ([]Settled, error) {
		done, settleErr, _, _ := b.Exchange(context.Background(), []Verdict{verdict(Ack, l[0]), {Op: Ack, ID: l[1].ID, Token: l[1].Token, Result: []byte("b")}}, 5, nil)
		return done, settleErr
	},
}

func TestAnAckedJobIsKeptForAsLongAsThePolicySays(t *testing.T) {
	for name, ack := range ackings {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, b *bench) {
				b.publish(t, Policy{DoneAge: time.Hour})
				b.put(t, "a", "b")
				b.settle(t, Verdict{Op: Nack, ID: "a", Token: b.take(t, 2)[0].Token, Reason: "first", Delay: 0}) // counts and errors
				again := b.take(t, 1)
				held := append(again, Lease{ID: "b", Token: b.rdb.HGet(t.Context(), b.key("leases"), "b").Val()})
				before := b.now(t).UnixMilli()
				got, err := ack(b, held)
				require.NoError(t, err)
				require.Equal(t, []Settled{{}, {}}, got)
				result := strings.Contains(name, "result")
				for i, id := range []string{"a", "b"} {
					info := b.look(t, id)
					at := info.At.UnixMilli()
					require.GreaterOrEqual(t, at, before)
					require.LessOrEqual(t, at, b.now(t).UnixMilli())
					info.At, info.In = time.Time{}, 0
					want := Info{ID: id, Place: Done, Record: []byte{}}
					if result && i == 1 {
						want.Result = []byte("b")
					}
					assert.Equal(t, want, info, "of the job nothing is kept but the ID and the result")
					assert.Equal(t, Done, b.again(t, id))
				}
				stats, err := b.Stats(t.Context())
				require.NoError(t, err)
				assert.Equal(t, []int64{0, 0, 2, 0, 2}, []int64{stats.Due, stats.Processing, stats.Done, stats.Records, stats.Counters["acked"]})
			})
		})
	}
}

func TestWithoutRetentionAnAckLeavesNothing(t *testing.T) {
	for name, ack := range ackings {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, b *bench) {
				b.publish(t, Policy{DoneAge: NoLimit, DoneKeep: ptr(NoLimit)})
				b.put(t, "a", "b")
				got, err := ack(b, b.take(t, 2))
				require.NoError(t, err)
				require.Equal(t, []Settled{{}, {}}, got)
				assert.Equal(t, []int64{0, 0}, b.inDone(t))
				assert.Equal(t, Nowhere, b.again(t, "a"))
			})
		})
	}
}

func TestAJobInDoneGivesWayToOneThatReplacesIt(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.publish(t, Policy{DoneAge: time.Hour})
		b.finish(t, "a", "b")
		got, err := b.EnqueueEach(t.Context(), []Item{{ID: "a", Record: []byte("new"), Replace: true}, {ID: "b", Record: []byte("new")}})
		require.NoError(t, err)
		assert.Equal(t, []Made{{Replaced: true}, {Err: &DuplicateError{ID: "b", Place: Done}}}, got)
		assert.Equal(t, []int64{1, 1}, b.inDone(t))
		assert.Equal(t, []int{1, 0}, []int{b.count(t, "replaced"), b.count(t, "forgotten")})
		l := b.take(t, 1)[0]
		assert.Equal(t, "new", string(l.Record))
		b.settle(t, verdict(Ack, l))
		assert.Empty(t, b.look(t, "a").Result, "it finished without one")
		assert.Equal(t, []int64{2, 1}, b.inDone(t))
	})
}

func TestASecondUseOfAnIDInABatchFindsItInDone(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.publish(t, Policy{DoneAge: time.Hour})
		b.put(t, "a", "b")
		l := b.take(t, 2)
		in := func(id string) Settled { return Settled{Err: &LostError{ID: id, Place: Done}} }
		assert.Equal(t, []Settled{{}, in("a")}, b.settle(t, verdict(Ack, l[0]), verdict(Ack, l[0])))
		assert.Equal(t, []Settled{{}, in("b")}, b.settle(t, verdict(Ack, l[1]), verdict(Nack, l[1])))
	})
}

func TestACancelledJobThatIsAckedIsKept(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.publish(t, Policy{DoneAge: time.Hour})
		b.put(t, "acked", "nacked")
		l := b.take(t, 2)
		_, err := b.Cancel(t.Context(), []string{"acked", "nacked"})
		require.NoError(t, err)
		v := verdict(Ack, l[0])
		v.Result = []byte("result")
		assert.Equal(t, []Settled{{}, {Cancelled: true}}, b.settle(t, v, verdict(Nack, l[1])))
		assert.Equal(t, []int64{1, 1}, b.inDone(t))
		removed, err := b.Cancel(t.Context(), []string{"acked"})
		require.NoError(t, err)
		assert.Equal(t, []Removed{{Cancelled: true}}, removed)
		assert.Equal(t, []int64{0, 0}, b.inDone(t))
	})
}

func TestALateAckChangesNothingInDone(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.publish(t, Policy{DoneAge: time.Hour})
		b.put(t, "a")
		late := b.take(t, 1)[0]
		b.expireAll(t, late)
		v := verdict(Ack, late)
		v.Result = []byte("late")
		assert.Equal(t, []Settled{{Err: &LostError{ID: "a", Place: Due}}}, b.settle(t, v))
		assert.Equal(t, []int64{0, 0}, b.inDone(t))
		now := verdict(Ack, b.take(t, 1)[0])
		now.Result = []byte("in time")
		b.settle(t, now)
		before := b.dump(t)
		assert.Equal(t, []Settled{{Err: &LostError{ID: "a", Place: Done}}}, b.settle(t, v))
		assert.Equal(t, before, b.dump(t))
	})
}

func TestAnAckWhoseReplyIsLostIsKeptOnce(t *testing.T) {
	t.Parallel()
	b, proxy := behindProxy(t, nil)
	b.publish(t, Policy{DoneAge: time.Hour})
	b.put(t, "a", "b", "c")
	l := b.take(t, 3)
	intercept(proxy, settleScript, first(2, netfault.DropReply))
	v := verdict(Ack, l[0])
	v.Result = []byte("result")
	assert.Equal(t, []Settled{{}, {}}, b.settle(t, v, verdict(Ack, l[1])))
	intercept(proxy, exchangeScript, first(2, netfault.DropReply))
	done, settleErr, _, claimErr := b.Exchange(t.Context(), []Verdict{verdict(Ack, l[2])}, 1, nil)
	require.NoError(t, settleErr)
	require.NoError(t, claimErr)
	assert.Equal(t, []Settled{{}}, done)
	assert.Equal(t, "result", string(b.look(t, "a").Result))
	assert.Equal(t, []int64{3, 1}, b.inDone(t))
	assert.Equal(t, 3, b.count(t, "acked"))
	assert.Positive(t, proxy.Dropped())
}

func TestResultsAreBounded(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.publish(t, Policy{DoneAge: time.Hour})
		b.put(t, names("j", 66)...)
		l := b.take(t, 66)
		v := verdict(Ack, l[0])
		v.Result = make([]byte, MaxResult+1)
		_, err := b.Settle(t.Context(), []Verdict{v})
		var large *TooLargeError
		require.ErrorAs(t, err, &large)
		assert.Equal(t, TooLargeError{What: "result", Size: MaxResult + 1, Limit: MaxResult}, *large)
		all := make([]Verdict, 65)
		for i := range all {
			all[i] = verdict(Ack, l[i+1])
			all[i].Result = make([]byte, MaxResult)
		}
		_, err = b.Settle(t.Context(), all)
		require.ErrorContains(t, err, fmt.Sprintf("the results of one call of %d bytes: want at most %d", 65*MaxResult, MaxBytes))
		n := verdict(Nack, l[0])
		n.Result = []byte("x")
		_, err = b.Settle(t.Context(), []Verdict{n})
		require.ErrorContains(t, err, "only an ack has one")
		assert.Equal(t, []int64{0, 0}, b.inDone(t), "nothing was sent")

		v.Result = []byte(strings.Repeat("\x00\xff\n", MaxResult/3))
		b.settle(t, v)
		b.settle(t, all[1:]...)
		assert.Equal(t, v.Result, b.look(t, v.ID).Result)
		infos, err := b.Inspect(t.Context(), idsOf(l))
		require.NoError(t, err, "in more than one answer")
		assert.Len(t, infos, 66)
		assert.Len(t, infos[65].Result, MaxResult)
		infos, err = b.InspectHeads(t.Context(), idsOf(l), 10)
		require.NoError(t, err)
		assert.Nil(t, infos[0].Result)
	})
}

func TestAnAckIsKeptAlsoWhereMemoryIsFull(t *testing.T) {
	t.Parallel()
	b, fill, free := onFullServer(t)
	b.publish(t, Policy{DoneAge: time.Hour})
	b.put(t, "a", "b", "c")
	l := b.take(t, 3)
	fill()
	v := verdict(Ack, l[0])
	v.Result = make([]byte, MaxResult)
	assert.Equal(t, []Settled{{}, {}}, b.settle(t, v, verdict(Ack, l[1])))
	assert.Equal(t, []Settled{{}}, b.settle(t, verdict(Ack, l[2])))
	assert.Equal(t, []int64{3, 1}, b.inDone(t))
	b.publish(t, Policy{DoneKeep: ptr(0)})
	got, err := b.Retain(t.Context(), 10)
	require.NoError(t, err)
	assert.Equal(t, Forgotten{Done: 3}, got)
	free()
}

func TestAFlushForgetsRetentionUntilItIsPublishedAgain(t *testing.T) {
	t.Parallel()
	b, _, _ := onFullServer(t)
	b.publish(t, Policy{DoneAge: time.Hour})
	b.finish(t, "a")
	b.put(t, "b")
	held := b.take(t, 1)[0]
	require.NoError(t, b.rdb.FlushAll(t.Context()).Err())
	assert.Equal(t, []Settled{{Err: ErrGone}}, b.settle(t, verdict(Ack, held)))
	assert.Equal(t, []int64{0, 0}, b.inDone(t))
	b.finish(t, "a")
	assert.Equal(t, []int64{0, 0}, b.inDone(t), "nothing says that it is kept")
	_, err := b.Restore(t.Context(), &Policy{DoneAge: time.Hour})
	require.NoError(t, err)
	b.finish(t, "a")
	assert.Equal(t, []int64{1, 1}, b.inDone(t))
}

func TestDoneAgeIsPinnedToNothingByZeroAndByNone(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"0", "0s", "none"} {
		var p Policy
		require.NoError(t, p.Set("done_age", text))
		assert.Equal(t, Policy{DoneAge: NoLimit}, p)
		require.NoError(t, p.CheckPin())
	}
	var p Policy
	require.NoError(t, p.Set("done_age", "1ms"))
	require.NoError(t, p.Set("done_keep", "0"))
	require.NoError(t, p.CheckPin())
	assert.Equal(t, Policy{DoneAge: time.Millisecond, DoneKeep: ptr(0)}, p)
	require.ErrorContains(t, p.Set("done_age", "-1s"), "done_age=-1s: want a duration as 30s, 0s to")
}
