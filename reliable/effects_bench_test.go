package reliable_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/idempotency"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

// trips counts what a client sends: a command alone or a pipeline is one round trip.
type trips struct{ atomic.Int64 }

func (*trips) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (n *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		n.Add(1)
		return next(ctx, cmd)
	}
}

func (n *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		n.Add(1)
		return next(ctx, cmds)
	}
}

func noEffect(context.Context) error { return nil }

var effectWays = []struct {
	name, record string
	handle       func(ctx context.Context, j *reliable.Job, here, there *idempotency.Guard) error
}{
	{"none", "", func(context.Context, *reliable.Job, *idempotency.Guard, *idempotency.Guard) error { return nil }},
	{"ack", "", func(ctx context.Context, j *reliable.Job, _, _ *idempotency.Guard) error { return j.Ack(ctx) }},
	{"Once", "{bench}:once:", func(ctx context.Context, j *reliable.Job, _, _ *idempotency.Guard) error {
		return j.Once(ctx, "mail", noEffect)
	}},
	{"OnceAndAck", "{bench}:once:", func(ctx context.Context, j *reliable.Job, _, _ *idempotency.Guard) error {
		return j.OnceAndAck(ctx, "mail", noEffect)
	}},
	{"guard-here", "{bench}:guard:", func(ctx context.Context, j *reliable.Job, here, _ *idempotency.Guard) error {
		return complete(ctx, j, here)
	}},
	{"guard-elsewhere", "{there}:guard:", func(ctx context.Context, j *reliable.Job, _, there *idempotency.Guard) error {
		return complete(ctx, j, there)
	}},
}

// BenchmarkEffects works off b.N jobs with one consumer of 50 handlers, each with one effect, which does nothing itself:
// what the guard costs beside the job's own round trips. "none" has no effect, "ack" acks by hand.
func BenchmarkEffects(b *testing.B) {
	for _, way := range effectWays {
		b.Run(way.name, func(b *testing.B) {
			ctx := context.Background()
			server := redistest.Server(b, nil)
			rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 60})
			defer rdb.Close()
			q, err := reliable.New(rdb, "bench", nil)
			require.NoError(b, err)
			here, err := idempotency.New(rdb, "bench", nil)
			require.NoError(b, err)
			there, err := idempotency.New(rdb, "there", nil)
			require.NoError(b, err)
			fill(b, q, b.N)
			var left atomic.Int64
			left.Store(int64(b.N))
			all := make(chan struct{})
			handler := reliable.HandlerFunc(func(ctx context.Context, j *reliable.Job) error {
				err := way.handle(ctx, j, here, there)
				if err != nil {
					b.Error(err)
				}
				if left.Add(-1) == 0 {
					close(all)
				}
				return err
			})
			c, err := reliable.NewConsumer(q, handler, &reliable.ConsumerOptions{Concurrency: 50})
			require.NoError(b, err)
			run, cancel := context.WithCancel(ctx)
			ended := make(chan error, 1)
			var sent trips
			rdb.AddHook(&sent)
			cpu, _, _ := serverCost(b, rdb)
			sent.Store(0)
			b.ReportAllocs()
			b.ResetTimer()
			go func() { ended <- c.Run(run) }()
			<-all
			b.StopTimer()
			n, asked := float64(b.N), float64(sent.Load())
			cpu2, _, _ := serverCost(b, rdb)
			b.ReportMetric(n/b.Elapsed().Seconds(), "jobs/s")
			b.ReportMetric((cpu2-cpu)/n, "server-µs/job")
			b.ReportMetric(asked/n, "round-trips/job")
			if way.record != "" {
				b.ReportMetric(recordBytes(b, rdb, "leaseq:v1:"+way.record), "bytes/record")
			}
			cancel()
			require.NoError(b, <-ended)
			for _, end := range []func(context.Context) error{q.Close, here.Close, there.Close} {
				require.NoError(b, end(ctx))
			}
		})
	}
}

// complete guards an effect by a key of its job's own length.
func complete(ctx context.Context, j *reliable.Job, g *idempotency.Guard) error {
	a, err := j.Begin(ctx, g, j.ID, nil)
	if err != nil {
		return err
	}
	return j.CompleteAndAck(ctx, a.Permit, nil)
}

// recordBytes is what one done record takes in Redis' memory, its key included.
func recordBytes(b *testing.B, rdb *redis.Client, prefix string) float64 {
	names, _, err := rdb.Scan(context.Background(), 0, prefix+"*", 10_000).Result()
	require.NoError(b, err)
	require.NotEmpty(b, names)
	bytes, err := rdb.MemoryUsage(context.Background(), names[0]).Result()
	require.NoError(b, err)
	return float64(bytes)
}
