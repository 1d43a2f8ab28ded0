package redistest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redisproc"
)

func TestClientsShareOneServer(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	key := Queue(t)
	one, other := Client(t), Client(t)
	require.NoError(t, one.Set(ctx, key, "here", 0).Err())
	assert.Equal(t, "here", other.GetDel(ctx, key).Val())
	assert.Equal(t, Addr(t), Options(t).Addr)

	options := Options(t)
	options.Addr = "changed"
	assert.NotEqual(t, "changed", Addr(t), "options are a copy")
}

func TestServerOfATestsOwnIsAnotherOne(t *testing.T) {
	t.Parallel()
	s := Server(t, &redisproc.Options{AppendOnly: true})
	assert.NotEqual(t, Addr(t), s.Addr())
	require.NoError(t, s.Kill())
	require.NoError(t, s.Restart(t.Context()))
}

func TestProxyStandsInFrontOfTheServer(t *testing.T) {
	t.Parallel()
	NeedServer(t)
	p := Proxy(t, Addr(t))
	p.Decide(func(cmd []string) netfault.Action {
		if strings.EqualFold(cmd[0], "incr") && p.Dropped() == 0 {
			return netfault.DropReply
		}
		return netfault.Pass
	})
	options := Options(t)
	options.Addr = p.Addr()
	rdb := closing(t, redis.NewClient(options))
	key := Queue(t)
	assert.EqualValues(t, 2, rdb.Incr(context.Background(), key).Val(), "go-redis repeats what has run")
	require.NoError(t, rdb.Del(context.Background(), key).Err())
}

func TestMiniRunsScriptsAndForgetsInTime(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	rdb := Mini(t)
	got, err := rdb.Eval(ctx, `return {redis.call('SET', KEYS[1], ARGV[1], 'PX', 20), #redis.call('TIME')}`, []string{"k"}, "v").Result()
	require.NoError(t, err)
	assert.Equal(t, []any{"OK", int64(2)}, got)
	require.Eventually(t, func() bool { return rdb.Exists(ctx, "k").Val() == 0 }, 5*time.Second, 5*time.Millisecond)
	assert.NotEqual(t, rdb.Options().Addr, Mini(t).Options().Addr)
}
