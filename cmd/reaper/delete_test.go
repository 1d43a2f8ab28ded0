package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/internal/script"
	"github.com/leaseq/leaseq/lease"
)

// keyOf is the full name of a key of a partition.
func keyOf(t *testing.T, prefix, queue string, partition int, name string) string {
	t.Helper()
	return (&site{prefix: prefix, queue: queue}).key(t, partition, name)
}

// fill puts jobs into every place of two partitions of a queue, so many that batches are needed, with idempotency records
// in three; nothing stays in processing unless told.
func fill(t *testing.T, rdb redis.UniversalClient, prefix, queue string, running bool) (jobs int) {
	t.Helper()
	ctx := t.Context()
	for partition := range 2 {
		store, err := lease.NewStore(rdb, queue, &lease.StoreOptions{Prefix: prefix, Partition: partition})
		require.NoError(t, err)
		_, err = store.Publish(ctx, &lease.Policy{Lease: time.Minute})
		require.NoError(t, err)
		require.NoError(t, store.Register(ctx))
		var ids []string
		for i := range 30 {
			ids = append(ids, fmt.Sprintf("j%02d", i))
		}
		enqueue(t, store, ids...)
		held := claim(t, store, 20)
		for i := range 10 {
			settle(t, store, lease.Bury, &held[i])
		}
		for i := 10; i < 18; i++ {
			settle(t, store, lease.Ack, &held[i])
		}
		jobs += 22
		if !running || partition == 0 {
			settle(t, store, lease.Release, &held[18])
			settle(t, store, lease.Release, &held[19])
		}
		_, err = store.Expire(ctx, 1, true)
		require.NoError(t, err)
		require.NoError(t, store.Close(ctx))
	}
	require.NoError(t, rdb.ZAdd(ctx, keyOf(t, prefix, queue, 0, "done"), redis.Z{Score: 1e12, Member: "done"}).Err())
	require.NoError(t, rdb.HSet(ctx, keyOf(t, prefix, queue, 0, "results"), "done", "result").Err())
	for i := range 60 {
		for _, name := range []string{"guard:", "once:"} {
			key := keyOf(t, prefix, queue, i%3, fmt.Sprintf("%s{%d}", name, i))
			require.NoError(t, rdb.HSet(ctx, key, "owner", "x").Err())
			require.NoError(t, rdb.Expire(ctx, key, time.Hour).Err())
		}
	}
	return jobs + 1
}

// everything is what all keys of a queue hold.
func everything(t *testing.T, rdb redis.UniversalClient, prefix, queue string) map[string]string {
	t.Helper()
	return redistest.Dump(t, rdb, prefix, queue)
}

func registered(t *testing.T, rdb redis.UniversalClient, prefix, queue string) bool {
	t.Helper()
	known, err := lease.Queues(t.Context(), rdb, prefix)
	require.NoError(t, err)
	return slices.Contains(known, queue)
}

// noKeyOf looks at every key of every node.
func noKeyOf(t *testing.T, rdb redis.UniversalClient, part string) {
	t.Helper()
	look := func(ctx context.Context, rdb *redis.Client) error {
		all, err := rdb.Keys(ctx, "*").Result()
		for _, key := range all {
			assert.NotContains(t, key, part)
		}
		return err
	}
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		require.NoError(t, cluster.ForEachMaster(t.Context(), look))
		return
	}
	require.NoError(t, look(t.Context(), rdb.(*redis.Client)))
}

func TestNothingOfADeletedQueueIsLeft(t *testing.T) {
	t.Parallel()
	rdb, prefix := redistest.Client(t), newPrefix()
	queue, other := redistest.Queue(t), redistest.Queue(t)
	checkDeletion(t, rdb, serverURL(t), prefix, queue, other)
}

func TestNothingOfADeletedQueueIsLeftInACluster(t *testing.T) {
	t.Parallel()
	var addrs []string
	for _, node := range redistest.Cluster(t, 3, nil) {
		addrs = append(addrs, node.Addr())
	}
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	defer rdb.Close()
	checkDeletion(t, rdb, "redis://"+addrs[1]+"?cluster=true", newPrefix(), "a:queue/of.jobs_1", "a:queue/of.jobs_12")
}

func checkDeletion(t *testing.T, rdb redis.UniversalClient, url, prefix, queue, other string) {
	t.Helper()
	jobs := fill(t, rdb, prefix, queue, false)
	fill(t, rdb, prefix, other, true)
	fill(t, rdb, prefix+"2", queue, false)
	before, beforeOther, beforePrefix := everything(t, rdb, prefix, queue), everything(t, rdb, prefix, other), everything(t, rdb, prefix+"2", queue)
	args := []string{"queue", "delete", queue, "--redis", url, "--prefix", prefix, "--batch", "7", "--wait", "0"}

	code, out, errOut := invoke(t, nil, append(args, "--dry-run")...)
	require.Zero(t, code, errOut)
	rows := strings.Split(out, "\n")
	assert.Contains(t, rows[0], "its name is in the registry")
	assert.Equal(t, []string{"0", "12", "0", "10", "1", "0", "40"}, strings.Fields(rows[3])[:7], out)
	assert.Equal(t, []string{"1", "12", "0", "10", "0", "0", "40"}, strings.Fields(rows[4])[:7], out)
	assert.Equal(t, []string{"2", "0", "0", "0", "0", "0", "40", "0"}, strings.Fields(rows[5]), out)
	assert.Equal(t, before, everything(t, rdb, prefix, queue), "a dry run changes nothing")

	code, out, errOut = invoke(t, nil, append(args, "--yes")...)
	require.Zero(t, code, errOut)
	assert.Contains(t, out, fmt.Sprintf("Deleted: %d jobs, 120 idempotency records, the name in the registry\n", jobs))
	assert.Empty(t, everything(t, rdb, prefix, queue))
	noKeyOf(t, rdb, prefix+":v1:{"+queue+"}")
	noKeyOf(t, rdb, prefix+":v1:{"+queue+"#")
	assert.False(t, registered(t, rdb, prefix, queue))
	assert.True(t, registered(t, rdb, prefix, other))
	assert.Equal(t, beforeOther, everything(t, rdb, prefix, other), "another queue is not touched")
	assert.Equal(t, beforePrefix, everything(t, rdb, prefix+"2", queue), "nor that of another prefix")

	code, out, errOut = invoke(t, nil, append(args, "--yes")...)
	assert.Equal(t, exitFailure, code)
	assert.Empty(t, out)
	assert.Contains(t, errOut, "there is nothing of a queue "+queue+" under prefix "+prefix+"; known are: "+other)
}

func TestADeletionRefusesWhileJobsAreInProcessingUnlessForced(t *testing.T) {
	t.Parallel()
	rdb, prefix, queue := redistest.Client(t), newPrefix(), redistest.Queue(t)
	jobs := fill(t, rdb, prefix, queue, true)
	store := newStore(t, rdb, prefix, queue, time.Minute)
	held := claim(t, store, 3)
	before := everything(t, rdb, prefix, queue)
	args := []string{"queue", "delete", queue, "--redis", serverURL(t), "--prefix", prefix, "--wait", "0"}
	code, out, errOut := invoke(t, nil, append(args, "--yes")...)
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, errOut, "has 5 jobs in processing, and nothing was deleted: end its consumers, or wait until the jobs are done; --force deletes these too")
	assert.Contains(t, out, "partition", "what is there is shown")
	code, out, _ = invoke(t, nil, append(args, "--dry-run")...)
	assert.Zero(t, code)
	assert.Contains(t, out, "Nothing would be deleted, since 5 jobs are in processing")
	assert.Equal(t, before, everything(t, rdb, prefix, queue))

	code, out, errOut = invoke(t, nil, append(args, "--yes", "--force", "--batch", "2")...)
	require.Zero(t, code, errOut)
	assert.Contains(t, out, fmt.Sprintf("Deleted: %d jobs, 5 of them in processing, 120 idempotency records", jobs))
	assert.Empty(t, everything(t, rdb, prefix, queue))
	answers, err := store.Settle(t.Context(), []lease.Verdict{{Op: lease.Ack, ID: held[0].ID, Token: held[0].Token}})
	require.NoError(t, err, "its session is gone, and it goes on with another")
	assert.ErrorIs(t, answers[0].Err, lease.ErrGone)
	enqueue(t, store, "anew")
	settle(t, store, lease.Ack, &claim(t, store, 1)[0])
}

func TestADeletionIsConfirmed(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"--force"}} {
		code, out, errOut := feed(t, strings.NewReader("orders\n"), append([]string{"queue", "delete", "orders"}, args...)...)
		assert.Equal(t, exitUsage, code)
		assert.Empty(t, out)
		assert.Contains(t, errOut, "no terminal, so nobody can be asked: want --yes, or --dry-run")
	}
	for args, want := range map[string]string{
		"": "accepts 1 arg(s)", "a b --yes": "accepts 1 arg(s)", "a{b} --yes": `queue name "a{b}"`, "a --yes --batch 0": "want 1 to 1000",
		"a --yes --batch 1001": "want 1 to 1000", "a --yes --timeout 0": "want more than 0", "a --yes --wait -1s": "want 0 or more",
	} {
		code, _, errOut := invoke(t, nil, append([]string{"queue", "delete"}, strings.Fields(args)...)...)
		assert.Equal(t, exitUsage, code, args)
		assert.Contains(t, errOut, want, args)
	}
	code, _, errOut := invoke(t, nil, "queue", "delete", "orders", "--yes", "--redis", "redis://127.0.0.1:1")
	assert.Equal(t, exitRedis, code)
	assert.Contains(t, errOut, "cannot be reached")
}

// at has something happen when a script, or a plain command, is called for the nth time.
func at(proxy *netfault.Proxy, what string, nth int, do func() netfault.Action) {
	sha, n := "", 0
	if slices.ContainsFunc(lease.Scripts(), func(s *script.Script) bool { return s.Name == what }) {
		sha = digest(what)
	}
	proxy.Decide(func(cmd []string) netfault.Action {
		if len(cmd) > 1 && cmd[1] == sha || strings.EqualFold(cmd[0], what) {
			if n++; n == nth {
				return do()
			}
		}
		return netfault.Pass
	})
}

func TestLostRepliesChangeNothingOfADeletion(t *testing.T) {
	t.Parallel()
	rdb, prefix, queue := redistest.Client(t), newPrefix(), redistest.Queue(t)
	require.NoError(t, load(t))
	jobs := fill(t, rdb, prefix, queue, false)
	proxy := redistest.Proxy(t, redistest.Addr(t))
	n := 0
	proxy.Decide(func(cmd []string) netfault.Action {
		if len(cmd) > 1 && (cmd[1] == digest("delete") || cmd[1] == digest("erase")) {
			n++
			return []netfault.Action{netfault.Pass, netfault.DropReply, netfault.DropRequest}[n%3]
		}
		return netfault.Pass
	})
	code, out, errOut := invoke(t, nil, "queue", "delete", queue, "--yes", "--redis", "redis://"+proxy.Addr(), "--prefix", prefix, "--batch", "5", "--wait", "0")
	require.Zero(t, code, errOut)
	assert.Contains(t, out, fmt.Sprintf("Deleted: %d jobs, 120 idempotency records", jobs))
	assert.GreaterOrEqual(t, proxy.Dropped(), int64(6))
	assert.Empty(t, everything(t, rdb, prefix, queue))
}

func TestAnInterruptedDeletionIsRunAgain(t *testing.T) {
	t.Parallel()
	for what, nth := range map[string]int{"delete": 3, "erase": 1, "srem": 1} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			rdb, prefix, queue := redistest.Client(t), newPrefix(), redistest.BrokenQueue(t)
			require.NoError(t, load(t))
			fill(t, rdb, prefix, queue, false)
			proxy := redistest.Proxy(t, redistest.Addr(t))
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			at(proxy, what, nth, func() netfault.Action {
				cancel(errors.New("signal: interrupt"))
				return netfault.Pass
			})
			args := []string{"queue", "delete", queue, "--yes", "--prefix", prefix, "--batch", "5", "--wait", "0", "--redis"}
			code, _, errOut := feedUntil(t, ctx, nil, append(args, "redis://"+proxy.Addr())...)
			assert.Equal(t, exitFailure, code)
			assert.Contains(t, errOut, "stopped: signal: interrupt (deleted so far: ")
			assert.Contains(t, errOut, "run it again to go on")
			assert.NotEmpty(t, everything(t, rdb, prefix, queue))

			code, _, errOut = invoke(t, nil, append(args, serverURL(t))...)
			require.Zero(t, code, errOut)
			assert.Empty(t, everything(t, rdb, prefix, queue))
			assert.False(t, registered(t, rdb, prefix, queue))
		})
	}
}

func TestKeysThatAreNotOursStayAndAreNamed(t *testing.T) {
	t.Parallel()
	rdb, prefix, queue := redistest.Client(t), newPrefix(), redistest.BrokenQueue(t)
	fill(t, rdb, prefix, queue, false)
	strange := keyOf(t, prefix, queue, 0, "strange")
	require.NoError(t, rdb.Set(t.Context(), strange, "x", 0).Err())
	code, out, errOut := invoke(t, nil, "queue", "delete", queue, "--yes", "--prefix", prefix, "--wait", "0", "--redis", serverURL(t))
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, out, "Not ours, and to stay: "+strange)
	assert.Contains(t, errOut, "keys with its tag that are not ours stay: "+strange)
	assert.Len(t, everything(t, rdb, prefix, queue), 1)
	p, err := keys.New(prefix, queue, 0)
	require.NoError(t, err)
	require.Contains(t, strange, strings.TrimSuffix(p.Key("due"), "due"))
}
