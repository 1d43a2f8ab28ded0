package lease

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
)

// underWay is a hook that counts the commands of a client that are under way.
type underWay struct{ n atomic.Int64 }

func (u *underWay) DialHook(next redis.DialHook) redis.DialHook { return next }
func (u *underWay) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (u *underWay) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		u.n.Add(1)
		defer u.n.Add(-1)
		return next(ctx, cmd)
	}
}

// Calls that are safe to run twice come back at once when their contexts end, though the client still waits for the
// answer. What they have begun then ends before Close does, or, after Close, before they come back.
func TestNothingThatACallerHasLeftGoesOnAfterClose(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(ctx context.Context, s *Store) error{
		"publish": func(ctx context.Context, s *Store) error {
			_, err := s.Publish(ctx, &Policy{Lease: time.Minute})
			return err
		},
		"wake": func(ctx context.Context, s *Store) error { return s.Wake(ctx) },
		"extend": func(ctx context.Context, s *Store) error {
			_, err := s.Extend(ctx, 0, []Held{{ID: "a", Token: "1:s:1"}})
			return err
		},
		"erase": func(ctx context.Context, s *Store) error {
			_, err := s.Erase(ctx)
			return err
		},
		"stats": func(ctx context.Context, s *Store) error {
			_, err := s.Stats(ctx)
			return err
		},
		"inspect": func(ctx context.Context, s *Store) error {
			_, err := s.Inspect(ctx, []string{"a"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := redis.Options{}
			b, proxy := behindProxy(t, func(through *redis.Options) { o = *through })
			rdb := redis.NewClient(&o)
			t.Cleanup(func() { _ = rdb.Close() })
			hook := &underWay{}
			rdb.AddHook(hook)
			s := b.another(t, rdb)
			require.NoError(t, rdb.Ping(t.Context()).Err(), "a connection is there")
			proxy.Delay(50 * time.Millisecond)
			leave := func(then func()) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				proxy.Decide(func([]string) netfault.Action { cancel(); return netfault.Pass })
				require.ErrorIs(t, call(ctx, s), context.Canceled)
				then()
				assert.Zero(t, hook.n.Load(), "commands under way")
			}
			leave(func() { require.NoError(t, s.Close(t.Context())) })
			leave(func() {})
		})
	}
}
