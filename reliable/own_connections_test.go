package reliable_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

// works enqueues with a client, and consumes with it.
func works(t *testing.T, rdb *redis.Client, name string) {
	t.Helper()
	q := queueOn(t, rdb, name, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := q.Enqueue(ctx, job("k"))
	require.NoError(t, err)
	running := make(chan struct{}, 1)
	runConsumer(t, q, reliable.HandlerFunc(func(context.Context, *reliable.Job) error {
		running <- struct{}{}
		return nil
	}), nil)
	receive(t, running)
}

// A tunnel is a hook that dials elsewhere.
type tunnel struct{ addr string }

func (h tunnel) DialHook(redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, h.addr)
	}
}
func (tunnel) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (tunnel) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestAQueueWorksWhereACopyOfTheClientsOptionsDialsTheWrongPlace(t *testing.T) {
	t.Parallel()
	name, o := redistest.Queue(t), redistest.Options(t)
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = rdb.Close() })
	rdb.AddHook(tunnel{o.Addr})
	works(t, rdb, name)
}

func TestAQueueWorksOnTheOnlyConnectionThatAServerStillTakes(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, nil)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 1})
	t.Cleanup(func() { _ = rdb.Close() })
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxclients", "1").Err())
	works(t, rdb, "full")
}

func TestNothingIsWrittenAfterCloseAlsoWhereAClaimHadWaited(t *testing.T) {
	t.Parallel()
	name := redistest.Queue(t)
	rdb, p := behindProxy(t, 3*time.Second)
	var sent atomic.Int64
	var last atomic.Value // the name of the last command
	p.Decide(func(cmd []string) netfault.Action {
		if cmd[0] != "hello" && cmd[0] != "client" { // of a connection that go-redis was still dialling, and closes
			last.Store(strings.Join(cmd[:min(len(cmd), 2)], " "))
			sent.Add(1)
		}
		return netfault.Pass
	})
	for range 10 {
		q, err := reliable.New(rdb, name, nil)
		require.NoError(t, err)
		put(t, q, reliable.Item{Kind: "k", Delay: 900 * time.Millisecond})
		ended := make(chan error, 1)
		go func() {
			_, err := q.Claim(context.Background(), 1, &reliable.ClaimOptions{Wait: 10 * time.Second})
			ended <- err
		}()
		before := sent.Load()
		require.Eventually(t, func() bool { return sent.Load() > before }, 20*time.Second, time.Millisecond, "it has claimed")
		require.NoError(t, q.Close(t.Context()))
		after := sent.Load()
		<-ended
		require.Never(t, func() bool { return sent.Load() != after }, 50*time.Millisecond, 10*time.Millisecond, "the last: %v", &last)
	}
}
