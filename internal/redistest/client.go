package redistest

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redisproc"
)

// Options returns options for a client of the shared server, a copy of the test's own. It starts the server if that
// has not happened yet, and fails the test if there is none.
func Options(t testing.TB) *redis.Options {
	t.Helper()
	return need(t).copied()
}

// Addr returns the shared server's address in the form host:port, as for [Proxy].
func Addr(t testing.TB) string {
	t.Helper()
	return need(t).options.Addr
}

// Client returns a client of the shared server with go-redis' defaults, closed when the test ends.
func Client(t testing.TB) *redis.Client {
	t.Helper()
	return closing(t, redis.NewClient(Options(t)))
}

// NeedServer skips the test, with [SkipReason], where the shared server is a miniredis.
func NeedServer(t testing.TB) {
	t.Helper()
	if need(t).kind == kindMini {
		t.Skip(SkipReason)
	}
}

// Server returns a redis-server process of the test's own, stopped when the test ends; a nil o means the defaults. The
// test is skipped, with [SkipReason], where there is no redis-server program.
func Server(t testing.TB, o *redisproc.Options) *redisproc.Server {
	t.Helper()
	if o == nil || o.Path == "" {
		if _, err := redisproc.Find(); err != nil {
			t.Skip(SkipReason)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), startBound)
	defer cancel()
	s, err := redisproc.Start(ctx, o)
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopBound)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Errorf("redistest: %v", err)
		}
	})
	return s
}

// Proxy returns a faulty proxy in front of a server, closed when the test ends.
func Proxy(t testing.TB, target string) *netfault.Proxy {
	t.Helper()
	p, err := netfault.Listen(target)
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("redistest: closing the proxy: %v", err)
		}
	})
	return p
}

// Mini returns a client of a miniredis of the test's own, in this process. Both are closed when the test ends.
func Mini(t testing.TB) *redis.Client {
	t.Helper()
	return mini(t, true)
}

// MiniForEver is Mini, but its keys never expire: one whose keys do goes through all of them, in their order, at every
// command, which with a thousand keys takes most of a minute with the race detector.
func MiniForEver(t testing.TB) *redis.Client {
	t.Helper()
	return mini(t, false)
}

func mini(t testing.TB, expiring bool) *redis.Client {
	t.Helper()
	b, err := startMini(expiring)
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	t.Cleanup(func() { _ = b.close() })
	return closing(t, redis.NewClient(b.copied()))
}

func closing(t testing.TB, rdb *redis.Client) *redis.Client {
	t.Cleanup(func() {
		if err := rdb.Close(); err != nil && !errors.Is(err, redis.ErrClosed) { // a test may close it itself
			t.Errorf("redistest: closing the client: %v", err)
		}
	})
	return rdb
}
