package reaper_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reaper"
)

// awaitExpired waits until n leases have run out and nobody has ended them.
func awaitExpired(t *testing.T, store *lease.Store, n int64) {
	t.Helper()
	require.Eventually(t, func() bool { return statsOf(t, store).Expired == n }, within, time.Millisecond)
}

func TestSweepWithNoGraceEndsAtOnceWhatHasRunOut(t *testing.T) {
	t.Parallel()
	rdb, prefix := redistest.Client(t), newPrefix()
	one := newStore(t, rdb, prefix, redistest.Queue(t), 50*time.Millisecond)
	two := newStore(t, rdb, prefix, redistest.Queue(t), 50*time.Millisecond)
	empty := newStore(t, rdb, prefix, redistest.Queue(t), 50*time.Millisecond)
	enqueue(t, one, 700)
	abandon(t, one, 700)
	enqueue(t, two, 5)
	abandon(t, two, 5)
	awaitExpired(t, one, 700)
	awaitExpired(t, two, 5)

	got, err := newReaper(t, rdb, &reaper.Options{Prefix: prefix}).Sweep(t.Context(), &reaper.SweepOptions{NoGrace: true})
	require.NoError(t, err)
	require.Len(t, got, 3)
	assert.Equal(t, 700, got[one.Queue()].ToDue, "more than one batch")
	assert.False(t, got[one.Queue()].More)
	assert.Equal(t, 5, got[two.Queue()].ToDue)
	assert.Zero(t, got[empty.Queue()].ToDue)
	assert.EqualValues(t, 700, statsOf(t, one).Claimable)
	assert.Zero(t, statsOf(t, one).Counters["graces"])
}

func TestSweepWaitsOutTheGraceAndEndsThenWhatHasRunOut(t *testing.T) {
	t.Parallel()
	rdb, prefix := redistest.Client(t), newPrefix()
	const length = 500 * time.Millisecond
	store := newStore(t, rdb, prefix, redistest.Queue(t), length)
	enqueue(t, store, 4)
	abandon(t, store, 4)
	awaitExpired(t, store, 4)

	r := newReaper(t, rdb, &reaper.Options{Prefix: prefix})
	began := time.Now()
	got, err := r.Sweep(t.Context(), nil)
	took := time.Since(began)
	require.NoError(t, err)
	assert.Equal(t, 4, got[store.Queue()].ToDue)
	assert.GreaterOrEqual(t, took, length-time.Millisecond, "nobody had swept this queue: its holders are spared for one lease")
	assert.Positive(t, statsOf(t, store).Counters["graces"], "one, or more where the pass itself is slow")
}

func TestSweepEndsNoLeaseOfAHolderThatLives(t *testing.T) {
	t.Parallel()
	rdb, prefix := redistest.Client(t), newPrefix()
	store := newStore(t, rdb, prefix, redistest.Queue(t), time.Minute)
	enqueue(t, store, 2)
	held := abandon(t, store, 2)
	got, err := newReaper(t, rdb, &reaper.Options{Prefix: prefix}).Sweep(t.Context(), &reaper.SweepOptions{NoGrace: true})
	require.NoError(t, err)
	e := got[store.Queue()]
	assert.Zero(t, e.Moved())
	assert.Positive(t, e.NextExpiry)
	answers, err := store.Settle(t.Context(), []lease.Verdict{{Op: lease.Ack, ID: held[0].ID, Token: held[0].Token}})
	require.NoError(t, err)
	assert.NoError(t, answers[0].Err)
}

func TestSweepEndsAtMostMaxLeasesOfEachQueue(t *testing.T) {
	t.Parallel()
	rdb, prefix := redistest.Client(t), newPrefix()
	stores := []*lease.Store{
		newStore(t, rdb, prefix, redistest.Queue(t), 20*time.Millisecond),
		newStore(t, rdb, prefix, redistest.Queue(t), 20*time.Millisecond),
	}
	for _, store := range stores {
		enqueue(t, store, 50)
		abandon(t, store, 50)
		awaitExpired(t, store, 50)
	}
	r := newReaper(t, rdb, &reaper.Options{Prefix: prefix, Batch: 7})
	got, err := r.Sweep(t.Context(), &reaper.SweepOptions{NoGrace: true, Max: 30})
	require.NoError(t, err)
	for _, store := range stores {
		e := got[store.Queue()]
		assert.Equal(t, 30, e.Moved())
		assert.True(t, e.More)
		assert.EqualValues(t, 20, statsOf(t, store).Expired)
	}
	_, err = r.Sweep(t.Context(), &reaper.SweepOptions{Max: -1})
	require.ErrorContains(t, err, "Max -1")
}

func TestSweepGoesOnWithTheOtherQueuesWhereOneFails(t *testing.T) {
	t.Parallel()
	rdb, prefix := redistest.Client(t), newPrefix()
	good := newStore(t, rdb, prefix, redistest.Queue(t), 20*time.Millisecond)
	broken := newStore(t, rdb, prefix, redistest.BrokenQueue(t), 20*time.Millisecond)
	enqueue(t, good, 3)
	abandon(t, good, 3)
	awaitExpired(t, good, 3)
	partition, err := keys.New(prefix, broken.Queue(), 0)
	require.NoError(t, err)
	require.NoError(t, rdb.Set(t.Context(), partition.Key("processing"), "somebody's hand", 0).Err())

	var told []string
	r := newReaper(t, rdb, &reaper.Options{Prefix: prefix, OnError: func(queue string, err error) { told = append(told, queue) }})
	got, err := r.Sweep(t.Context(), &reaper.SweepOptions{NoGrace: true})
	assert.Equal(t, 3, got[good.Queue()].ToDue)
	var failed *reaper.QueueError
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, broken.Queue(), failed.Queue)
	require.ErrorContains(t, failed.Err, "WRONGTYPE")
	assert.Equal(t, []string{broken.Queue()}, told)
}

func TestSweepThatRunsOutOfTimeInsideTheGraceSaysSoAndLeavesEverything(t *testing.T) {
	t.Parallel()
	rdb, prefix := redistest.Client(t), newPrefix()
	store := newStore(t, rdb, prefix, redistest.Queue(t), time.Minute)
	enqueue(t, store, 1)
	abandon(t, store, 1)
	ctx, cancel := context.WithCancel(t.Context())
	spared := make(chan time.Duration, 1)
	r := newReaper(t, rdb, &reaper.Options{Prefix: prefix, OnSweep: func(_ string, e lease.Expired) {
		spared <- e.Grace
		cancel()
	}})
	got, err := r.Sweep(ctx, nil)
	require.ErrorIs(t, err, context.Canceled)
	assert.Positive(t, <-spared)
	assert.Positive(t, got[store.Queue()].Grace)
	assert.EqualValues(t, 1, statsOf(t, store).Processing)
}

func TestSweepForgetsSessionsThatNobodyUsedForAnHour(t *testing.T) {
	t.Parallel()
	rdb, prefix := redistest.Client(t), newPrefix()
	store := newStore(t, rdb, prefix, redistest.Queue(t), time.Second)
	partition, err := keys.New(prefix, store.Queue(), 0)
	require.NoError(t, err)
	ctx := t.Context()
	old := strconv.FormatInt(time.Now().Add(-2*time.Hour).UnixMilli(), 10)
	young := strconv.FormatInt(time.Now().UnixMilli(), 10)
	require.NoError(t, rdb.HSet(ctx, partition.Key("sessions"), "1-0123456789abcdef", "7 "+old+" ", "2-0123456789abcdef", "7 "+young+" ").Err())
	require.NoError(t, rdb.HSet(ctx, partition.Key("holders"), "1-0123456789abcdef", "gone/1", "2-0123456789abcdef", "here/2").Err())
	_, err = newReaper(t, rdb, &reaper.Options{Prefix: prefix}).Sweep(ctx, &reaper.SweepOptions{NoGrace: true})
	require.NoError(t, err)
	left, err := rdb.HKeys(ctx, partition.Key("holders")).Result()
	require.NoError(t, err)
	assert.Equal(t, []string{"2-0123456789abcdef"}, left)
}

func TestSweepOfAServerThatIsNotThereSaysSo(t *testing.T) {
	t.Parallel()
	_, err := newReaper(t, nobody(t), nil).Sweep(t.Context(), nil)
	require.ErrorContains(t, err, "read the registry of queues")
}
