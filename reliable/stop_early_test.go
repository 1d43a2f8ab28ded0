package reliable_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

// busy is a hook that counts the commands of a client that are under way.
type busy struct{ n atomic.Int64 }

func (b *busy) DialHook(next redis.DialHook) redis.DialHook { return next }
func (b *busy) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (b *busy) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		b.n.Add(1)
		defer b.n.Add(-1)
		return next(ctx, cmd)
	}
}

// The policy is on its way when Run's context ends: Run is told so at once, and does not return before it has arrived.
func TestARunThatIsStoppedWhileItPublishesLeavesNothingOnTheWay(t *testing.T) {
	t.Parallel()
	name := redistest.Queue(t)
	rdb, proxy := behindProxy(t, 3*time.Second)
	require.NoError(t, rdb.Ping(t.Context()).Err(), "a connection is there")
	hook := &busy{}
	rdb.AddHook(hook)
	proxy.Delay(50 * time.Millisecond)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	proxy.Decide(func(cmd []string) netfault.Action {
		if cmd[0] == "evalsha" { // the first script of a run
			stop()
		}
		return netfault.Pass
	})
	c, err := reliable.NewConsumer(queueOn(t, rdb, name, nil), reliable.NewMux(), nil)
	require.NoError(t, err)
	require.NoError(t, c.Run(ctx))
	require.Zero(t, hook.n.Load(), "commands under way")
	require.Error(t, ctx.Err(), "it was stopped by its first script")
}
