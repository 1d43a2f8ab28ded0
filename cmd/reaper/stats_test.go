package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
)

func TestStatsAsJSONIsOneObjectWithEveryNumber(t *testing.T) {
	t.Parallel()
	rdb, prefix := redistest.Client(t), newPrefix()
	store := newStore(t, rdb, prefix, redistest.Queue(t), 10*time.Minute)
	empty := newStore(t, rdb, prefix, redistest.Queue(t), time.Minute)
	enqueue(t, store, "a", "b", "c", "d", "e")
	held := claim(t, store, 3)
	settle(t, store, lease.Ack, &held[0])
	settle(t, store, lease.Bury, &held[1])
	_, err := store.Expire(t.Context(), 1, true)
	require.NoError(t, err)

	code, out, errOut := invoke(t, nil, "stats", "--json", "--redis", serverURL(t), "--prefix", prefix)
	require.Zero(t, code, errOut)
	assert.Empty(t, errOut)
	assert.Equal(t, 1, strings.Count(out, "\n"), "one line")
	var got statsJSON
	decoder := json.NewDecoder(strings.NewReader(out))
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(&got))
	assert.Equal(t, prefix, got.Prefix)
	assert.Equal(t, redistest.Addr(t)+"/0", got.Redis)
	require.Len(t, got.Queues, 2)
	byName := map[string]queueStatsJSON{}
	for _, q := range got.Queues {
		byName[q.Queue] = q
	}
	q := byName[store.Queue()]
	assert.True(t, q.Registered)
	assert.EqualValues(t, []int64{2, 2, 1, 0, 1, 0, 4}, []int64{q.Due, q.Claimable, q.Processing, q.Expired, q.Dead, q.Done, q.Records})
	require.NotNil(t, q.OldestDue)
	require.NotNil(t, q.NextExpiry)
	require.NotNil(t, q.SinceSweep)
	assert.GreaterOrEqual(t, *q.OldestDue, int64(0))
	assert.Greater(t, *q.NextExpiry, (9 * time.Minute).Milliseconds())
	assert.EqualValues(t, 5, q.Counters["enqueued"])
	assert.EqualValues(t, 3, q.Counters["claimed"])
	assert.EqualValues(t, 1, q.Counters["acked"])
	assert.EqualValues(t, 1, q.Counters["buried"])

	q = byName[empty.Queue()]
	assert.Nil(t, q.OldestDue)
	assert.Nil(t, q.NextExpiry)
	assert.Nil(t, q.SinceSweep)
	assert.Contains(t, out, `"since_sweep_ms":null`)
}

func TestStatsAsTableShowsTheNamedQueues(t *testing.T) {
	t.Parallel()
	rdb, prefix := redistest.Client(t), newPrefix()
	store := newStore(t, rdb, prefix, redistest.Queue(t), 10*time.Minute)
	other := newStore(t, rdb, prefix, redistest.Queue(t), time.Minute)
	enqueue(t, store, "a", "b")
	held := claim(t, store, 1)
	settle(t, store, lease.Bury, &held[0])
	answers, err := store.Settle(t.Context(), []lease.Verdict{{Op: lease.Ack, ID: held[0].ID, Token: held[0].Token}})
	require.NoError(t, err)
	require.ErrorIs(t, answers[0].Err, lease.ErrLost)

	code, out, errOut := invoke(t, map[string]string{"LEASEQ_PREFIX": prefix, "LEASEQ_REDIS": serverURL(t)}, "stats", store.Queue())
	require.Zero(t, code, errOut)
	assert.NotContains(t, out, other.Queue())
	for _, part := range []string{"claimable", "processing", "expired", "dead", "oldest due", "last sweep", "never", "Counters", "enqueued", "redriven", "refused"} {
		assert.Contains(t, out, part)
	}
	var row []string
	for line := range strings.Lines(out) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[0] == store.Queue() {
			row = fields
			break
		}
	}
	require.NotEmpty(t, row, out)
	assert.Equal(t, []string{"1", "1", "0", "0", "1"}, row[1:6])
}

func TestStatsOfAServerWithoutQueuesSaysSo(t *testing.T) {
	t.Parallel()
	args := []string{"stats", "--redis", serverURL(t), "--prefix", newPrefix()}
	code, out, _ := invoke(t, nil, args...)
	assert.Zero(t, code)
	assert.Contains(t, out, "No queue has been used yet")
	code, out, _ = invoke(t, nil, append(args, "--json")...)
	assert.Zero(t, code)
	assert.Contains(t, out, `"queues":[]`)
}

func TestStatsOfAQueueThatNobodyUsedFailsAndNamesThoseThatAreKnown(t *testing.T) {
	t.Parallel()
	rdb, prefix := redistest.Client(t), newPrefix()
	store := newStore(t, rdb, prefix, redistest.Queue(t), time.Minute)
	code, out, errOut := invoke(t, nil, "stats", "--redis", serverURL(t), "--prefix", prefix, "oders", store.Queue())
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, errOut, "queue oders: nobody has used it")
	assert.Contains(t, errOut, "known are: "+store.Queue())
	assert.Contains(t, out, store.Queue(), "the other is shown")
}

func TestStatsShowsAUsedQueueThatIsNotInTheRegistry(t *testing.T) {
	t.Parallel()
	rdb, prefix := redistest.Client(t), newPrefix()
	store := newStore(t, rdb, prefix, redistest.Queue(t), time.Minute)
	enqueue(t, store, "a")
	require.NoError(t, rdb.Del(t.Context(), keys.Registry(prefix)).Err())
	code, out, errOut := invoke(t, nil, "stats", "--redis", serverURL(t), "--prefix", prefix, store.Queue())
	assert.Zero(t, code, errOut)
	assert.Contains(t, out, "(not in the registry)")
}

func TestStatsShowsTheOtherQueuesWhereOneCannotBeRead(t *testing.T) {
	t.Parallel()
	rdb, prefix := redistest.Client(t), newPrefix()
	good := newStore(t, rdb, prefix, redistest.Queue(t), time.Minute)
	broken := newStore(t, rdb, prefix, redistest.BrokenQueue(t), time.Minute)
	partition, err := keys.New(prefix, broken.Queue(), 0)
	require.NoError(t, err)
	require.NoError(t, rdb.Set(t.Context(), partition.Key("due"), "somebody's hand", 0).Err())
	code, out, errOut := invoke(t, nil, "stats", "--redis", serverURL(t), "--prefix", prefix)
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, errOut, "queue "+broken.Queue())
	assert.Contains(t, errOut, "WRONGTYPE")
	assert.Contains(t, out, good.Queue())
}

func TestStatsOfAServerThatIsNotThereExitsWithThree(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"redis://:hunter2@127.0.0.1:1/0":             "127.0.0.1:1/0 cannot be reached",
		"rediss://:hunter2@127.0.0.1:1/0":            "127.0.0.1:1/0 cannot be reached",
		"redis://:hunter2@127.0.0.1:1?cluster=true":  "the Cluster at 127.0.0.1:1 cannot be reached",
		"redis://:hunter2@127.0.0.1:1?master_name=m": "m of the Sentinels 127.0.0.1:1 cannot be reached",
		"redis://:hunter2@no-such-host.invalid":      "no-such-host.invalid:6379/0 cannot be reached",
	} {
		code, out, errOut := invoke(t, nil, "stats", "--redis", url)
		assert.Equal(t, exitRedis, code, errOut)
		assert.Empty(t, out)
		assert.Contains(t, errOut, want)
		assert.NotContains(t, errOut, "hunter2")
		assert.NotContains(t, errOut, "(if", "no advice where nobody answered")
	}
}

func TestStatsOfAServerThatIsSilentEndsWithItsTimeout(t *testing.T) {
	t.Parallel()
	proxy := redistest.Proxy(t, redistest.Addr(t))
	proxy.BlackHole(true)
	began := time.Now()
	code, _, errOut := invoke(t, nil, "stats", "--redis", "redis://"+proxy.Addr(), "--timeout", "200ms")
	assert.Equal(t, exitRedis, code)
	assert.Contains(t, errOut, "cannot be reached")
	assert.Contains(t, errOut, "if it speaks TLS on this port, begin the URL with rediss://", "ports for TLS may be as silent")
	assert.Less(t, time.Since(began), 4*time.Second)
}
