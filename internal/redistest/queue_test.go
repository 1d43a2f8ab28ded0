package redistest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redisproc"
)

func TestQueueNamesAreValidAndDiffer(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, test := range []string{"", "TestX", "TestX", "Test/with blank_ünd{braces}#1", strings.Repeat("Long", 100)} {
		name := queueName(test)
		require.NoError(t, keys.ValidateName("queue name", name))
		assert.False(t, seen[name], name)
		seen[name] = true
	}
	assert.Contains(t, Queue(t), t.Name())
}

// fill puts a queue's keys under two prefixes and two partitions, and its name into the registries.
func fill(t *testing.T, rdb redis.UniversalClient, queue string, lines ...string) {
	t.Helper()
	for _, prefix := range []string{keys.DefaultPrefix, "other"} {
		for partition := range 2 {
			p, err := keys.New(prefix, queue, partition)
			require.NoError(t, err)
			commands(t, rdb, p, lines...)
		}
		require.NoError(t, rdb.SAdd(context.Background(), keys.Registry(prefix), queue).Err())
	}
}

func TestQueueIsCheckedAndRemovedAtTheEnd(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	rdb := Client(t)
	broken := "HSET @jobs orphan ."
	for name, c := range map[string]struct {
		take   func(testing.TB) string
		lines  []string
		report bool
	}{
		"orderly":               {Queue, inOrder, false},
		"broken":                {Queue, append(inOrder[:len(inOrder):len(inOrder)], broken), true},
		"broken and not judged": {BrokenQueue, []string{broken}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &recorder{name: "TestOf" + t.Name()}
			queue := c.take(r)
			neighbour := queue + "1"
			fill(t, rdb, queue, c.lines...)
			fill(t, rdb, neighbour, inOrder...)
			report := r.end()
			if c.report {
				assert.Equal(t, 4, strings.Count(report, `"orphan"`), "two prefixes, two partitions: %s", report)
			} else {
				assert.Empty(t, report)
			}
			left, err := find(ctx, rdb, "", queue)
			require.NoError(t, err)
			assert.Empty(t, left)
			left, err = find(ctx, rdb, "", neighbour)
			require.NoError(t, err)
			assert.Len(t, left, 4*(len(keys.Names)+2), "a queue with a longer name keeps its keys")
			for _, prefix := range []string{keys.DefaultPrefix, "other"} {
				assert.False(t, rdb.SIsMember(ctx, keys.Registry(prefix), queue).Val())
				assert.True(t, rdb.SIsMember(ctx, keys.Registry(prefix), neighbour).Val())
			}
			require.NoError(t, remove(ctx, rdb, neighbour, left))
		})
	}
}

func TestQueuesOfAClusterAreFoundAndChecked(t *testing.T) {
	t.Parallel()
	s := Server(t, &redisproc.Options{Args: []string{"--cluster-enabled", "yes"}})
	ctx := context.Background()
	single := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer single.Close()
	require.NoError(t, single.ClusterAddSlotsRange(ctx, 0, 16383).Err())
	require.Eventually(t, func() bool {
		return strings.Contains(single.ClusterInfo(ctx).Val(), "cluster_state:ok")
	}, startBound, 10*time.Millisecond)

	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Addr()}})
	defer rdb.Close()
	const queue = "clustered"
	for partition := range 3 {
		p, err := keys.New(keys.DefaultPrefix, queue, partition)
		require.NoError(t, err)
		commands(t, rdb, p, inOrder...)
	}
	CheckQueue(t, rdb, keys.DefaultPrefix, queue)
	dump := Dump(t, rdb, keys.DefaultPrefix, queue)
	assert.Len(t, dump, 3*(len(keys.Names)+2))

	p, err := keys.New(keys.DefaultPrefix, queue, 2)
	require.NoError(t, err)
	commands(t, rdb, p, "HDEL @leases p1")
	problems, err := judge(ctx, rdb, keys.DefaultPrefix, queue)
	require.NoError(t, err)
	assert.Equal(t, []string{`partition 2: in processing without a lease: "p1"`}, problems)

	all, err := find(ctx, rdb, "", queue)
	require.NoError(t, err)
	require.NoError(t, remove(ctx, rdb, queue, all))
	assert.Empty(t, Dump(t, rdb, keys.DefaultPrefix, queue))
}

func TestGlobCharactersMatchOnlyThemselves(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	rdb := Mini(t)
	odd := `a*b?c[d]e^f-g\h`
	for _, key := range []string{odd + ":1", `axb?c[d]e^f-g\h:1`, `a*bxc[d]e^f-g\h:1`, `a*b?cde^f-g\h:1`} {
		require.NoError(t, rdb.Set(ctx, key, 1, 0).Err())
	}
	got, err := scan(ctx, rdb, escapeGlob(odd)+"*")
	require.NoError(t, err)
	assert.Equal(t, []string{odd + ":1"}, got)
}
