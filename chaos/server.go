package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/internal/redisproc"
)

// startBound is how long the server may take to start, or to answer first.
const startBound = 30 * time.Second

// A server is the Redis of a run.
type server struct {
	own   *redisproc.Server // nil: it is the user's
	url   string            // without a proxy
	addr  string            // what proxies lead to; "" where they cannot, as with TLS
	admin *redis.Client
}

// startServer takes the given server, or starts one.
func (s *storm) startServer(ctx context.Context) (*server, error) {
	ctx, cancel := context.WithTimeout(ctx, startBound)
	defer cancel()
	out := &server{url: s.URL}
	if s.URL == "" {
		own, err := s.ownServer(ctx)
		if err != nil {
			return nil, fmt.Errorf("chaos: a redis-server of the run's own (or give a URL): %w", err)
		}
		out.own, out.url = own, "redis://"+own.Addr()+"/0"
	}
	options, err := redis.ParseURL(out.url)
	if err != nil {
		return nil, errors.New("chaos: URL cannot be read")
	}
	if options.TLSConfig == nil && options.Network == "tcp" {
		out.addr = options.Addr
	}
	options.MaxRetries = 10
	out.admin = redis.NewClient(options)
	if err := out.admin.Ping(ctx).Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("chaos: %s: %w", options.Addr, err), out.close(ctx))
	}
	return out, nil
}

// through is the URL of the server by another address.
func (s *server) through(addr string) string {
	u, err := url.Parse(s.url)
	if err != nil {
		return s.url // it was parsed before
	}
	u.Host = addr
	return u.String()
}

func (s *server) close(ctx context.Context) error {
	var errs []error
	if s.admin != nil {
		errs = append(errs, s.admin.Close())
	}
	if s.own != nil {
		errs = append(errs, s.own.Stop(ctx))
	}
	return errors.Join(errs...)
}

// now reads the server's clock, and writes it to the history.
func (s *storm) now(ctx context.Context) error {
	before := time.Now()
	now, err := s.server.admin.Time(ctx).Result()
	if err != nil {
		return err
	}
	s.rec.ServerTime(before, time.Now(), now)
	return nil
}
