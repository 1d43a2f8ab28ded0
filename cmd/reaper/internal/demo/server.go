package demo

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redisproc"
)

// The kinds of servers, as --json names them. A server given with --redis is named by its URL, without its password.
const (
	kindProc = "redis-server"
	kindMini = "miniredis"
)

// A server is the Redis of one demonstration.
type server struct {
	kind    string
	url     string // for clients; can hold a password
	version string // "" where the server does not tell
	told    string // what is said of the choice
	own     bool   // it goes with the demonstration, and all that it holds
	rdb     *redis.Client
	stop    func(context.Context) error
}

// chooseServer takes the server that was given, else a redis-server on PATH, else one inside this process.
func chooseServer(ctx context.Context, o *options) (*server, error) {
	ctx, cancel := context.WithTimeout(ctx, startBound)
	defer cancel()
	switch {
	case o.redis != "":
		return givenServer(ctx, o.redis)
	case o.miniredis:
		return miniServer(ctx, "")
	}
	if _, err := redisproc.Find(); err != nil {
		return miniServer(ctx, "no redis-server on PATH, so ")
	}
	s, err := procServer(ctx)
	if err != nil && ctx.Err() == nil {
		return miniServer(ctx, fmt.Sprintf("the redis-server on PATH cannot be used (%v), so ", err))
	}
	return s, err
}

func givenServer(ctx context.Context, text string) (*server, error) {
	options, err := redis.ParseURL(text)
	if err != nil {
		return nil, errNotURL
	}
	shown := options.Addr
	if parsed, err := url.Parse(text); err == nil {
		parsed.User, parsed.RawQuery = nil, ""
		shown = parsed.String()
	}
	s := &server{kind: shown, url: text, stop: func(context.Context) error { return nil }}
	if err := s.connect(ctx); err != nil {
		return nil, fmt.Errorf("--redis: %s: %w", shown, err)
	}
	s.told = fmt.Sprintf("the one given, %s%s; the demo's keys are removed at its end", shown, s.version)
	return s, nil
}

func procServer(ctx context.Context) (*server, error) {
	proc, err := redisproc.Start(ctx, nil)
	if err != nil {
		return nil, err
	}
	s := &server{kind: kindProc, url: "redis://" + proc.Addr() + "/0", own: true, stop: proc.Stop}
	if err := s.connect(ctx); err != nil {
		return nil, errors.Join(err, proc.Stop(context.WithoutCancel(ctx)))
	}
	s.told = fmt.Sprintf("a redis-server%s of its own, at %s (pid %d)", s.version, proc.Addr(), proc.Pid())
	return s, nil
}

func miniServer(ctx context.Context, why string) (*server, error) {
	mini := miniredis.NewMiniRedis()
	if err := mini.StartAddr("127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("miniredis: %w", err)
	}
	s := &server{kind: kindMini, url: "redis://" + mini.Addr() + "/0", own: true, stop: func(context.Context) error {
		mini.Close()
		return nil
	}}
	if err := s.connect(ctx); err != nil {
		mini.Close()
		return nil, err
	}
	s.told = fmt.Sprintf("%sminiredis inside this process at %s", why, mini.Addr())
	return s, nil
}

// connect makes the client and finds out whether the server can be used.
func (s *server) connect(ctx context.Context) error {
	options, err := redis.ParseURL(s.url)
	if err != nil {
		return err
	}
	s.rdb = redis.NewClient(options)
	err = s.rdb.Ping(ctx).Err()
	if err == nil && s.kind != kindMini {
		err = s.readVersion(ctx)
	}
	if err != nil {
		_ = s.rdb.Close()
	}
	return err
}

// readVersion refuses a server older than Redis 6.2, which lacks commands that the scripts need.
func (s *server) readVersion(ctx context.Context) error {
	info, err := s.rdb.Info(ctx, "server").Result()
	if err != nil {
		return nil // it may not be ours to ask
	}
	for row := range strings.Lines(info) {
		version, ok := strings.CutPrefix(strings.TrimSpace(row), "redis_version:")
		if !ok {
			continue
		}
		if tooOld(version) {
			return fmt.Errorf("it is version %s: want 6.2 or newer", version)
		}
		s.version = " " + version
	}
	return nil
}

// tooOld says whether a version is below 6.2. One that cannot be read is not.
func tooOld(version string) bool {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, err1 := strconv.Atoi(major)
	b, err2 := strconv.Atoi(minor)
	return err1 == nil && err2 == nil && (a < 6 || a == 6 && b < 2)
}

// clean removes a queue, and the records of its jobs' effects, from a server that outlives the demonstration.
func (s *server) clean(ctx context.Context, queue string, orders []order) error {
	partition, err := keys.New(keyPrefix, queue, 0)
	if err != nil {
		return err
	}
	all := partition.All()
	for i := range orders {
		all = append(all, partition.Once(orders[i].ID))
	}
	if err := s.rdb.Unlink(ctx, all...).Err(); err != nil {
		return fmt.Errorf("the demo's keys are left on the server: %w", err)
	}
	if err := s.rdb.SRem(ctx, keys.Registry(keyPrefix), queue).Err(); err != nil {
		return fmt.Errorf("the demo's queue is left in the registry: %w", err)
	}
	return nil
}

// close ends the client, and the server if it is the demonstration's own.
func (s *server) close(ctx context.Context) error {
	return errors.Join(s.rdb.Close(), s.stop(ctx))
}
