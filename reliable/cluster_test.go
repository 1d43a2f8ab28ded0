package reliable_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redisproc"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

func TestTheWholeLifeOfJobsOnACluster(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, &redisproc.Options{Args: []string{"--cluster-enabled", "yes"}})
	node := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer node.Close()
	require.NoError(t, node.Do(t.Context(), "cluster", "addslotsrange", 0, 16383).Err())
	require.Eventually(t, func() bool {
		info, err := node.ClusterInfo(t.Context()).Result()
		return err == nil && len(info) > 0 && info[:len("cluster_state:ok")] == "cluster_state:ok"
	}, 20*time.Second, 20*time.Millisecond)

	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr()}})
	t.Cleanup(func() { _ = rdb.Close() })
	o := quick()
	o.DoneAge = time.Hour
	q := queueOn(t, rdb, "a:life/of.jobs_1", o)
	woken := make(chan struct{}, 1000)
	stop := runConsumer(t, q, reliable.HandlerFunc(func(_ context.Context, j *reliable.Job) error {
		woken <- struct{}{}
		if j.Kind == "bad" {
			return reliable.Discard(errors.New("bad"))
		}
		if j.Kind == "once" && j.Attempt == 1 {
			return errors.New("once")
		}
		return j.SetResult([]byte(j.ID))
	}), &reliable.ConsumerOptions{WakeFallback: time.Minute})
	put(t, q, job("first"))
	receive(t, woken)
	ids := put(t, q, append(jobs("k", 300), job("once"), job("bad"), reliable.Item{Kind: "odd.id", ID: "{a}b{c"})...)
	await(t, q, "all but one acked", func(s reliable.Stats) bool { return s.Counters["acked"] == 303 && s.Dead == 1 })
	results, err := q.Redrive(t.Context(), ids[301])
	require.NoError(t, err)
	require.NoError(t, results[0])
	await(t, q, "dead again", func(s reliable.Stats) bool { return s.Counters["buried"] == 2 && s.Dead == 1 })
	removed, err := q.Cancel(t.Context(), ids[301])
	require.NoError(t, err)
	require.True(t, removed[0].Cancelled)
	result, err := q.Result(t.Context(), "{a}b{c")
	require.NoError(t, err)
	require.Equal(t, "{a}b{c", string(result))
	require.NoError(t, stop())
	redistest.CheckQueue(t, node, "leaseq", q.Name())
}
