package reliable_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

// serverCost reads what the server has spent: CPU in µs, commands inside and outside of scripts, and calls by clients.
func serverCost(b *testing.B, rdb *redis.Client) (cpu, commands, calls float64) {
	ctx := context.Background()
	number := func(text, field string) float64 {
		_, rest, _ := strings.Cut(text, field)
		rest, _, _ = strings.Cut(rest, "\r\n")
		rest, _, _ = strings.Cut(rest, ",")
		n, _ := strconv.ParseFloat(strings.TrimSpace(rest), 64)
		return n
	}
	usage, err := rdb.Info(ctx, "cpu").Result()
	require.NoError(b, err)
	cpu = 1e6 * (number(usage, "used_cpu_sys:") + number(usage, "used_cpu_user:"))
	stats, err := rdb.Info(ctx, "commandstats").Result()
	require.NoError(b, err)
	for line := range strings.SplitSeq(stats, "\r\n") {
		n := number(line, "calls=")
		commands += n
		if strings.HasPrefix(line, "cmdstat_evalsha:") || strings.HasPrefix(line, "cmdstat_blpop:") {
			calls += n
		}
	}
	return cpu, commands, calls
}

// BenchmarkProcess works off b.N no-op jobs of 200 bytes with one consumer, after they were enqueued.
func BenchmarkProcess(b *testing.B) {
	for _, concurrency := range []int{1, 10, 50, 200} {
		b.Run(fmt.Sprintf("concurrency=%d", concurrency), func(b *testing.B) {
			server := redistest.Server(b, nil)
			rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
			defer rdb.Close()
			q, err := reliable.New(rdb, "bench", nil)
			require.NoError(b, err)
			fill(b, q, b.N)
			var left atomic.Int64
			left.Store(int64(b.N))
			all := make(chan struct{})
			handler := reliable.HandlerFunc(func(context.Context, *reliable.Job) error {
				if left.Add(-1) == 0 {
					close(all)
				}
				return nil
			})
			c, err := reliable.NewConsumer(q, handler, &reliable.ConsumerOptions{Concurrency: concurrency})
			require.NoError(b, err)
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			cpu, commands, calls := serverCost(b, rdb)
			b.ReportAllocs()
			b.ResetTimer()
			go func() { ended <- c.Run(ctx) }()
			<-all
			b.StopTimer()
			cpu2, commands2, calls2 := serverCost(b, rdb)
			n := float64(b.N)
			b.ReportMetric(n/b.Elapsed().Seconds(), "jobs/s")
			b.ReportMetric((cpu2-cpu)/n, "server-µs/job")
			b.ReportMetric((commands2-commands-(calls2-calls))/n, "redis-calls/job")
			b.ReportMetric((calls2-calls)/n, "round-trips/job") // a settle and a claim are one script call
			cancel()
			require.NoError(b, <-ended)
			require.NoError(b, q.Close(context.Background()))
		})
	}
}

func fill(b *testing.B, q *reliable.Queue, n int) {
	payload := []byte(strings.Repeat("x", 200))
	for n > 0 {
		items := make([]reliable.Item, min(n, 256))
		for i := range items {
			items[i] = reliable.Item{Kind: "bench", Payload: payload}
		}
		_, err := q.EnqueueMany(context.Background(), items)
		require.NoError(b, err)
		n -= len(items)
	}
}

// BenchmarkEnqueue enqueues jobs of 200 bytes: one a call, and 100 a call.
func BenchmarkEnqueue(b *testing.B) {
	for _, batch := range []int{1, 100} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			server := redistest.Server(b, nil)
			rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
			defer rdb.Close()
			q, err := reliable.New(rdb, "bench", nil)
			require.NoError(b, err)
			items := make([]reliable.Item, batch)
			for i := range items {
				items[i] = reliable.Item{Kind: "bench", Payload: []byte(strings.Repeat("x", 200))}
			}
			b.ReportAllocs()
			for b.Loop() {
				_, err := q.EnqueueMany(context.Background(), items)
				require.NoError(b, err)
			}
			b.ReportMetric(float64(batch)*float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
			require.NoError(b, q.Close(context.Background()))
		})
	}
}

// BenchmarkEnqueueConcurrently enqueues jobs of 200 bytes from 50 goroutines: through a Queue, whose callers share
// round trips; through the same script in a call of each caller's own; and by a script of two commands, without any of
// the queue's guarantees, in an EVALSHA of each caller's own; and through a Queue from 10 goroutines.
func BenchmarkEnqueueConcurrently(b *testing.B) {
	payload := []byte(strings.Repeat("x", 200))
	ways := map[string]func(b *testing.B, rdb *redis.Client) (enqueue func() error){
		"queue": func(b *testing.B, rdb *redis.Client) func() error {
			q, err := reliable.New(rdb, "bench", nil)
			require.NoError(b, err)
			b.Cleanup(func() { require.NoError(b, q.Close(context.Background())) })
			return func() error {
				_, err := q.Enqueue(context.Background(), reliable.Item{Kind: "bench", Payload: payload})
				return err
			}
		},
		"own-call": func(b *testing.B, rdb *redis.Client) func() error {
			q, err := reliable.New(rdb, "bench", nil)
			require.NoError(b, err)
			b.Cleanup(func() { require.NoError(b, q.Close(context.Background())) })
			return func() error {
				_, err := q.EnqueueMany(context.Background(), []reliable.Item{{Kind: "bench", Payload: payload}})
				return err
			}
		},
		"own-evalsha": func(b *testing.B, rdb *redis.Client) func() error {
			bare := redis.NewScript(`
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
return redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])`)
			keys := []string{"{bench}:due", "{bench}:jobs"}
			return func() error {
				return bare.Run(context.Background(), rdb, keys, reliable.NewID(), payload, time.Now().UnixMilli()).Err()
			}
		},
	}
	for _, c := range []struct {
		name, way  string
		goroutines int
	}{{"queue", "queue", 50}, {"own-call", "own-call", 50}, {"own-evalsha", "own-evalsha", 50}, {"queue-from-10", "queue", 10}} {
		b.Run(c.name, func(b *testing.B) {
			server := redistest.Server(b, nil)
			rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 50})
			b.Cleanup(func() { _ = rdb.Close() })
			enqueue := ways[c.way](b, rdb)
			require.NoError(b, enqueue())
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ReportAllocs()
			b.ResetTimer()
			var all sync.WaitGroup
			for range c.goroutines {
				all.Go(func() {
					for left.Add(-1) >= 0 {
						assert.NoError(b, enqueue())
					}
				})
			}
			all.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
			b.StopTimer()
		})
	}
}
