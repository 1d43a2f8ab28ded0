package cases

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

// The five jobs of S09, named for how far their expiries lie from T.
var aroundT = []struct {
	id     string
	offset int64 // ms
}{{"T-5min", -300_000}, {"T-1ms", -1}, {"T", 0}, {"T+1ms", 1}, {"T+5min", 300_000}}

// On a clock that stands still the window can be told exactly: expired is what has expiry <= now, in whole
// milliseconds. The frozen clock is that of an in-process Redis; the next test asks a real server.
func TestS09_ASweepTakesExactlyWhatHasExpiredAtAFrozenClock(t *testing.T) {
	t.Parallel()
	for _, below := range []time.Duration{0, 500 * time.Microsecond, 999 * time.Microsecond} {
		t.Run("T plus "+below.String(), func(t *testing.T) {
			t.Parallel()
			mini := miniredis.RunT(t)
			rdb := redis.NewClient(&redis.Options{Addr: mini.Addr()})
			t.Cleanup(func() { require.NoError(t, rdb.Close()) })
			frozen := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(below)
			mini.SetTime(frozen)
			l := laneOn(t, "window", rdb, nil)
			for _, one := range aroundT {
				l.enqueue(reliable.Item{Kind: "case", ID: one.id})
			}
			l.claimExactly(len(aroundT))
			for _, one := range aroundT {
				l.setScores(lease.Processing, fmt.Sprint(frozen.UnixMilli()+one.offset), one.id)
			}

			got := l.sweep(lease.DefaultBatch)
			require.Equal(t, 3, got.ToDue)
			require.Equal(t, time.Millisecond, got.NextExpiry)
			require.ElementsMatch(t, []string{"T-5min", "T-1ms", "T"}, l.members(lease.Due))
			require.Equal(t, []string{"T+1ms", "T+5min"}, l.members(lease.Processing))
			got = l.sweep(lease.DefaultBatch)
			require.Zero(t, got.Moved(), "nothing more has expired at T")

			mini.SetTime(frozen.Add(time.Millisecond))
			got = l.sweep(lease.DefaultBatch)
			require.Equal(t, 1, got.ToDue)
			require.Equal(t, 5*time.Minute-time.Millisecond, got.NextExpiry)
			require.Equal(t, []string{"T+5min"}, l.members(lease.Processing))
			redistest.CheckQueue(t, rdb, keys.DefaultPrefix, l.name)
		})
	}
}

// expiriesAroundNow sets the scores of processing by the server's clock: ARGV is id, offset in ms, ….
const expiriesAroundNow = `
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
for i = 1, #ARGV, 2 do
  redis.call('ZADD', KEYS[1], 'XX', string.format('%.0f', now + ARGV[i + 1]), ARGV[i])
end
return string.format('%.0f', now)`

// On a real server the clock does not stand still, but the scores are set and the sweep runs within one MULTI. Where
// the clock shows one millisecond from its begin to its end, that is T; where it does not, the try does not count.
func TestS09_ASweepTakesExactlyWhatHasExpiredOnARealServer(t *testing.T) {
	t.Parallel()
	redistest.NeedServer(t)
	counted, tries := 0, 0
	for want := shape(5, 50); counted < want; tries++ {
		require.Less(t, tries, 40*want, "the server's clock never stood still for a MULTI")
		if sweepAtOneInstant(t) {
			counted++
		}
	}
	t.Logf("%d of %d tries ran within one millisecond", counted, tries)
}

func sweepAtOneInstant(t *testing.T) bool {
	l := newLane(t, nil)
	for _, one := range aroundT {
		l.enqueue(reliable.Item{Kind: "case", ID: one.id})
	}
	l.claimExactly(len(aroundT))
	rdb, hook := bracketed(t)
	var set *redis.Cmd
	hook.setUp = func(ctx context.Context, pipe redis.Pipeliner) {
		var args []any
		for _, one := range aroundT {
			args = append(args, one.id, one.offset)
		}
		set = pipe.Eval(ctx, expiriesAroundNow, []string{l.keys.Key("processing")}, args...)
	}
	watched, err := lease.NewStore(rdb, l.name, nil)
	require.NoError(t, err)
	got, err := watched.Expire(t.Context(), lease.DefaultBatch, true)
	require.NoError(t, err)
	at, err := set.Int64()
	require.NoError(t, err)
	if from, to := hook.last(); from.UnixMilli() != at || to.UnixMilli() != at {
		return false
	}
	require.Equal(t, 3, got.ToDue)
	require.ElementsMatch(t, []string{"T-5min", "T-1ms", "T"}, l.members(lease.Due))
	require.Equal(t, []string{"T+1ms", "T+5min"}, l.members(lease.Processing))

	l.awaitServerTime(time.UnixMilli(at + 1))
	require.Equal(t, 1, l.sweep(lease.DefaultBatch).ToDue)
	require.Equal(t, []string{"T+5min"}, l.members(lease.Processing))
	return true
}

func TestS09_ALateAckOrExtendSucceedsUntilASweepHasTakenTheLease(t *testing.T) {
	t.Parallel()
	l := newLane(t, nil)
	l.enqueue(numberedItems("j", 4)...)
	jobs := l.claimExactly(4)
	past := fmt.Sprint(l.serverTime().Add(-time.Second).UnixMilli())
	l.setScores(lease.Processing, past, "j0", "j1", "j2", "j3")

	require.NoError(t, jobs["j0"].Ack(t.Context()), "expired, and no sweep has taken it")
	require.NoError(t, jobs["j1"].Extend(t.Context(), time.Hour))
	require.Equal(t, 2, l.sweep(lease.DefaultBatch).ToDue)
	require.Equal(t, []string{"j1"}, l.members(lease.Processing), "an extended lease is not taken")

	var lost *reliable.LostError
	require.ErrorAs(t, jobs["j2"].Ack(t.Context()), &lost)
	require.Equal(t, reliable.Due, lost.Place)
	require.ErrorAs(t, jobs["j3"].Extend(t.Context(), time.Hour), &lost)
	require.Equal(t, reliable.Due, lost.Place)
	require.ElementsMatch(t, []string{"j2", "j3"}, l.members(lease.Due))
	require.NoError(t, jobs["j1"].Ack(t.Context()))
	l.balanced(4)
}

// A holder's call and a sweep race for leases that have just run out: one of them gets each, never both, never none.
func TestS09_AHoldersCallAndASweepNeverBothGetALease(t *testing.T) {
	t.Parallel()
	n := shape(300, 5000)
	for name, call := range map[string]func(ctx context.Context, s *lease.Store, j *lease.Lease) error{
		"ack": func(ctx context.Context, s *lease.Store, j *lease.Lease) error {
			got, err := s.Settle(ctx, []lease.Verdict{{Op: lease.Ack, ID: j.ID, Token: j.Token}})
			if err != nil {
				return err
			}
			return got[0].Err
		},
		"extend": func(ctx context.Context, s *lease.Store, j *lease.Lease) error {
			got, err := s.Extend(ctx, time.Hour, []lease.Held{{ID: j.ID, Token: j.Token}})
			if err != nil {
				return err
			}
			return got.Results[0]
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLane(t, nil)
			wins, losses := 0, 0
			for round := 0; wins == 0 || losses == 0; round++ {
				require.Less(t, round, 20, "the race was never close: the case was not met")
				w, s := raceForLeases(t, l, fmt.Sprintf("r%d-", round), n, call)
				wins, losses = wins+w, losses+s
			}
			t.Logf("%d by the holder, %d by the sweep", wins, losses)
		})
	}
}

func raceForLeases(t *testing.T, l *lane, prefix string, n int, call func(context.Context, *lease.Store, *lease.Lease) error) (wins, losses int) {
	ctx := t.Context()
	before := l.stats()
	l.enqueue(numberedItems(prefix, n)...)
	var held []lease.Lease
	var ids []string
	for len(held) < n {
		got, err := l.store.Claim(ctx, lease.DefaultBatch, nil)
		require.NoError(t, err)
		require.NotEmpty(t, got.Jobs)
		held = append(held, got.Jobs...)
	}
	for _, one := range held {
		ids = append(ids, one.ID)
	}
	l.setScores(lease.Processing, fmt.Sprint(l.serverTime().UnixMilli()), ids...)
	rand.Shuffle(n, func(a, b int) { held[a], held[b] = held[b], held[a] })

	outcomes := make([]error, n)
	taken := 0
	var both sync.WaitGroup
	both.Go(func() {
		for i := range held {
			outcomes[i] = call(ctx, l.store, &held[i])
		}
	})
	both.Go(func() {
		for more := true; more; {
			got, err := l.store.Expire(ctx, 3, true)
			if err != nil {
				t.Error(err)
				return
			}
			taken += got.Moved()
			more = got.More
		}
	})
	both.Wait()

	due := map[string]bool{}
	for _, id := range l.members(lease.Due) {
		due[id] = true
	}
	for i, err := range outcomes {
		if err == nil {
			wins++
			require.False(t, due[held[i].ID], "%s: the holder's call succeeded and a sweep took the lease", held[i].ID)
			continue
		}
		losses++
		require.ErrorIs(t, err, lease.ErrLost)
		require.True(t, due[held[i].ID], "%s: refused, and no sweep has taken the lease", held[i].ID)
	}
	require.Equal(t, losses, taken)
	require.EqualValues(t, losses, l.stats().Counters["expired"]-before.Counters["expired"])
	for len(due) > 0 { // leave nothing due for the next round
		var cursor lease.Cursor
		_, err := l.store.PurgeNext(ctx, lease.Due, &cursor, lease.MaxBatch)
		require.NoError(t, err)
		if cursor.Done {
			break
		}
	}
	return wins, losses
}
