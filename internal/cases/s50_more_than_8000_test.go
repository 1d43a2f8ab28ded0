package cases

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

// Lua's stack holds some 8,000 values. A batch is at most 1,000 items, and whatever a script gathers beyond that it
// passes on in pieces.

func TestS50_BatchesAboveTheMaximumAreRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	l := newLane(t, &reliable.QueueOptions{Lease: 10 * time.Minute})
	l.enqueue(numberedItems("j", 1)...)
	l.claimExactly(1)
	before := redistest.Dump(t, l.rdb, "", l.name)
	ctx := t.Context()
	for _, n := range []int{7999, 8001, 100_000, lease.MaxBatch + 1, -1} {
		want := "want 1 to " + strconv.Itoa(lease.MaxBatch)
		_, err := lease.NewSweeper(l.store, &lease.SweeperOptions{Batch: n})
		require.ErrorContains(t, err, want, "Sweeper, %d", n)
		_, err = lease.NewKeeper(l.store, &lease.KeeperOptions{Batch: n})
		require.ErrorContains(t, err, want, "Keeper, %d", n)

		many := max(n, 0)
		calls := map[string]func() error{
			"Store.Claim": func() error { _, err := l.store.Claim(ctx, n, nil); return err },
			"Queue.Claim": func() error { _, err := l.queue.Claim(ctx, n, nil); return err },
			"Expire":      func() error { _, err := l.store.Expire(ctx, n, true); return err },
			"Enqueue":     func() error { _, err := l.store.Enqueue(ctx, make([]lease.Item, many)); return err },
			"Settle":      func() error { _, err := l.store.Settle(ctx, make([]lease.Verdict, many)); return err },
			"Extend":      func() error { _, err := l.store.Extend(ctx, 0, make([]lease.Held, many)); return err },
			"Cancel":      func() error { _, err := l.queue.Cancel(ctx, make([]string, many)...); return err },
			"Redrive":     func() error { _, err := l.queue.Redrive(ctx, make([]string, many)...); return err },
			"RedriveNext": func() error { _, err := l.queue.RedriveNext(ctx, new(reliable.Cursor), n); return err },
			"Purge":       func() error { _, err := l.queue.Purge(ctx, reliable.Dead, make([]string, many)...); return err },
			"PurgeNext":   func() error { _, err := l.queue.PurgeNext(ctx, reliable.Dead, new(reliable.Cursor), n); return err },
			"Inspect":     func() error { _, err := l.queue.Inspect(ctx, make([]string, many)...); return err },
			"List":        func() error { _, err := l.queue.List(ctx, reliable.Dead, n, nil); return err },
			"Exchange (settle)": func() error {
				_, err, _, _ := l.store.Exchange(ctx, make([]lease.Verdict, max(many, 1001)), 1, nil)
				return err
			},
		}
		for name, call := range calls {
			err := call()
			var batch *lease.BatchError
			require.ErrorAs(t, err, &batch, "%s, %d", name, n)
			require.ErrorContains(t, err, want, "%s, %d", name, n)
		}
	}
	_, err := reliable.NewConsumer(l.queue, reliable.HandlerFunc(func(context.Context, *reliable.Job) error { return nil }),
		&reliable.ConsumerOptions{Concurrency: 1_000_000})
	require.ErrorContains(t, err, "want 1 to 10000")
	require.Equal(t, before, redistest.Dump(t, l.rdb, "", l.name), "a refused call has changed something")
}

// crowd is how many jobs share one instant.
func crowd() int { return shape(9000, 20_000) }

func TestS50_ACrowdPassesThroughEveryStageExactlyOnce(t *testing.T) {
	t.Parallel()
	redistest.NeedServer(t)
	for _, batch := range shape([]int{1, lease.MaxBatch}, []int{1, lease.DefaultBatch, 999, lease.MaxBatch}) {
		t.Run("batches of "+strconv.Itoa(batch), func(t *testing.T) {
			t.Parallel()
			n := crowd()
			l := newLane(t, nil)
			c := &crowded{lane: l, n: n, batch: batch, most: n}
			if batch == 1 {
				c.most = shape(300, n) // the rest of a stage follows in full batches
			}
			l.crowdDue(n)
			c.claimAll(1)
			c.expireAll()
			c.claimAll(2)
			c.buryAll()
			c.redriveAll()
			c.claimAll(1)
			c.buryAll()
			c.purgeAll()
			require.Zero(t, l.stats().Records)
		})
	}
}

// crowdDue enqueues n jobs that are due at one instant.
func (l *lane) crowdDue(n int) {
	l.t.Helper()
	items := numberedItems("j", n)
	at := l.serverTime().Add(-time.Second).Truncate(time.Millisecond)
	for i := range items {
		items[i].At = at
	}
	l.enqueue(items...)
	require.EqualValues(l.t, n, l.stats().Claimable)
}

// A crowded lane drives n jobs of one instant through the stages, in batches of a size; after the first most of a stage
// in batches of the greatest size.
type crowded struct {
	*lane
	n, batch, most int
	held           []lease.Lease
}

func (c *crowded) size(done int) int {
	if done >= c.most {
		return lease.MaxBatch
	}
	return min(c.batch, c.most-done)
}

func (c *crowded) claimAll(attempt int) {
	c.t.Helper()
	c.held = nil
	once := make(map[string]bool, c.n)
	for len(c.held) < c.n {
		asked := c.size(len(c.held))
		got, err := c.store.Claim(c.t.Context(), asked, nil)
		require.NoError(c.t, err)
		require.Len(c.t, got.Jobs, min(asked, c.n-len(c.held)))
		for _, job := range got.Jobs {
			require.False(c.t, once[job.ID], "%s was given twice", job.ID)
			require.Equal(c.t, attempt, job.Attempt())
			once[job.ID] = true
		}
		c.held = append(c.held, got.Jobs...)
	}
	got, err := c.store.Claim(c.t.Context(), c.batch, nil)
	require.NoError(c.t, err)
	require.Empty(c.t, got.Jobs)
	require.EqualValues(c.t, c.n, c.stats().Processing)
}

func (c *crowded) ids() []string {
	ids := make([]string, len(c.held))
	for i := range c.held {
		ids[i] = c.held[i].ID
	}
	return ids
}

func (c *crowded) expireAll() {
	c.t.Helper()
	c.setScores(lease.Processing, strconv.FormatInt(c.serverTime().UnixMilli(), 10), c.ids()...)
	require.EqualValues(c.t, c.n, c.stats().Expired)
	moved, calls := 0, 0
	for more := true; more; calls++ {
		asked := c.size(moved)
		got := c.sweep(asked)
		require.Equal(c.t, got.Moved(), got.ToDue)
		require.Equal(c.t, min(asked, c.n-moved), got.ToDue)
		moved += got.ToDue
		more = got.More
		require.Equal(c.t, moved < c.n, more)
	}
	require.EqualValues(c.t, c.n, c.stats().Due)
}

func (c *crowded) buryAll() {
	c.t.Helper()
	for done := 0; done < c.n; {
		some := c.held[done:min(done+c.size(done), c.n)]
		verdicts := make([]lease.Verdict, len(some))
		for i := range some {
			verdicts[i] = lease.Verdict{Op: lease.Bury, ID: some[i].ID, Token: some[i].Token, Reason: "no use"}
		}
		got, err := c.store.Settle(c.t.Context(), verdicts)
		require.NoError(c.t, err)
		for _, one := range got {
			require.NoError(c.t, one.Err)
			require.Equal(c.t, lease.Dead, one.Place)
		}
		done += len(some)
	}
	c.setScores(lease.Dead, strconv.FormatInt(c.serverTime().UnixMilli(), 10), c.ids()...)
	require.EqualValues(c.t, c.n, c.stats().Dead)
}

func (c *crowded) redriveAll() {
	c.t.Helper()
	c.bulk("redriven", func(cursor *lease.Cursor, n int) (int, error) {
		return c.store.RedriveNext(c.t.Context(), cursor, n)
	})
	require.EqualValues(c.t, c.n, c.stats().Claimable)
}

func (c *crowded) purgeAll() {
	c.t.Helper()
	c.bulk("purged", func(cursor *lease.Cursor, n int) (int, error) {
		return c.store.PurgeNext(c.t.Context(), lease.Dead, cursor, n)
	})
}

func (c *crowded) bulk(counter string, next func(cursor *lease.Cursor, n int) (int, error)) {
	c.t.Helper()
	before := c.stats().Counters[counter]
	var cursor lease.Cursor
	done := 0
	for !cursor.Done {
		asked := c.size(done)
		n, err := next(&cursor, asked)
		require.NoError(c.t, err)
		require.Equal(c.t, min(asked, c.n-done), n)
		done += n
	}
	require.Equal(c.t, c.n, done)
	after := c.stats()
	require.EqualValues(c.t, c.n, after.Counters[counter]-before)
	require.Zero(c.t, after.Dead)
}

// A Consumer finds a crowd that has expired at one instant: its own sweeper puts it back, and it works on all of it.
func TestS50_AConsumerWorksThroughACrowdThatExpiredAtOnceAndGoesOn(t *testing.T) {
	t.Parallel()
	redistest.NeedServer(t)
	n := crowd()
	l := newLane(t, &reliable.QueueOptions{Lease: 20 * time.Second})
	l.crowdDue(n)
	c := &crowded{lane: l, n: n, batch: lease.MaxBatch, most: n}
	c.claimAll(1)
	l.sweep(1) // so that the consumer's first sweep is no gap, and begins no grace
	l.setScores(lease.Processing, strconv.FormatInt(l.serverTime().UnixMilli(), 10), c.ids()...)

	var mu sync.Mutex
	starts := make(map[string]int, n)
	var failures atomic.Int64
	stop := l.consume(func(_ context.Context, job *reliable.Job) error {
		mu.Lock()
		defer mu.Unlock()
		starts[job.ID]++
		return nil
	}, &reliable.ConsumerOptions{Concurrency: 50, Hooks: &reliable.Hooks{OnError: func(context.Context, reliable.Event) { failures.Add(1) }}})
	acked := func(want int) func() bool {
		return func() bool { return l.stats().Counters["acked"] == int64(want) }
	}
	require.Eventually(t, acked(n), 2*time.Minute, 50*time.Millisecond)
	l.enqueue(reliable.Item{Kind: "case", ID: "one more"})
	require.Eventually(t, acked(n+1), 30*time.Second, 10*time.Millisecond, "the consumer has gone silent")
	stop()
	require.Len(t, starts, n+1)
	require.EqualValues(t, n, l.stats().Counters["expired"])
	require.EqualValues(t, n, l.stats().Counters["claimed"]-int64(n)-1)
	require.Zero(t, failures.Load())
	for id, times := range starts {
		require.Equal(t, 1, times, id)
	}
}

// A claim whose answer was lost gives its leases back by looking at all that expire at the same instant. There can be
// any number of those.
func TestS50_AnUnseenClaimIsGivenBackOutOfACrowdOfTheSameExpiry(t *testing.T) {
	t.Parallel()
	redistest.NeedServer(t)
	n := crowd()
	const unseen = 100
	l := newLane(t, nil)
	l.crowdDue(n)
	c := &crowded{lane: l, n: n, batch: lease.MaxBatch, most: n}
	c.claimAll(1)
	crowdIDs := c.ids()
	l.enqueue(numberedItems("unseen-", unseen)...)

	proxy := redistest.Proxy(t, redistest.Addr(t))
	options := redistest.Options(t)
	options.Addr = proxy.Addr()
	rdb := redis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	store, err := lease.NewStore(rdb, l.name, nil)
	require.NoError(t, err)
	t.Cleanup(func() { closeBounded(t, store.Close) })
	_, err = store.Claim(t.Context(), 1, nil) // opens the session, and has the script loaded
	require.NoError(t, err)

	calls := 0
	var problem error
	proxy.Decide(func(cmd []string) netfault.Action {
		if len(cmd) == 0 || cmd[0] != "evalsha" {
			return netfault.Pass
		}
		if calls++; calls == 1 {
			return netfault.DropReply
		}
		if calls == 2 { // the repeat that gives back: before it runs, the crowd gets the expiry of the lost claim
			problem = l.joinExpiry(crowdIDs)
		}
		return netfault.Pass
	})
	got, err := store.Claim(t.Context(), unseen, nil)
	require.NoError(t, err)
	proxy.Decide(nil)
	require.NoError(t, problem)
	require.EqualValues(t, 1, proxy.Dropped())
	require.NotEmpty(t, got.Jobs)
	stats := l.stats()
	require.EqualValues(t, unseen-1, stats.Counters["released"], "what the lost claim had leased, and nothing else")
	require.EqualValues(t, n+1+len(got.Jobs), stats.Processing)
	require.EqualValues(t, unseen-1-len(got.Jobs), stats.Due)
	tokens, err := l.rdb.HGetAll(t.Context(), l.keys.Key("leases")).Result()
	require.NoError(t, err)
	for _, job := range c.held {
		require.Equal(t, job.Token, tokens[job.ID], "a lease of the crowd was touched")
	}
}

// joinExpiry gives jobs the expiry that unseen ones have.
func (l *lane) joinExpiry(ids []string) error {
	ctx := context.Background()
	all, err := l.rdb.ZRangeWithScores(ctx, l.keys.Key("processing"), -1, -1).Result()
	if err != nil || len(all) != 1 {
		return fmt.Errorf("the last in processing: %v, %w", all, err)
	}
	for len(ids) > 0 {
		some := ids[:min(5000, len(ids))]
		ids = ids[len(some):]
		members := make([]redis.Z, len(some))
		for i, id := range some {
			members[i] = redis.Z{Score: all[0].Score, Member: id}
		}
		if err := l.rdb.ZAddXX(ctx, l.keys.Key("processing"), members...).Err(); err != nil {
			return err
		}
	}
	return nil
}
