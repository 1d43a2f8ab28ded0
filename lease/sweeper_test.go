package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
)

// sweeps runs a sweeper until the test ends.
func sweeps(t *testing.T, s *Store, o *SweeperOptions) {
	t.Helper()
	w, err := NewSweeper(s, o)
	require.NoError(t, err)
	runs(t, w)
}

func runs(t *testing.T, w *Sweeper) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
}

// noGap has the next sweep find that the one before was just now.
func (b *bench) noGap(t *testing.T) {
	t.Helper()
	_, err := b.Expire(t.Context(), 1, true)
	require.NoError(t, err)
}

func TestTheSweeperSleepsUntilTheNextExpiry(t *testing.T) {
	t.Parallel()
	redistest.NeedServer(t)
	b := onRedis(t)
	b.publish(t, Policy{Lease: 2 * time.Second, MaxExpiries: ptr(1000)})
	b.noGap(t)
	sweeps(t, b.Store, nil)
	lag := b.measureLag(t)
	const n = 20
	b.put(t, names("j", n)...)
	expiries := map[string]int64{}
	for i, l := range b.take(t, n) { // each at a moment of its own
		expiries[l.ID] = b.score(t, Processing, l.ID) + int64(37*i)
		require.NoError(t, b.rdb.ZAdd(t.Context(), b.key("processing"), redis.Z{Score: float64(expiries[l.ID]), Member: l.ID}).Err())
	}
	require.Eventually(t, func() bool { return b.rdb.ZCard(t.Context(), b.key("due")).Val() == n }, patience, 10*time.Millisecond)
	var late []int64
	for id, expiry := range expiries {
		late = append(late, b.score(t, Due, id)-expiry) // due is the moment when the sweep took it
	}
	slices.Sort(late)
	machine := lag()
	t.Logf("ms behind the expiry: median %d, most %d; the machine itself: %v", late[n/2], late[n-1], machine)
	assert.GreaterOrEqual(t, late[0], int64(0), "never early")
	assert.Less(t, late[n-1], 250+machine.Milliseconds())
}

// measureLag finds out by how much this machine is late by itself: for a timer and one round trip.
func (b *bench) measureLag(t *testing.T) (most func() time.Duration) {
	t.Helper()
	stop, lag := make(chan struct{}), make(chan time.Duration, 1)
	go func() {
		const nap = 5 * time.Millisecond
		most := time.Duration(0)
		for {
			began := time.Now()
			select {
			case <-stop:
				lag <- most
				return
			case <-time.After(nap):
			}
			_ = b.rdb.Time(context.Background()).Err()
			most = max(most, time.Since(began)-nap)
		}
	}()
	return func() time.Duration {
		close(stop)
		return <-lag
	}
}

func TestTheSweeperDrainsFullBatchesWithoutAPause(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	b.publish(t, Policy{Lease: time.Hour})
	const n = 3000
	ids := names("j", n)
	var items []Item
	for _, id := range ids {
		items = append(items, Item{ID: id, Record: []byte("r")})
	}
	b.putItems(t, items...)
	for range n / MaxBatch {
		b.runOut(t, b.take(t, MaxBatch)[0])
	}
	var scores []redis.Z
	for _, id := range ids {
		scores = append(scores, redis.Z{Score: 1000, Member: id})
	}
	require.NoError(t, b.rdb.ZAdd(t.Context(), b.key("processing"), scores...).Err())
	b.noGap(t)
	var full, calls atomic.Int64
	sweeps(t, b.Store, &SweeperOptions{Batch: 100, OnSweep: func(e Expired) {
		calls.Add(1)
		if e.More {
			full.Add(1)
		}
	}})
	// A pause between them would be a quarter of an hour.
	require.Eventually(t, func() bool { return b.rdb.ZCard(t.Context(), b.key("due")).Val() == n }, patience, pollEvery)
	require.Eventually(t, func() bool { return calls.Load() == 30 }, patience, pollEvery)
	assert.EqualValues(t, 29, full.Load())
	assert.Equal(t, n, b.count(t, "expired"))
}

func TestAnyNumberOfSweepersCountExactly(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	const n, rounds = 300, 6
	b.publish(t, Policy{Lease: 200 * time.Millisecond, MaxExpiries: ptr(rounds - 1)})
	b.put(t, names("j", n)...)
	b.noGap(t)
	var due, dead atomic.Int64
	for range 6 {
		sweeps(t, b.another(t, nil), &SweeperOptions{Batch: 40, OnSweep: func(e Expired) {
			due.Add(int64(e.ToDue))
			dead.Add(int64(e.ToDead))
		}})
	}
	for round := range rounds {
		b.take(t, n)
		place := "due"
		if round == rounds-1 {
			place = "dead"
		}
		require.Eventually(t, func() bool { return b.rdb.ZCard(t.Context(), b.key(place)).Val() == n }, patience, pollEvery)
	}
	require.Eventually(t, func() bool { return due.Load()+dead.Load() == n*rounds }, patience, pollEvery)
	assert.EqualValues(t, n, dead.Load())
	assert.Equal(t, n*rounds, b.count(t, "expired"))
	for _, text := range b.rdb.HGetAll(t.Context(), b.key("counts")).Val() {
		assert.Equal(t, fmt.Sprintf("0 %d 0 - - -", rounds), text)
	}
}

func TestTheSweeperGoesOnAfterErrors(t *testing.T) {
	t.Parallel()
	b, proxy := behindProxy(t, nil)
	direct := b.another(t, b.rdb)
	b.publish(t, Policy{Lease: 400 * time.Millisecond, MaxExpiries: ptr(100)})
	b.put(t, "a")
	b.noGap(t)
	var failures atomic.Int64
	var mu sync.Mutex
	var last error
	sweeps(t, b.Store, &SweeperOptions{OnError: func(err error) {
		failures.Add(1)
		mu.Lock()
		last = err
		mu.Unlock()
	}})
	taken := takeFrom(t, direct, 1)
	require.Len(t, taken, 1)
	proxy.Cut()
	require.Eventually(t, func() bool { return failures.Load() >= 3 }, patience, pollEvery)
	mu.Lock()
	assert.Error(t, last)
	mu.Unlock()
	proxy.Restore()
	require.Eventually(t, func() bool { return b.count(t, "expired") == 1 }, patience, pollEvery)
}

func TestTheSweeperGoesOnAfterAWrongTypeAndWhenItIsRepaired(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	b.publish(t, Policy{Lease: 200 * time.Millisecond})
	b.put(t, "a")
	b.take(t, 1)
	require.NoError(t, b.rdb.Set(t.Context(), b.key("sweep"), "not a hash", 0).Err())
	failed := make(chan error, 1000)
	sweeps(t, b.Store, &SweeperOptions{OnError: func(err error) { failed <- err }})
	assert.ErrorContains(t, <-failed, "WRONGTYPE")
	require.NoError(t, b.rdb.Del(t.Context(), b.key("sweep")).Err())
	require.Eventually(t, func() bool { return b.look(t, "a").Place == Due }, patience, pollEvery)
}

func TestTheSweeperForgetsUnusedSessions(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	b.put(t, "a")
	require.NoError(t, b.rdb.HSet(t.Context(), b.key("sessions"), "old", "5 1000 ooo").Err())
	require.NoError(t, b.rdb.HSet(t.Context(), b.key("holders"), "old", "somebody").Err())
	w, err := NewSweeper(b.Store, nil)
	require.NoError(t, err)
	w.trimEvery = 20 * time.Millisecond
	runs(t, w)
	require.Eventually(t, func() bool { return !b.rdb.HExists(t.Context(), b.key("sessions"), "old").Val() }, patience, pollEvery)
	assert.False(t, b.rdb.HExists(t.Context(), b.key("holders"), "old").Val())
	assert.EqualValues(t, 1, b.rdb.HLen(t.Context(), b.key("sessions")).Val(), "the one that is used stays")
}

func TestOnePassIsBounded(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.put(t, names("j", 50)...)
		b.runOut(t, b.take(t, 50)...)
		w, err := NewSweeper(b.Store, &SweeperOptions{Batch: 20})
		require.NoError(t, err)
		for _, step := range []struct{ most, want int }{{7, 7}, {25, 25}, {0, 18}, {0, 0}, {5, 0}} {
			got, err := w.Sweep(t.Context(), step.most, true)
			require.NoError(t, err)
			assert.Equal(t, step.want, got.ToDue)
			assert.Equal(t, step.want, got.Moved())
		}
		assert.Equal(t, 50, b.count(t, "expired"))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		require.NoError(t, b.rdb.Del(t.Context(), b.key("sweep")).Err())
		_, err = w.Sweep(ctx, 0, false)
		assert.True(t, errors.Is(err, context.DeadlineExceeded), "a grace of 15 s is waited for, but not against the caller's will: %v", err)
	})
}
