package lease

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redistest"
)

// deleteAll deletes until nothing is left but what runs, at most so many jobs at a time.
func (b *bench) deleteAll(t testing.TB, n int, running Running) (jobs, ended int) {
	t.Helper()
	for {
		got, err := b.DeleteNext(t.Context(), n, running)
		require.NoError(t, err)
		require.LessOrEqual(t, got.Jobs+got.Ended, n)
		jobs, ended = jobs+got.Jobs, ended+got.Ended
		if got.Left == 0 && (running != EndRunning || got.Processing == 0) {
			return jobs, ended
		}
	}
}

// rest is what a queue still holds, by the short names of its keys.
func (b *bench) rest(t testing.TB) []string {
	t.Helper()
	var names []string
	for _, key := range slices.Sorted(maps.Keys(redistest.Dump(t, b.rdb, keys.DefaultPrefix, b.queue))) {
		names = append(names, strings.TrimPrefix(key, strings.TrimSuffix(b.key("due"), "due")))
	}
	return names
}

func TestDeletionTakesEveryJobThatNobodyWorksOn(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.spread(t)
		require.NoError(t, b.rdb.HSet(t.Context(), b.key("results"), "done", "result").Err())
		b.bury(t, names("d", 25)...)
		b.put(t, names("j", 30)...)
		b.putItems(t, Item{ID: "own", Record: record("own"), Delay: 6 * 24 * time.Hour, MaxRetries: ptr(1)})

		before := b.dump(t)
		got, err := b.DeleteNext(t.Context(), 1000, RefuseRunning)
		require.NoError(t, err)
		assert.Equal(t, Deleted{Processing: 1, Left: 59}, got)
		assert.Equal(t, before, b.dump(t), "nothing is deleted while somebody works on a job")

		jobs, ended := b.deleteAll(t, 10, LeaveRunning)
		assert.Equal(t, []int{59, 0}, []int{jobs, ended})
		assert.Equal(t, 58+1, b.count(t, "purged"))
		assert.Equal(t, Processing, b.look(t, "processing").Place)
		assert.Equal(t, string(record("processing")), string(b.look(t, "processing").Record))
		assert.Zero(t, b.rdb.Exists(t.Context(), b.key("counts"), b.key("errors"), b.key("results")).Val())

		left, err := b.Erase(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 1, left)
		assert.Contains(t, b.rest(t), "stats", "it is not erased under a job")
	})
}

func TestWhoWorksOnAJobThatIsDeletedFindsItGone(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.put(t, names("j", 12)...)
		held10 := b.take(t, 10)
		removed, err := b.Cancel(t.Context(), []string{held10[0].ID})
		require.NoError(t, err)
		require.True(t, removed[0].Cancelling)
		jobs, ended := b.deleteAll(t, 4, EndRunning)
		assert.Equal(t, []int{2, 10}, []int{jobs, ended})
		assert.Equal(t, []int{10, 10, 2}, []int{b.count(t, "cancelled"), b.count(t, "cancelled_processing"), b.count(t, "purged")})

		extended, err := b.Extend(t.Context(), 0, []Held{held(held10[0]), held(held10[1])})
		require.NoError(t, err)
		assert.Equal(t, []error{ErrGone, ErrGone}, extended.Results)
		for _, got := range b.settle(t, verdict(Ack, held10[1]), verdict(Nack, held10[2]), verdict(Release, held10[3]), verdict(Bury, held10[4])) {
			assert.Equal(t, ErrGone, got.Err)
		}
		assert.Empty(t, b.look(t, held10[2].ID).Record)
	})
}

func TestNothingIsLeftOfAQueueThatWasErasedAndASecondTimeDoesNoHarm(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.spread(t)
		b.publish(t, Policy{Lease: time.Minute})
		require.NoError(t, b.Wake(t.Context()))
		_, err := b.Expire(t.Context(), 1, false)
		require.NoError(t, err)
		require.NoError(t, b.rdb.Set(t.Context(), b.key("rate"), "bucket", 0).Err())
		require.NoError(t, b.rdb.HSet(t.Context(), b.key("jobs"), "orphan", "of nobody").Err())
		require.NoError(t, b.rdb.HSet(t.Context(), b.key("results"), "orphan", "of nobody").Err())
		b.deleteAll(t, 2, EndRunning)
		require.GreaterOrEqual(t, len(b.rest(t)), 10)
		for range 2 {
			left, err := b.Erase(t.Context())
			require.NoError(t, err)
			assert.Zero(t, left)
			assert.Empty(t, b.rest(t))
		}
		require.NoError(t, b.Store.Close(t.Context()))
		assert.Empty(t, b.rest(t), "closing sessions that are gone makes none")
	})
}

func TestProducersAndConsumersGoOnAfterTheirSessionsWereErased(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.put(t, "a", "b")
		b.settle(t, verdict(Ack, b.take(t, 1)[0]))
		fence := b.take(t, 1)[0].Fence
		b.deleteAll(t, 10, EndRunning)
		_, err := b.Erase(t.Context())
		require.NoError(t, err)

		b.put(t, "a")
		l := b.take(t, 1)[0]
		assert.Greater(t, l.Fence, fence)
		assert.Equal(t, []Settled{{}}, b.settle(t, verdict(Ack, l)))
		assert.Equal(t, 1, b.count(t, "enqueued"), "the counters began anew")
	})
}

// A call whose reply was lost is repeated after its session was erased: nobody may take it for one that did not run.
func TestACallThatCrossesAnEraseIsUnknownForGood(t *testing.T) {
	t.Parallel()
	b, proxy := behindProxy(t, nil)
	direct := b.another(t, b.rdb)
	b.put(t, "first")
	var once sync.Once
	intercept(proxy, enqueueScript, func(n int64) netfault.Action {
		if n == 1 {
			return netfault.DropReply
		}
		once.Do(func() {
			_, err := direct.DeleteNext(context.Background(), 10, RefuseRunning)
			assert.NoError(t, err)
			left, err := direct.Erase(context.Background())
			assert.NoError(t, err)
			assert.Zero(t, left)
		})
		return netfault.Pass
	})
	results, err := b.Enqueue(t.Context(), []Item{{ID: "second", Record: []byte("r")}})
	var unknown *UnknownError
	require.ErrorAs(t, err, &unknown)
	require.ErrorIs(t, unknown.Resolve(t.Context()), ErrNeverKnown)
	require.ErrorIs(t, resolved(t, results[0]), ErrNeverKnown)
	assert.Equal(t, Nowhere, b.look(t, "second").Place, "it is not made behind its producer's back")
}

// A deletion that somebody waits for no more arrives when the queue has a new life.
func TestALateDeletionTouchesNothingOfTheQueuesNextLife(t *testing.T) {
	t.Parallel()
	b, proxy := behindProxy(t, nil)
	direct := b.another(t, b.rdb)
	b.put(t, "old")
	_, err := b.DeleteNext(t.Context(), 1, RefuseRunning) // so that it has a session
	require.NoError(t, err)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	held := make(chan struct{})
	intercept(proxy, deleteScript, func(n int64) netfault.Action {
		if n == 1 {
			close(held)
			return netfault.Hold
		}
		return netfault.Pass
	})
	ended := make(chan error, 1)
	go func() {
		_, err := b.DeleteNext(ctx, 10, EndRunning)
		ended <- err
	}()
	<-held
	leave()
	require.ErrorIs(t, <-ended, context.Canceled)
	_, err = direct.Erase(t.Context())
	require.NoError(t, err)
	direct.mustPut(t, "new")
	require.Equal(t, 1, proxy.ReleaseHeld())
	require.NoError(t, b.Store.Close(t.Context())) // waits for what is under way
	assert.Equal(t, Due, b.look(t, "new").Place)
	assert.Equal(t, 1, b.count(t, "enqueued"))
	assert.Zero(t, b.count(t, "purged"))
}

func (s *Store) mustPut(t *testing.T, id string) {
	t.Helper()
	results, err := s.Enqueue(t.Context(), []Item{{ID: id, Record: record(id)}})
	require.NoError(t, err)
	require.NoError(t, results[0])
}

func TestJobsBesideADeletionAreWholeOrGone(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	const each, most = 40, 25
	stop := make(chan struct{})
	var traffic sync.WaitGroup
	for p := range 2 {
		store := b.another(t, nil)
		traffic.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				items := make([]Item, each)
				for j := range items {
					id := fmt.Sprintf("p%d-%d-%d", p, i, j)
					items[j] = Item{ID: id, Record: record(id), MaxRetries: ptr(j)}
				}
				if _, err := store.Enqueue(context.Background(), items); !assert.NoError(t, err) {
					return
				}
				got, err := store.Claim(context.Background(), 10, nil)
				if !assert.NoError(t, err) {
					return
				}
				for n, l := range got.Jobs {
					if !assert.Equal(t, string(record(l.ID)), string(l.Record)) {
						return
					}
					v := verdict([]Op{Ack, Nack, Release, Bury}[n%4], l)
					if _, err := store.Settle(context.Background(), []Verdict{v}); !assert.NoError(t, err) {
						return
					}
				}
			}
		})
	}
	jobs, ended := 0, 0
	for i := 0; i < 150 || jobs+ended < 500; i++ {
		got, err := b.DeleteNext(t.Context(), most, []Running{LeaveRunning, EndRunning, RefuseRunning}[i%3])
		require.NoError(t, err)
		jobs, ended = jobs+got.Jobs, ended+got.Ended
		if i%10 == 0 {
			_, err := b.Erase(t.Context())
			require.NoError(t, err)
		}
	}
	close(stop)
	traffic.Wait()
	redistest.CheckQueue(t, b.rdb, keys.DefaultPrefix, b.queue) // nothing is half there, and the counters balance
	t.Logf("%d deleted, %d of them in processing", jobs+ended, ended)
	b.deleteAll(t, MaxBatch, EndRunning)
	left, err := b.Erase(t.Context())
	require.NoError(t, err)
	assert.Zero(t, left)
}

func TestDeletionRefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	for _, n := range []int{0, -1, MaxBatch + 1} {
		_, err := b.DeleteNext(t.Context(), n, LeaveRunning)
		var batch *BatchError
		require.ErrorAs(t, err, &batch)
	}
	_, err := b.DeleteNext(t.Context(), 1, "")
	require.ErrorContains(t, err, "want refuse, leave or end")
	assert.Empty(t, b.dump(t))
}

func TestUnregisterTakesOneNameOutOfTheRegistry(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	require.NoError(t, b.Register(t.Context()))
	known := func() bool {
		names, err := Queues(t.Context(), b.rdb, keys.DefaultPrefix)
		require.NoError(t, err)
		return slices.Contains(names, b.queue)
	}
	require.True(t, known())
	for range 2 {
		require.NoError(t, b.Unregister(t.Context()))
		require.False(t, known())
	}
}

func TestPublishedIsWhatWasPublished(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		got, published, err := b.Published(t.Context())
		require.NoError(t, err)
		assert.False(t, published)
		assert.Equal(t, Policy{}, got)
		want := Policy{
			Lease: 7 * time.Second, MaxRetries: ptr(0), MaxExpiries: ptr(3), BackoffBase: time.Second, BackoffCap: time.Minute,
			ExpiryBackoff: 2 * time.Second, ExpiryCap: time.Hour, PayloadLimit: 1000,
		}
		b.publish(t, want)
		got, published, err = b.Published(t.Context())
		require.NoError(t, err)
		assert.True(t, published)
		assert.Equal(t, want, got)
		require.NoError(t, b.rdb.Del(t.Context(), b.key("policy")).Err())
		require.NoError(t, b.rdb.Set(t.Context(), b.key("policy"), "x", 0).Err())
		_, _, err = b.Published(t.Context())
		var server *ServerError
		require.ErrorAs(t, err, &server)
		require.NoError(t, b.rdb.Del(t.Context(), b.key("policy")).Err())
	})
}

// found gathers the keys of a queue.
func found(t testing.TB, rdb redis.UniversalClient, queue string) map[string]Found {
	t.Helper()
	all := map[string]Found{}
	require.NoError(t, Find(t.Context(), rdb, keys.DefaultPrefix, queue, func(page []Found) error {
		for _, f := range page {
			all[f.Key] = f
		}
		return nil
	}))
	return all
}

func TestFindTellsFixedKeysRecordsAndStrangersOfAllPartitions(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t)
	queue, other := redistest.BrokenQueue(t), redistest.BrokenQueue(t)
	checkFind(t, rdb, queue, other)
}

func TestFindAndDeleteRecordsWorkOnEveryNodeOfACluster(t *testing.T) {
	t.Parallel()
	var addrs []string
	for _, node := range redistest.Cluster(t, 3, nil) {
		addrs = append(addrs, node.Addr())
	}
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	defer rdb.Close()
	checkFind(t, rdb, "orders", "orders2")
}

func checkFind(t *testing.T, rdb redis.UniversalClient, queue, other string) {
	t.Helper()
	ctx := t.Context()
	set := func(key string) { require.NoError(t, rdb.HSet(ctx, key, "f", "v").Err()) }
	begin := func(queue string, partition int) string {
		p, err := keys.New(keys.DefaultPrefix, queue, partition)
		require.NoError(t, err)
		return strings.TrimSuffix(p.Key("due"), "due")
	}
	const partitions, records = 12, 300 // of so many some are on each node
	for p := range partitions {
		set(begin(queue, p) + "stats")
		set(begin(other, p) + "stats")
		set(begin(other, p) + "guard:x")
	}
	for i := range records {
		set(fmt.Sprintf("%sguard:%d", begin(queue, i%partitions), i))
		set(fmt.Sprintf("%sonce:{%d}", begin(queue, i%partitions), i))
	}
	set(begin(queue, 0) + "strange")
	all := found(t, rdb, queue)
	assert.Len(t, all, partitions+2*records+1)
	seen := map[int]int{}
	for key, f := range all {
		seen[f.Partition]++
		assert.Equal(t, begin(queue, f.Partition)+f.Name, key)
		assert.Equal(t, f.Name == "stats", f.Fixed())
		assert.Equal(t, f.Name != "stats" && f.Name != "strange", f.Record())
	}
	assert.Len(t, seen, partitions)
	assert.NotContains(t, seen, -1)

	stop := fmt.Errorf("enough")
	require.ErrorIs(t, Find(ctx, rdb, keys.DefaultPrefix, queue, func([]Found) error { return stop }), stop)
	require.Error(t, Find(ctx, rdb, keys.DefaultPrefix, "a{b}", nil))

	n, err := DeleteRecords(ctx, rdb, slices.Collect(maps.Values(all)))
	require.NoError(t, err)
	assert.EqualValues(t, 2*records, n)
	assert.Len(t, found(t, rdb, queue), partitions+1, "nothing but records goes")
	assert.Len(t, found(t, rdb, other), 2*partitions)
}
