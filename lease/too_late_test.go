package lease

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redistest"
)

// claimedAt is when a job was claimed, by Redis' clock.
func claimedAt(l *Lease) time.Time { return l.Due.Add(l.Late) }

// isTooLate requires that a job is dead since its time was over, and has had so many starts.
func (b *bench) isTooLate(t *testing.T, l *Lease, starts int) {
	t.Helper()
	info := b.look(t, l.ID)
	require.Equal(t, Dead, info.Place)
	require.NotEmpty(t, info.Errors)
	last := info.Errors[len(info.Errors)-1]
	assert.Equal(t, []any{"too late", ClassTooLate, starts, ""}, []any{last.Reason, last.Class, last.Attempt, last.Holder})
	assert.Equal(t, info.At, last.At)
	assert.Equal(t, string(info.Record), string(l.Record))
	assert.Equal(t, claimedAt(l), info.At)
	assert.Equal(t, []any{"", int64(0), time.Duration(0)}, []any{l.Token, l.Fence, l.Length})
	assert.True(t, claimedAt(l).After(l.NotAfter))
}

// Jobs whose deadlines are a millisecond apart, around the time of a claim: exactly those are given that may still start.
func TestDeadlinesHoldToTheMillisecond(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	const n = 400
	for try := 0; ; try++ {
		var items []Item
		begun := b.now(t)
		for i, id := range names(fmt.Sprint("try", try), n) {
			items = append(items, Item{ID: id, Record: record(id), NotAfter: begun.Add(time.Duration(i) * time.Millisecond)})
		}
		b.putItems(t, items...)
		b.nextMilli(t)
		got, err := b.Claim(t.Context(), n, nil)
		require.NoError(t, err)
		if len(got.Jobs) == 0 {
			continue // the machine stood still for longer than all of them
		}
		require.Len(t, got.TooLate, n-len(got.Jobs))
		require.NotEmpty(t, got.TooLate)
		for i := range got.TooLate {
			require.True(t, claimedAt(&got.TooLate[i]).After(got.TooLate[i].NotAfter))
		}
		for i := range got.Jobs {
			require.False(t, claimedAt(&got.Jobs[i]).After(got.Jobs[i].NotAfter))
		}
		assert.Equal(t, claimedAt(&got.Jobs[0]).UnixMilli(), got.Jobs[0].NotAfter.UnixMilli(), "one that may start at this very time")
		b.isTooLate(t, &got.TooLate[0], 0)
		assert.Equal(t, Processing, b.look(t, got.Jobs[0].ID).Place)
		dead := int(b.rdb.ZCard(t.Context(), b.key("dead")).Val())
		assert.Equal(t, []int{dead, dead}, []int{b.count(t, "too_late"), b.count(t, "died")})
		return
	}
}

func TestOneJobAtItsDeadline(t *testing.T) {
	t.Parallel()
	mini := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: mini.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	b := newBench(t, redistest.Queue(t), rdb, rdb)
	for name, past := range map[string]time.Duration{"before": -time.Millisecond, "at": 0, "in the same millisecond": 999 * time.Microsecond, "after": time.Millisecond} {
		mini.SetTime(time.UnixMilli(1_796_000_000_000))
		deadline := time.UnixMilli(1_796_000_000_500)
		b.putItems(t, Item{ID: name, Record: record(name), NotAfter: deadline})
		mini.SetTime(deadline.Add(past))
		got, err := b.Claim(t.Context(), 1, nil)
		require.NoError(t, err)
		if past >= time.Millisecond {
			assert.Empty(t, got.Jobs, name)
			require.Len(t, got.TooLate, 1, name)
			b.isTooLate(t, &got.TooLate[0], 0)
			continue
		}
		assert.Empty(t, got.TooLate, name)
		require.Len(t, got.Jobs, 1, name)
		b.settle(t, verdict(Ack, got.Jobs[0]))
	}
}

func TestAJobThatIsTooLateTakesNothingFromTheOthers(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		past := b.now(t).Add(-time.Second)
		var items []Item
		for i, id := range []string{"a", "late1", "b", "late2", "c"} {
			item := Item{ID: id, Record: record(id), At: time.UnixMilli(int64(5 + i)), MaxRetries: ptr(i)}
			if id[0] == 'l' {
				item.NotAfter = past
			}
			items = append(items, item)
		}
		b.putItems(t, items...)
		got, err := b.Claim(t.Context(), 4, nil)
		require.NoError(t, err)
		assert.Equal(t, []string{"a", "b"}, idsOf(got.Jobs))
		assert.Equal(t, []string{"late1", "late2"}, idsOf(got.TooLate))
		assert.Equal(t, got.Jobs[0].Fence+1, got.Jobs[1].Fence)
		assert.Equal(t, []int{0, 1, 2, 3}, []int{*got.Jobs[0].MaxRetries, *got.TooLate[0].MaxRetries, *got.Jobs[1].MaxRetries, *got.TooLate[1].MaxRetries})
		assert.Zero(t, got.NextDue, "there is one more")
		for i, l := range got.Jobs {
			assert.Equal(t, []string{record2(l.ID), b.look(t, l.ID).ID}, []string{string(l.Record), l.ID})
			assert.Equal(t, []Settled{{}}, b.settle(t, verdict(Ack, l)), i)
		}
		assert.Equal(t, []string{"c"}, idsOf(b.take(t, 1)))
	})
}

func record2(id string) string { return string(record(id)) }

func TestAClaimOfJobsThatAreAllTooLateIsFollowedByAnotherAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.publish(t, Policy{Lease: time.Minute, Concurrency: ptr(1), Rate: ptr(1), RateInterval: time.Hour})
		past := b.now(t).Add(-time.Second)
		for _, id := range []string{"late1", "late2"} {
			b.putItems(t, Item{ID: id, Record: record(id), NotAfter: past, At: time.UnixMilli(5)})
		}
		b.put(t, "good")
		for i := range 2 {
			got, err := b.Claim(t.Context(), 1, nil)
			require.NoError(t, err)
			assert.Empty(t, got.Jobs)
			assert.Len(t, got.TooLate, 1, i)
			assert.Equal(t, []any{time.Duration(0), ""}, []any{got.NextDue, got.Held}, "they take neither a place nor of the rate")
			assert.EqualValues(t, 1, b.wakeUps(t))
		}
		assert.Equal(t, []string{"good"}, idsOf(b.take(t, 1)))
	})
}

// Whatever brings a job back, its deadline still holds; a job that ran counts its starts.
func TestADeadlineHoldsForJobsThatComeBack(t *testing.T) {
	ways := map[string]func(t *testing.T, b *bench, l Lease) (starts int){
		"nack": func(t *testing.T, b *bench, l Lease) int {
			b.settle(t, Verdict{Op: Nack, ID: l.ID, Token: l.Token})
			return 1
		},
		"release": func(t *testing.T, b *bench, l Lease) int {
			b.settle(t, verdict(Release, l))
			return 0
		},
		"expiry": func(t *testing.T, b *bench, l Lease) int {
			require.Equal(t, 1, b.expireAll(t, l).ToDue)
			return 1
		},
		"redrive": func(t *testing.T, b *bench, l Lease) int {
			b.settle(t, Verdict{Op: Bury, ID: l.ID, Token: l.Token})
			errs, err := b.Redrive(t.Context(), []string{l.ID})
			require.NoError(t, err)
			require.NoError(t, errs[0])
			return 0
		},
		"edit and redrive": func(t *testing.T, b *bench, l Lease) int {
			b.settle(t, Verdict{Op: Bury, ID: l.ID, Token: l.Token})
			errs, err := b.EditAndRedrive(t.Context(), []Edit{{ID: l.ID, Record: l.Record}})
			require.NoError(t, err)
			require.NoError(t, errs[0])
			return 0
		},
		"promote": func(t *testing.T, b *bench, l Lease) int {
			b.settle(t, Verdict{Op: Release, ID: l.ID, Token: l.Token, Delay: time.Hour})
			errs, err := b.Reschedule(t.Context(), 0, []string{l.ID})
			require.NoError(t, err)
			require.NoError(t, errs[0])
			return 0
		},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, b *bench) {
				b.putItems(t, Item{ID: "x", Record: record("x"), NotAfter: b.now(t).Add(time.Hour)})
				starts := way(t, b, b.take(t, 1)[0])
				b.deadline(t, "x", b.now(t).Add(-time.Millisecond))
				got, err := b.Claim(t.Context(), 1, nil)
				require.NoError(t, err)
				assert.Empty(t, got.Jobs)
				require.Len(t, got.TooLate, 1)
				b.isTooLate(t, &got.TooLate[0], starts)
				info := b.look(t, "x")
				assert.Equal(t, []int{info.Failures, info.Expiries, info.Redrives},
					[]int{got.TooLate[0].Failures, got.TooLate[0].Expiries, got.TooLate[0].Redrives}, "nothing was counted")
				assert.Equal(t, starts, info.Failures+info.Expiries)
			})
		})
	}
}

// deadline gives a job another deadline, as if it had waited.
func (b *bench) deadline(t *testing.T, id string, at time.Time) {
	t.Helper()
	failures, expiries, redrives := 0, 0, 0
	text, err := b.rdb.HGet(t.Context(), b.key("counts"), id).Result()
	require.NoError(t, err)
	_, err = fmt.Sscan(text, &failures, &expiries, &redrives)
	require.NoError(t, err)
	text = fmt.Sprintf("%d %d %d - - %d", failures, expiries, redrives, at.UnixMilli())
	require.NoError(t, b.rdb.HSet(t.Context(), b.key("counts"), id, text).Err())
}

func TestAPausedQueueLeavesJobsThatAreTooLateWhereTheyAre(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.putItems(t, Item{ID: "x", Record: record("x"), NotAfter: b.now(t).Add(-time.Second)})
		err := b.Pause(t.Context(), time.Time{})
		require.NoError(t, err)
		got, err := b.Claim(t.Context(), 1, nil)
		require.NoError(t, err)
		assert.Equal(t, []any{HeldPaused, 0}, []any{got.Held, len(got.TooLate)})
		assert.Equal(t, Due, b.look(t, "x").Place)
	})
}

// The claim's answer is lost: who asks again is told of none of its jobs, and what was too late is dead once.
func TestAJobThatIsTooLateDiesOnceThoughTheAnswerIsLost(t *testing.T) {
	t.Parallel()
	for name, action := range map[string]netfault.Action{"after": netfault.DropReply, "before": netfault.DropRequest} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, proxy := behindProxy(t, nil)
			b.putItems(t, Item{ID: "late", Record: record("late"), NotAfter: b.now(t).Add(-time.Second), At: time.UnixMilli(5)})
			b.put(t, "good")
			calls := intercept(proxy, claimScript, first(1, action))
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			got, err := b.Claim(ctx, 2, nil)
			for err == nil && len(got.Jobs) == 0 { // half as many were asked for
				got, err = b.Claim(ctx, 2, nil)
			}
			require.False(t, errors.Is(err, context.DeadlineExceeded))
			require.NoError(t, err)
			assert.Equal(t, []string{"good"}, idsOf(got.Jobs))
			assert.GreaterOrEqual(t, calls.Load(), int64(2))
			assert.Equal(t, Dead, b.look(t, "late").Place)
			assert.Len(t, b.look(t, "late").Errors, 1)
			assert.Equal(t, []int{1, 1}, []int{b.count(t, "too_late"), b.count(t, "died")})
		})
	}
}

func TestAJobThatIsTooLateDiesThoughMemoryIsFull(t *testing.T) {
	t.Parallel()
	b, fill, free := onFullServer(t)
	b.putItems(t, Item{ID: "late", Record: record("late"), NotAfter: b.now(t).Add(-time.Second), At: time.UnixMilli(5)})
	b.put(t, "good")
	fill()
	got, err := b.Claim(t.Context(), 2, nil)
	free()
	require.NoError(t, err)
	assert.Equal(t, []string{"good"}, idsOf(got.Jobs))
	require.Len(t, got.TooLate, 1)
	b.isTooLate(t, &got.TooLate[0], 0)
}

// Somebody's hand has made counts something else: where it cannot be told what may start, all stays where it is.
func TestAClaimThatCannotReadTheLimitsMovesNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.put(t, "a")
		require.NoError(t, b.rdb.Set(t.Context(), b.key("counts"), "x", 0).Err())
		_, err := b.Claim(t.Context(), 1, nil)
		require.ErrorContains(t, err, "WRONGTYPE")
		require.NoError(t, b.rdb.Del(t.Context(), b.key("counts")).Err())
		assert.Equal(t, Due, b.look(t, "a").Place)
		assert.Equal(t, []string{"a"}, idsOf(b.take(t, 1)))
	})
}

func TestAnImportedJobKeepsItsDeadline(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		errs, err := b.Import(t.Context(), []Kept{{
			ID: "x", Place: Due, At: time.UnixMilli(5), Record: record("x"), Failures: 2, NotAfter: b.now(t).Add(-time.Second),
		}})
		require.NoError(t, err)
		require.NoError(t, errs[0])
		got, err := b.Claim(t.Context(), 1, nil)
		require.NoError(t, err)
		require.Len(t, got.TooLate, 1)
		b.isTooLate(t, &got.TooLate[0], 2)
		assert.Equal(t, 2, b.look(t, "x").Failures)
	})
}
