package redistest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/internal/redisproc"
)

// EnvServer is the environment variable that names the shared server.
const EnvServer = "LEASEQ_TEST_REDIS"

// SkipReason is why a test is skipped where only miniredis, or no redis-server program, is to be had. It is the only
// reason for which tests of this project are skipped for want of a server.
const SkipReason = "needs a real Redis: put redis-server on PATH, start Docker, or set " + EnvServer + "=redis://host:port"

// The kinds of a shared server.
const (
	kindURL    = "url"
	kindProc   = "redis-server"
	kindDocker = "docker"
	kindMini   = "miniredis"
)

// startBound bounds the start of a server of ours, and stopBound its end.
const (
	startBound = time.Minute
	stopBound  = 15 * time.Second
)

// A backend is a server that answers at options until close.
type backend struct {
	kind    string
	options *redis.Options
	close   func() error
}

// shared is the server of this test process.
var shared sharing

// A sharing starts a backend when it is first asked for, once.
type sharing struct {
	mu      sync.Mutex
	asked   bool
	ended   bool
	backend *backend
	err     error
}

func (s *sharing) get() (*backend, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, errors.New("the shared server has been ended")
	}
	if !s.asked {
		s.asked = true
		s.backend, s.err = choose(os.Getenv(EnvServer))
	}
	return s.backend, s.err
}

// started returns the backend if there is one, and starts none.
func (s *sharing) started() *backend {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil
	}
	return s.backend
}

func (s *sharing) stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if s.backend == nil {
		return nil
	}
	return s.backend.close()
}

// choose starts the server that the environment names, or the best that there is.
func choose(env string) (*backend, error) {
	switch env {
	case "":
	case kindProc:
		return startProc()
	case kindDocker:
		return startDocker()
	case kindMini:
		return startMini(true)
	default:
		return reach(env)
	}
	_, notFound := redisproc.Find()
	if notFound == nil {
		return startProc() // one that is there and does not start is a finding, no reason to look further
	}
	b, noDocker := startDocker()
	if noDocker == nil {
		return b, nil
	}
	fmt.Fprintf(os.Stderr, "redistest: only miniredis is to be had, and tests that need a real Redis are skipped: %v; %v\n", notFound, noDocker)
	return startMini(true)
}

// reach takes a server that is there. It is not ended by us.
func reach(url string) (*backend, error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("%s: want redis://host:port/db, redis-server, docker or miniredis: %w", EnvServer, err)
	}
	b := &backend{kind: kindURL, options: options, close: func() error { return nil }}
	if err := b.ping(5 * time.Second); err != nil {
		return nil, fmt.Errorf("%s=%s: %w", EnvServer, options.Addr, err)
	}
	return b, nil
}

func startProc() (*backend, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startBound)
	defer cancel()
	server, err := redisproc.Start(ctx, nil)
	if err != nil {
		return nil, err
	}
	return &backend{kind: kindProc, options: &redis.Options{Addr: server.Addr()}, close: func() error {
		ctx, cancel := context.WithTimeout(context.Background(), stopBound)
		defer cancel()
		return server.Stop(ctx)
	}}, nil
}

// startMini starts a miniredis whose keys expire as time passes, as on a server, or never.
func startMini(expiring bool) (*backend, error) {
	mini := miniredis.NewMiniRedis()
	if err := mini.StartAddr("127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("miniredis: %w", err)
	}
	mini.ClockTTL(expiring)
	return &backend{kind: kindMini, options: &redis.Options{Addr: mini.Addr()}, close: func() error {
		mini.Close()
		return nil
	}}, nil
}

// ping waits until the backend answers, or says what it answered last.
func (b *backend) ping(bound time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	rdb := redis.NewClient(b.copied())
	defer rdb.Close()
	var last error
	for {
		err := rdb.Ping(ctx).Err()
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil { // not the end of our own patience
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no answer to PING within %s: %w", bound, last)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// copied returns options that the caller may change.
func (b *backend) copied() *redis.Options {
	options := *b.options
	return &options
}

// need returns the shared server or ends the test.
func need(t testing.TB) *backend {
	t.Helper()
	b, err := shared.get()
	if err != nil {
		t.Fatalf("redistest: no shared server: %v", err)
	}
	return b
}
