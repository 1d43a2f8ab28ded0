package lease

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redistest"
)

func TestASweepInADeadConnectionKeepsNoOtherFromSweeping(t *testing.T) {
	t.Parallel()
	redistest.NeedServer(t)
	b, proxy := behindProxy(t, func(o *redis.Options) { o.ReadTimeout = 15 * time.Second })
	const length = 400 * time.Millisecond
	b.publish(t, Policy{Lease: length})
	b.put(t, "a")
	held := b.take(t, 1)
	var sweeps atomic.Int64
	stuck := make(chan struct{})
	proxy.Decide(func(cmd []string) netfault.Action {
		if len(cmd) > 1 && cmd[1] == expireScript.SHA() && sweeps.Add(1) == 3 {
			close(stuck)
			return netfault.Hold
		}
		return netfault.Pass
	})
	w, err := NewSweeper(b.Store, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = w.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		proxy.ReleaseHeld()
		<-ended
	})
	<-stuck
	before := time.Now()
	require.Eventually(t, func() bool { return b.look(t, "a").Place == Due }, patience, pollEvery)
	require.Less(t, time.Since(before), 3*time.Second, "the sweeper waited for the dead connection")
	require.Equal(t, "a", held[0].ID)
}
