package reaper_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redisproc"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reaper"
)

const refresh = 10 * time.Millisecond

func TestRunPutsBackWhatIsAbandonedInAQueueThatAppearsLater(t *testing.T) {
	t.Parallel()
	rdb, queue, prefix := redistest.Client(t), redistest.Queue(t), newPrefix()
	var log journal
	start(t, newReaper(t, rdb, &reaper.Options{Prefix: prefix, RefreshEvery: refresh, Logger: log.logger()}))

	store := newStore(t, rdb, prefix, queue, 400*time.Millisecond)
	log.await(t, "sweeping begins", queue)
	enqueue(t, store, 3)
	held := abandon(t, store, 3)
	awaitDue(t, store, 3)
	assert.False(t, time.Now().Before(held[0].Deadline), "no lease ends before its expiry")

	infos, err := store.Inspect(t.Context(), []string{held[0].ID, held[1].ID, held[2].ID})
	require.NoError(t, err)
	for _, info := range infos {
		assert.Equal(t, 1, info.Expiries, info.ID)
	}
}

func TestRunSweepsOnlyTheQueuesThatWereNamed(t *testing.T) {
	t.Parallel()
	rdb, prefix := redistest.Client(t), newPrefix()
	named := newStore(t, rdb, prefix, redistest.Queue(t), 200*time.Millisecond)
	other := newStore(t, rdb, prefix, redistest.Queue(t), 200*time.Millisecond)
	start(t, newReaper(t, rdb, &reaper.Options{Prefix: prefix, Queues: []string{named.Queue()}}))
	for _, store := range []*lease.Store{named, other} {
		enqueue(t, store, 1)
		abandon(t, store, 1)
	}
	awaitDue(t, named, 1)
	stats := statsOf(t, other)
	assert.EqualValues(t, 1, stats.Processing)
	assert.Negative(t, stats.SinceSweep, "never swept")
}

func TestRunEndsTheSweeperOfAQueueThatLeftTheRegistry(t *testing.T) {
	t.Parallel()
	rdb, queue, prefix := redistest.Client(t), redistest.Queue(t), newPrefix()
	const length = 200 * time.Millisecond
	store := newStore(t, rdb, prefix, queue, length)
	var log journal
	start(t, newReaper(t, rdb, &reaper.Options{Prefix: prefix, RefreshEvery: refresh, Logger: log.logger()}))
	log.await(t, "sweeping begins", queue)
	require.NoError(t, rdb.SRem(t.Context(), keys.Registry(prefix), queue).Err())
	log.await(t, "sweeping ended", queue)
	require.Eventually(t, func() bool { return statsOf(t, store).SinceSweep > 2*length }, within, 5*time.Millisecond,
		"a sweeper would have called every quarter of a lease")

	require.NoError(t, store.Register(t.Context()))
	require.Eventually(t, func() bool { return log.count("sweeping begins", queue) == 2 }, within, 5*time.Millisecond, "it came back")
}

// An answer about the registry that is long on its way tells of queues that have left meanwhile, as another answer has said.
func TestAnAnswerThatWasOvertakenBringsNoQueueBack(t *testing.T) {
	t.Parallel()
	queue, prefix := redistest.Queue(t), newPrefix()
	direct := redistest.Client(t)
	proxy := redistest.Proxy(t, redistest.Addr(t))
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ReadTimeout: within})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	newStore(t, direct, prefix, queue, time.Second)
	var log journal
	start(t, newReaper(t, rdb, &reaper.Options{Prefix: prefix, RefreshEvery: refresh, Logger: log.logger()}))
	log.await(t, "sweeping begins", queue)

	const way = 600 * time.Millisecond
	asked := make(chan struct{}, 1)
	proxy.Delay(way)
	proxy.Decide(func(cmd []string) netfault.Action {
		if strings.EqualFold(cmd[0], "smembers") {
			select {
			case asked <- struct{}{}:
			default:
			}
		}
		return netfault.Pass
	})
	<-asked
	time.Sleep(way + way/6) // now the answer is on its way back, and nobody has asked again yet
	require.NoError(t, direct.SRem(t.Context(), keys.Registry(prefix), queue).Err())
	proxy.Delay(0)
	log.await(t, "sweeping ended", queue)
	time.Sleep(2 * way)
	assert.Equal(t, 1, log.count("sweeping begins", queue), "the old answer came after the new one")
}

func TestRunSweepsAQueueThatLeftTheRegistryUntilItsLastLeaseHasEnded(t *testing.T) {
	t.Parallel()
	rdb, queue, prefix := redistest.Client(t), redistest.Queue(t), newPrefix()
	store := newStore(t, rdb, prefix, queue, 500*time.Millisecond)
	var log journal
	start(t, newReaper(t, rdb, &reaper.Options{Prefix: prefix, RefreshEvery: refresh, Logger: log.logger()}))
	log.await(t, "sweeping begins", queue)
	enqueue(t, store, 2)
	abandon(t, store, 2)
	require.NoError(t, rdb.Del(t.Context(), keys.Registry(prefix)).Err())
	log.await(t, "level=WARN", "left the registry", queue)
	awaitDue(t, store, 2)
	log.await(t, "sweeping ended", queue)
	assert.Equal(t, 1, log.count("left the registry"), "said once")
}

func TestFiveReapersSideBySideCountEveryExpiryOnce(t *testing.T) {
	t.Parallel()
	rdb, queue, prefix := redistest.Client(t), redistest.Queue(t), newPrefix()
	const jobs, rounds = 2000, 5
	store := newStore(t, rdb, prefix, queue, 300*time.Millisecond)
	enqueue(t, store, jobs)
	var moved atomic.Int64
	var stops []func() error
	for range 5 {
		stops = append(stops, start(t, newReaper(t, rdb, &reaper.Options{
			Prefix: prefix, RefreshEvery: refresh, Batch: 100,
			OnSweep: func(_ string, e lease.Expired) { moved.Add(int64(e.Moved())) },
		})))
	}
	var ids []string
	for range rounds {
		ids = ids[:0]
		for _, held := range abandon(t, store, jobs) {
			ids = append(ids, held.ID)
		}
		awaitDue(t, store, jobs)
	}
	for _, stop := range stops {
		require.NoError(t, stop())
	}
	assert.EqualValues(t, jobs*rounds, moved.Load(), "what the five were told")
	stats := statsOf(t, store)
	assert.EqualValues(t, jobs*rounds, stats.Counters["expired"])
	assert.EqualValues(t, jobs, stats.Due)
	assert.Zero(t, stats.Dead)
	for chunk := range slices.Chunk(ids, lease.MaxBatch) {
		infos, err := store.Inspect(t.Context(), chunk)
		require.NoError(t, err)
		for _, info := range infos {
			require.Equal(t, rounds, info.Expiries, info.ID)
		}
	}
}

func TestRunReturnsNilAtOnceWhereItsContextHasEnded(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, newReaper(t, nobody(t), nil).Run(ctx))
}

func TestRunGoesOnAfterTheServerWasKilledAndRestarted(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, &redisproc.Options{AppendOnly: true, AppendFsync: "always"})
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	const length = time.Second
	const prefix, queue = "killed", "orders"
	store := newStore(t, rdb, prefix, queue, length)
	var log journal
	start(t, newReaper(t, rdb, &reaper.Options{Prefix: prefix, RefreshEvery: 50 * time.Millisecond, Logger: log.logger()}))
	log.await(t, "sweeping begins", queue)
	enqueue(t, store, 20)
	require.Eventually(t, func() bool { return statsOf(t, store).SinceSweep >= 0 }, within, 5*time.Millisecond)
	abandon(t, store, 20)

	require.NoError(t, server.Kill())
	log.await(t, "level=WARN", "repeated")
	require.NoError(t, server.Restart(t.Context()))
	back := time.Now()
	awaitDue(t, store, 20)
	assert.Less(t, time.Since(back), 2*length+3*time.Second, "the gap spares holders for one lease, and no longer")
	assert.LessOrEqual(t, log.count("level=WARN"), 4, "an outage does not flood the log")
	redistest.CheckQueue(t, rdb, prefix, queue)

	late := newStore(t, rdb, prefix, "appeared-after-the-restart", length)
	enqueue(t, late, 1)
	abandon(t, late, 1)
	awaitDue(t, late, 1)
}

func TestRunWaitsForAServerThatComesUpLater(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, nil)
	require.NoError(t, server.Kill())
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	var log journal
	failed := make(chan error, 1000)
	stop := start(t, newReaper(t, rdb, &reaper.Options{
		RefreshEvery: 50 * time.Millisecond, Logger: log.logger(),
		OnError: func(queue string, err error) {
			assert.Empty(t, queue, "the registry")
			select {
			case failed <- err:
			default:
			}
		},
	}))
	require.Error(t, <-failed)
	require.NoError(t, server.Restart(t.Context()))
	newStore(t, rdb, keys.DefaultPrefix, "orders", time.Second)
	log.await(t, "sweeping begins", "orders")
	require.NoError(t, stop())
}

func TestRunReadsTheRegistryAgainWhileItIsOfAnotherType(t *testing.T) {
	t.Parallel()
	rdb, queue, prefix := redistest.Client(t), redistest.Queue(t), newPrefix()
	ctx := t.Context()
	require.NoError(t, rdb.Set(ctx, keys.Registry(prefix), "somebody's hand", 0).Err())
	var log journal
	start(t, newReaper(t, rdb, &reaper.Options{Prefix: prefix, RefreshEvery: refresh, Logger: log.logger()}))
	log.await(t, "level=WARN", "registry of queues cannot be read", "WRONGTYPE")
	require.NoError(t, rdb.Del(ctx, keys.Registry(prefix)).Err())
	newStore(t, rdb, prefix, queue, time.Second)
	log.await(t, "sweeping begins", queue)
}

func TestRunEndsWithAnErrorWhenItsClientIsClosed(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]*reaper.Options{
		"while it reads the registry": {Prefix: newPrefix(), RefreshEvery: refresh},
		"while it sweeps":             {Prefix: newPrefix(), Queues: []string{redistest.Queue(t)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Client(t)
			r := newReaper(t, rdb, o)
			ended := make(chan error, 1)
			go func() { ended <- r.Run(t.Context()) }()
			require.NoError(t, rdb.Close())
			select {
			case err := <-ended:
				require.ErrorIs(t, err, redis.ErrClosed)
				require.ErrorContains(t, err, "end Run first")
			case <-time.After(within):
				t.Fatal("a live process that does nothing")
			}
		})
	}
}

func TestRunMayRunTwiceAtOnceAndAgain(t *testing.T) {
	t.Parallel()
	rdb, queue, prefix := redistest.Client(t), redistest.Queue(t), newPrefix()
	store := newStore(t, rdb, prefix, queue, 200*time.Millisecond)
	var log journal
	r := newReaper(t, rdb, &reaper.Options{Prefix: prefix, RefreshEvery: refresh, Logger: log.logger()})
	first, second := start(t, r), start(t, r)
	require.Eventually(t, func() bool { return log.count("sweeping begins") == 2 }, within, 5*time.Millisecond)
	require.NoError(t, first())
	require.NoError(t, second())
	start(t, r)
	enqueue(t, store, 1)
	abandon(t, store, 1)
	awaitDue(t, store, 1)
}
