package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/chaos/record"
	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/reliable"
)

// Run makes a storm: worker processes work on a queue, jobs come, and faults happen to all of it, by a schedule that a
// seed makes; then the faults stop, and the queue must catch up; then it is drained, read, and judged by Check. What was
// found is in the Outcome, whose OK says whether all was right. An error says that there was no such run: bad Options, a
// server that does not start, ctx that ended before.
//
// The worker processes are this program once more (see Options.Worker): what the program does before it calls Run, they
// do too. A program that calls Run several times gives each call a Queue of its own name, by which the children know
// theirs.
func Run(ctx context.Context, o *Options) (*Outcome, error) {
	name := "run"
	if o != nil && o.Queue != "" {
		name = o.Queue
	}
	if childOf(name) {
		playChild(o)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	return launch(ctx, o, program{name: name, self: self, selfArgs: os.Args[1:]})
}

// A program is what the children are.
type program struct {
	name     string
	self     string
	selfArgs []string
}

// A storm is one run.
type storm struct {
	*settings
	program
	began     time.Time
	dir       string
	histories string
	ownDir    bool

	server  *server
	gear    gear
	client  *redis.Client // the producers'
	link    *netfault.Proxy
	posts   []*Post
	rec     *record.Recorder
	follow  *follower
	traffic *traffic
	result  *Outcome
	void    context.CancelCauseFunc // ends a run that has shown nothing, with the reason

	faultNumber atomic.Int64
	sweepers    atomic.Int64 // sidecars so far
	mu          sync.Mutex
	phase       string
	under       map[string]int
	problems    []string
}

// problem notes that something went wrong which is no finding of a check.
func (s *storm) problem(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Logger.Error(text)
	if len(s.problems) < 20 {
		s.problems = append(s.problems, text)
	}
}

func launch(ctx context.Context, o *Options, p program) (result *Outcome, err error) {
	settings, err := o.settle()
	if err != nil {
		return nil, err
	}
	s := &storm{settings: settings, program: p, under: map[string]int{}, result: &Outcome{Seed: settings.Seed, Queue: settings.Queue, SlackMS: settings.Slack.Milliseconds()}}
	defer func() {
		over, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		err = errors.Join(err, s.end(over, err == nil && result.OK()))
	}()
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	if err := s.play(ctx); err != nil {
		return nil, err
	}
	if err := s.judge(ctx); err != nil {
		return nil, err
	}
	return s.result, nil
}

// begin starts everything that a run needs.
func (s *storm) begin(ctx context.Context) (err error) {
	if err := s.makeDir(); err != nil {
		return err
	}
	if s.server, err = s.startServer(ctx); err != nil {
		return err
	}
	if err := s.empty(ctx); err != nil {
		return err
	}
	s.began = time.Now()
	s.follow = newFollower()
	file := filepath.Join(s.histories, "harness.jsonl")
	s.rec, err = record.Open(file, &record.Options{Queue: s.Queue, Process: "harness", Lease: s.Lease})
	if err != nil {
		return err
	}
	s.follow.add("harness", file)
	if err := s.now(ctx); err != nil {
		return err
	}
	if s.link, err = s.newLink(); err != nil {
		return err
	}
	for n := range s.Workers {
		link, err := s.newLink()
		if err != nil {
			return err
		}
		s.posts = append(s.posts, &Post{number: n + 1, storm: s, link: link})
	}
	return s.openTraffic()
}

func (s *storm) newLink() (*netfault.Proxy, error) {
	if s.server.addr == "" {
		return nil, nil
	}
	return netfault.Listen(s.server.addr)
}

func (s *storm) makeDir() (err error) {
	if s.dir = s.Dir; s.dir == "" {
		s.ownDir = true
		s.dir, err = os.MkdirTemp("", "leaseq-chaos-")
	} else {
		err = os.MkdirAll(s.dir, 0o755)
	}
	if err != nil {
		return fmt.Errorf("chaos: Dir: %w", err)
	}
	if s.dir, err = filepath.Abs(s.dir); err != nil {
		return fmt.Errorf("chaos: Dir: %w", err)
	}
	s.result.Dir, s.histories = s.dir, filepath.Join(s.dir, "history")
	if err := os.Mkdir(s.histories, 0o755); err != nil {
		return fmt.Errorf("chaos: Dir must be empty: %w", err)
	}
	return nil
}

// empty refuses a queue that has something in it, since that would not be the run's own.
func (s *storm) empty(ctx context.Context) error {
	partition, err := keys.New(s.Prefix, s.Queue, 0)
	if err != nil {
		return fmt.Errorf("chaos: Queue or Prefix: %w", err)
	}
	n, err := s.server.admin.Exists(ctx, partition.All()...).Result()
	if err != nil {
		return fmt.Errorf("chaos: %w", err)
	}
	if n > 0 {
		return fmt.Errorf("chaos: the queue %s is in use (%d of its keys exist): name one that is not", s.Queue, n)
	}
	return nil
}

func (s *storm) openTraffic() error {
	addr := s.server.url
	if s.link != nil {
		addr = s.server.through(s.link.Addr())
	}
	options, err := redis.ParseURL(addr)
	if err != nil {
		return err
	}
	s.client = redis.NewClient(options)
	q, err := reliable.New(s.client, s.Queue, &reliable.QueueOptions{Prefix: s.Prefix, Lease: s.Lease, Backoff: backoff, Logger: s.Logger})
	if err != nil {
		return fmt.Errorf("chaos: %w", err)
	}
	s.traffic = &traffic{storm: s, queue: q, limit: int64(max(2*s.Rate, 20*s.Workers*s.Concurrency))}
	return nil
}

// end ends whatever there is.
func (s *storm) end(ctx context.Context, right bool) error {
	var errs []error
	for _, p := range s.posts {
		if p.alive() {
			errs = append(errs, p.Kill())
		}
		if p.link != nil {
			errs = append(errs, p.link.Close())
		}
	}
	if s.traffic != nil {
		_ = s.traffic.queue.Close(ctx)
	}
	if s.client != nil {
		errs = append(errs, s.client.Close())
	}
	if s.link != nil {
		errs = append(errs, s.link.Close())
	}
	errs = append(errs, s.rec.Close())
	if s.server != nil {
		if s.server.own == nil {
			errs = append(errs, s.clean(ctx))
		}
		errs = append(errs, s.server.close(ctx))
	}
	errs = append(errs, s.gear.close())
	if s.ownDir && right {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("chaos: at the end: %w", err)
	}
	return nil
}

// clean removes the queue from a server of the user's.
func (s *storm) clean(ctx context.Context) error {
	partition, err := keys.New(s.Prefix, s.Queue, 0)
	if err != nil || s.rec == nil {
		return err // it was not begun, so the queue is not ours
	}
	if err := s.server.admin.Unlink(ctx, partition.All()...).Err(); err != nil {
		return err
	}
	return s.server.admin.SRem(ctx, keys.Registry(s.Prefix), s.Queue).Err()
}
