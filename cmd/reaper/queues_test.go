package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
)

func TestQueuesShowsAllQueuesOfTheRegistryInOneTable(t *testing.T) {
	t.Parallel()
	rdb, prefix := redistest.Client(t), newPrefix()
	busy := newStore(t, rdb, prefix, redistest.Queue(t), 90*time.Second)
	idle := newStore(t, rdb, prefix, redistest.Queue(t), 0)
	enqueue(t, busy, "a", "b", "c", "d")
	held := claim(t, busy, 3)
	settle(t, busy, lease.Ack, &held[0])
	settle(t, busy, lease.Bury, &held[1])

	code, out, errOut := invoke(t, nil, "queues", "--redis", serverURL(t), "--prefix", prefix)
	require.Zero(t, code, errOut)
	assert.Empty(t, errOut)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 5, out)
	assert.Equal(t, []string{"queue", "due", "due", "now", "oldest", "processing", "expired", "dead", "lease", "enqueued", "acked", "died"}, strings.Fields(lines[0]))
	row := func(name string) []string {
		for _, line := range lines {
			if fields := strings.Fields(line); len(fields) > 0 && fields[0] == name {
				return fields[1:]
			}
		}
		t.Fatalf("no row %s in\n%s", name, out)
		return nil
	}
	got := row(busy.Queue())
	got[2] = "…" // how long the oldest job is due
	assert.Equal(t, []string{"1", "1", "…", "1", "0", "1", "1m30s", "4", "1", "1"}, got)
	assert.Equal(t, []string{"0", "0", "-", "0", "0", "0", "15s", "0", "0", "0"}, row(idle.Queue()))
	assert.Equal(t, "queues", row("2")[0])
	assert.Equal(t, []string{"1", "1"}, row("2")[1:3])
	assert.Equal(t, []string{"4", "1", "1"}, row("2")[7:])
}

func TestQueuesAsJSONHasTheFieldsOfStatsAndTheLease(t *testing.T) {
	t.Parallel()
	rdb, prefix := redistest.Client(t), newPrefix()
	published := newStore(t, rdb, prefix, redistest.Queue(t), 2*time.Minute)
	silent := newStore(t, rdb, prefix, redistest.Queue(t), 0)
	enqueue(t, published, "a", "b")
	claim(t, published, 1)

	code, out, errOut := invoke(t, nil, "queues", "--json", "--redis", serverURL(t), "--prefix", prefix)
	require.Zero(t, code, errOut)
	assert.Equal(t, 1, strings.Count(out, "\n"), "one line")
	var got queuesJSON
	decoder := json.NewDecoder(strings.NewReader(out))
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(&got))
	assert.Equal(t, []string{prefix, redistest.Addr(t) + "/0"}, []string{got.Prefix, got.Redis})
	require.Len(t, got.Queues, 2)
	byName := map[string]overviewJSON{}
	for _, q := range got.Queues {
		byName[q.Queue] = q
	}
	q := byName[published.Queue()]
	assert.EqualValues(t, []int64{1, 1, 1, 120_000, 2}, []int64{q.Due, q.Claimable, q.Processing, q.Lease, q.Counters["enqueued"]})
	assert.True(t, q.Published)
	assert.True(t, q.Registered)
	q = byName[silent.Queue()]
	assert.EqualValues(t, 15_000, q.Lease)
	assert.False(t, q.Published)
	assert.Nil(t, q.OldestDue)
}

func TestQueuesSaysThatTheRegistryIsEmpty(t *testing.T) {
	t.Parallel()
	code, out, errOut := invoke(t, nil, "queues", "--redis", serverURL(t), "--prefix", "nobody-was-here")
	assert.Zero(t, code, errOut)
	assert.Equal(t, "No queue has been used yet at "+redistest.Addr(t)+"/0 under prefix nobody-was-here.\n", out)
	code, out, _ = invoke(t, nil, "queues", "--json", "--redis", serverURL(t), "--prefix", "nobody-was-here")
	assert.Zero(t, code)
	assert.Contains(t, out, `"queues":[]`)
}

func TestQueuesShowsTheOthersWhereSomeCannotBeRead(t *testing.T) {
	t.Parallel()
	rdb, prefix := redistest.Client(t), newPrefix()
	good := newStore(t, rdb, prefix, redistest.Queue(t), time.Minute)
	for range 8 {
		bad := redistest.BrokenQueue(t)
		require.NoError(t, rdb.SAdd(t.Context(), keys.Registry(prefix), bad).Err())
		p, err := keys.New(prefix, bad, 0)
		require.NoError(t, err)
		require.NoError(t, rdb.Set(t.Context(), p.Key("due"), "text", 0).Err())
	}
	code, out, errOut := invoke(t, nil, "queues", "--redis", serverURL(t), "--prefix", prefix)
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, out, good.Queue())
	assert.Equal(t, mostFailures, strings.Count(errOut, "WRONGTYPE"), errOut)
	assert.Contains(t, errOut, "8 of 9 queues could not be read")
}

func TestQueuesReadsHundredsOfQueuesInTheirOrder(t *testing.T) {
	t.Parallel()
	rdb, prefix := redistest.Client(t), newPrefix()
	var names []any
	for i := range 300 {
		names = append(names, fmt.Sprintf("q%03d", i))
	}
	require.NoError(t, rdb.SAdd(t.Context(), keys.Registry(prefix), names...).Err())
	t.Cleanup(func() { assert.NoError(t, rdb.Del(context.Background(), keys.Registry(prefix)).Err()) })
	code, out, errOut := invoke(t, nil, "queues", "--redis", serverURL(t), "--prefix", prefix, "--timeout", "20s")
	require.Zero(t, code, errOut)
	last := ""
	count := 0
	for line := range strings.Lines(out) {
		if name := strings.Fields(line)[0]; strings.HasPrefix(name, "q0") || strings.HasPrefix(name, "q1") || strings.HasPrefix(name, "q2") {
			assert.Greater(t, name, last)
			last = name
			count++
		}
	}
	assert.Equal(t, 300, count)
}

func TestQueuesExitsWithThreeWhereRedisCannotBeReached(t *testing.T) {
	t.Parallel()
	code, out, errOut := invoke(t, nil, "queues", "--redis", "redis://127.0.0.1:1/0")
	assert.Equal(t, exitRedis, code)
	assert.Empty(t, out)
	assert.Contains(t, errOut, "cannot be reached")
}

func TestLengthLeavesOutUnitsThatAreZero(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		15 * time.Second: "15s", time.Minute: "1m", 90 * time.Second: "1m30s", time.Hour: "1h", 150 * time.Minute: "2h30m",
		20 * time.Millisecond: "20ms", 10 * time.Minute: "10m", 10 * time.Second: "10s", 24 * time.Hour: "24h", 0: "0s",
		time.Hour + time.Second: "1h0m1s",
	} {
		assert.Equal(t, want, length(d))
	}
}
