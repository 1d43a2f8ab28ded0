package cases

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
)

// A bracket is a go-redis hook that puts every script call of a client into a MULTI between two readings of Redis'
// clock: the script's own reading is not before the first, and not after the second.
type bracket struct {
	plain *redis.Client
	setUp func(ctx context.Context, pipe redis.Pipeliner) // queued between the first reading and the script; nil: nothing

	mu       sync.Mutex
	from, to time.Time // of the last script that was answered
}

// bracketed returns a client of the shared server with the hook.
func bracketed(t testing.TB) (*redis.Client, *bracket) {
	t.Helper()
	b := &bracket{plain: redistest.Client(t)}
	rdb := redistest.Client(t)
	rdb.AddHook(b)
	return rdb, b
}

// last returns the two readings around the last script.
func (b *bracket) last() (from, to time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.from, b.to
}

func (b *bracket) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (b *bracket) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (b *bracket) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !isScript(cmd) {
			return next(ctx, cmd)
		}
		pipe := b.plain.TxPipeline()
		from := pipe.Time(ctx)
		if b.setUp != nil {
			b.setUp(ctx, pipe)
		}
		_ = pipe.Process(ctx, cmd) // only queued
		to := pipe.Time(ctx)
		_, _ = pipe.Exec(ctx) // each command holds its own error
		b.mu.Lock()
		if cmd.Err() == nil {
			b.from, b.to = from.Val(), to.Val()
		}
		b.mu.Unlock()
		return cmd.Err()
	}
}

func isScript(cmd redis.Cmder) bool { return strings.HasPrefix(cmd.Name(), "eval") }

func TestBracketShowsTheClockAroundAScript(t *testing.T) {
	t.Parallel()
	rdb, b := bracketed(t)
	got, err := rdb.Eval(t.Context(), "return redis.call('TIME')", nil).StringSlice()
	require.NoError(t, err)
	from, to := b.last()
	require.Len(t, got, 2)
	require.False(t, to.Before(from))
	require.WithinDuration(t, from, to, time.Second)
}
