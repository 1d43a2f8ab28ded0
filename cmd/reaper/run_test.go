package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redisproc"
	"github.com/leaseq/leaseq/internal/redistest"
)

func TestRunPutsBackAnAbandonedJobAndEndsWithZeroWhenAsked(t *testing.T) {
	t.Parallel()
	rdb, prefix := redistest.Client(t), newPrefix()
	store := newStore(t, rdb, prefix, redistest.Queue(t), 300*time.Millisecond)
	p := launch(t, map[string]string{"LEASEQ_REDIS": serverURL(t)}, "run", "--prefix", prefix)
	p.err.await(t, "sweeping begins", store.Queue())
	enqueue(t, store, "a")
	claim(t, store, 1)
	awaitClaimable(t, store, 1)
	p.err.await(t, "leases ran out", "to_due=1")
	p.cancel(nil)
	assert.Equal(t, exitOK, p.wait(t))
	p.err.await(t, "reaper has ended")
	assert.Empty(t, p.out.String(), "the log is on standard error")
}

func TestRunWithArgumentsSweepsTheNamedQueuesOnly(t *testing.T) {
	t.Parallel()
	rdb, prefix := redistest.Client(t), newPrefix()
	named := newStore(t, rdb, prefix, redistest.Queue(t), 200*time.Millisecond)
	other := newStore(t, rdb, prefix, redistest.Queue(t), 200*time.Millisecond)
	p := launch(t, nil, "run", "--redis", serverURL(t), "--prefix", prefix, "--log-format", "json", "--log-level", "info", named.Queue(), "typo")
	p.err.await(t, `"a named queue is not in the registry`, `"queue":"typo"`)
	enqueue(t, named, "a")
	enqueue(t, other, "b")
	claim(t, named, 1)
	claim(t, other, 1)
	awaitClaimable(t, named, 1)
	stats, err := other.Stats(t.Context())
	require.NoError(t, err)
	assert.Negative(t, stats.SinceSweep)
	for line := range strings.Lines(p.err.String()) {
		assert.True(t, json.Valid([]byte(line)), line)
	}
	p.cancel(nil)
	assert.Equal(t, exitOK, p.wait(t))
	require.NoError(t, rdb.Del(t.Context(), rdb.Keys(t.Context(), prefix+":v1:{typo}:*").Val()...).Err())
}

func TestRunSaysAtItsStartWhichServerVersionAndQueues(t *testing.T) {
	t.Parallel()
	redistest.NeedServer(t)
	rdb, prefix := redistest.Client(t), newPrefix()
	store := newStore(t, rdb, prefix, redistest.Queue(t), time.Second)
	p := launch(t, nil, "run", "--redis", serverURL(t), "--prefix", prefix)
	p.err.await(t, "reaper starts", redistest.Addr(t), prefix)
	p.err.await(t, "connected", redistest.Addr(t), "server=", "version=", "mode=standalone", "maxmemory_policy=noeviction")
	p.err.await(t, "all queues of the registry", "now=1", store.Queue())
	assert.NotContains(t, p.err.String(), "level=WARN")
}

func TestRunWarnsOfAnEvictionPolicyThatDeletesJobs(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, &redisproc.Options{Args: []string{"--maxmemory-policy", "allkeys-lru"}})
	p := launch(t, nil, "run", "--redis", "redis://"+server.Addr())
	p.err.await(t, "level=WARN", "maxmemory-policy is not noeviction", "allkeys-lru")
}

func TestRunSaysThatItCouldNotCheckWhereINFOAndCONFIGAreForbidden(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, nil)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	require.NoError(t, rdb.Do(t.Context(), "ACL", "SETUSER", "limited", "on", ">hunter2", "~*", "&*", "+@all", "-config", "-info").Err())
	store := newStore(t, rdb, "leaseq", "orders", 200*time.Millisecond)
	p := launch(t, nil, "run", "--redis", "redis://limited:hunter2@"+server.Addr())
	p.err.await(t, "level=WARN", "could not check maxmemory-policy", "NOPERM")
	enqueue(t, store, "a")
	claim(t, store, 1)
	awaitClaimable(t, store, 1)
	assert.NotContains(t, p.err.String(), "hunter2")
}

func TestRunEndsWithThreeWhereTheCredentialsAreRefused(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, &redisproc.Options{Args: []string{"--requirepass", "swordfish"}})
	for _, url := range []string{"redis://:hunter2@" + server.Addr(), "redis://" + server.Addr()} {
		for _, command := range []string{"run", "stats"} {
			code, _, errOut := invoke(t, nil, command, "--redis", url)
			assert.Equal(t, exitRedis, code, errOut)
			assert.Contains(t, errOut, "refuses the credentials")
			assert.NotContains(t, errOut, "hunter2")
		}
	}
	code, _, errOut := invoke(t, nil, "stats", "--redis", "redis://:swordfish@"+server.Addr())
	assert.Zero(t, code, errOut)
}

func TestRunWaitsForAServerThatIsNotThereYet(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, nil)
	require.NoError(t, server.Kill())
	p := launch(t, nil, "run", "--redis", "redis://"+server.Addr())
	p.err.await(t, "level=WARN", "does not answer yet")
	require.NoError(t, server.Restart(t.Context()))
	p.err.await(t, "connected", server.Addr())
	p.cancel(nil)
	assert.Equal(t, exitOK, p.wait(t))
}

func TestRunAndStatsWorkWithAClusterAndWarnWhereTheURLDoesNotSaySo(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, &redisproc.Options{Args: []string{"--cluster-enabled", "yes"}})
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr()}})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	node := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { assert.NoError(t, node.Close()) })
	require.NoError(t, node.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	require.Eventually(t, func() bool {
		return strings.Contains(node.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
	}, within, 10*time.Millisecond)

	url := "redis://" + server.Addr()
	store := newStore(t, rdb, "leaseq", "orders", 200*time.Millisecond)
	p := launch(t, nil, "run", "--redis", url+"?cluster=true")
	p.err.await(t, "connected", "mode=cluster")
	enqueue(t, store, "a")
	claim(t, store, 1)
	awaitClaimable(t, store, 1)
	assert.NotContains(t, p.err.String(), "add ?cluster=true")
	code, out, errOut := invoke(t, nil, "stats", "--redis", url+"?cluster=true")
	assert.Zero(t, code, errOut)
	assert.Contains(t, out, "orders")

	plain := launch(t, nil, "run", "--redis", url)
	plain.err.await(t, "level=WARN", "add ?cluster=true")
}
