package cases

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

type recoveryConfig struct{ Addr, Queue, Marks string }

// recoveryWorker holds up to 20 jobs until it is killed.
func recoveryWorker(config []byte) int {
	var c recoveryConfig
	if json.Unmarshal(config, &c) != nil {
		return 2
	}
	rdb := redis.NewClient(&redis.Options{Addr: c.Addr})
	q, err := reliable.New(rdb, c.Queue, &reliable.QueueOptions{Lease: 2 * time.Second})
	if err != nil {
		return 2
	}
	consumer, err := reliable.NewConsumer(q, reliable.HandlerFunc(func(ctx context.Context, j *reliable.Job) error {
		putMark(c.Marks, mark{What: "start", ID: j.ID})
		<-ctx.Done()
		return ctx.Err()
	}), &reliable.ConsumerOptions{Concurrency: 20})
	if err != nil {
		return 2
	}
	_ = consumer.Run(context.Background())
	return 0
}

var _ = child("recovery-worker", recoveryWorker)

// BenchmarkRecovery kills a worker that holds 20 jobs, lease 2 s, beside an idle second worker, and measures the time
// from each job's stored expiry to its next start, both on Redis' clock. One kill an iteration: -benchtime 50x.
func BenchmarkRecovery(b *testing.B) {
	rdb := redistest.Client(b)
	var late []time.Duration
	for i := 0; b.Loop(); i++ {
		late = append(late, recoverOnce(b, rdb, i)...)
	}
	slices.Sort(late)
	at := func(q float64) float64 {
		return float64(late[min(int(q*float64(len(late))), len(late)-1)].Microseconds()) / 1000
	}
	require.GreaterOrEqual(b, late[0], time.Duration(0), "a job started before its stored expiry")
	b.ReportMetric(at(0.5), "p50-ms")
	b.ReportMetric(at(0.99), "p99-ms")
	b.ReportMetric(at(1), "max-ms")
	b.ReportMetric(float64(len(late)), "jobs")
}

func recoverOnce(b *testing.B, rdb *redis.Client, i int) []time.Duration {
	ctx := context.Background()
	config := recoveryConfig{Addr: redistest.Addr(b), Queue: fmt.Sprintf("%s-%d", redistest.Queue(b), i), Marks: marksFile(b)}
	q, err := reliable.New(rdb, config.Queue, &reliable.QueueOptions{Lease: 2 * time.Second})
	require.NoError(b, err)
	defer q.Close(ctx)
	_, err = q.EnqueueMany(ctx, slices.Repeat([]reliable.Item{{Kind: "k"}}, 20))
	require.NoError(b, err)
	worker := startChild(b, "recovery-worker", config)
	require.Eventually(b, func() bool { return len(readMarks(b, config.Marks)) == 20 }, 20*time.Second, 10*time.Millisecond)

	type start struct {
		id string
		at time.Time
	}
	starts := make(chan start, 100)
	second, err := reliable.NewConsumer(q, reliable.HandlerFunc(func(ctx context.Context, j *reliable.Job) error {
		now, err := rdb.Time(ctx).Result()
		starts <- start{j.ID, now}
		return err
	}), nil)
	require.NoError(b, err)
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- second.Run(running) }()
	awaitGraceOver(b, q)
	worker.Kill()

	part, err := keys.New(keys.DefaultPrefix, config.Queue, 0)
	require.NoError(b, err)
	stored, err := rdb.ZRangeWithScores(ctx, part.Key("processing"), 0, -1).Result()
	require.NoError(b, err)
	require.Len(b, stored, 20, "the kill missed the running jobs")
	expiry := map[string]time.Time{}
	for _, z := range stored {
		expiry[z.Member.(string)] = time.UnixMilli(int64(z.Score))
	}
	var late []time.Duration
	for range 20 {
		select {
		case s := <-starts:
			late = append(late, s.at.Sub(expiry[s.id]))
		case <-time.After(20 * time.Second):
			require.FailNow(b, "a job was not put back")
		}
	}
	stop()
	require.NoError(b, <-ended)
	return late
}

// awaitGraceOver waits until sweeps go on without a grace.
func awaitGraceOver(b testing.TB, q *reliable.Queue) {
	require.Eventually(b, func() bool {
		s, err := q.Stats(context.Background())
		return err == nil && s.SinceSweep >= 0 && s.SinceSweep < time.Second
	}, 20*time.Second, 10*time.Millisecond)
	began := time.Now()
	require.Eventually(b, func() bool { return time.Since(began) > 2500*time.Millisecond }, 20*time.Second, 50*time.Millisecond)
}
