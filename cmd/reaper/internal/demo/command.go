package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/leaseq/leaseq/reliable"
)

// options are the command's flags.
type options struct {
	redis     string
	json      bool
	keep      bool
	miniredis bool

	// For tests.
	temp     string        // where the temporary directory is made; default: the system's place
	onWorker func(pid int) // called when a worker was started
}

// check finds mistakes in the flags.
func (o *options) check() error {
	if o.redis == "" {
		return nil
	}
	if o.miniredis {
		return errors.New("--redis and --miniredis: want one of them")
	}
	if _, err := redis.ParseURL(o.redis); err != nil {
		return errNotURL // the error would show parts of the URL, and a password may be anywhere in a wrong one
	}
	return nil
}

var errNotURL = errors.New("--redis is no URL of a single server: want it like redis://user:password@127.0.0.1:6379/0, with " +
	"special characters in a password percent-encoded; the demo knows neither Sentinel nor Cluster")

// Command returns `demo`, which writes to out and errOut and ends when its context does. It returns an error, so that
// the program exits with another code than 0, if it could not be played, was interrupted, or if its ledger does not
// balance. Whichever way it ends, no process of its own is left.
func Command(out, errOut io.Writer) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Kill and freeze workers in the middle of jobs, and see that no job is lost",
		Long: `Enqueues the jobs of a made-up web shop, starts three worker processes, kills one of them (SIGKILL) in the
middle of jobs, freezes another (SIGSTOP) past its leases and thaws it, and shows what becomes of the jobs, and
of their side effects, which go through the guard of package idempotency. Then it prints a ledger, computed from a
file that the workers wrote and from Redis.

It needs nothing: without --redis it uses a redis-server of its own if there is one on PATH, else a Redis inside this
process. It takes about ten seconds, and fails if the ledger does not balance.`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		PreRunE:      func(*cobra.Command, []string) error { return o.check() },
		RunE:         func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), &o, out, errOut) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.redis, "redis", "", "`URL` of a server to use instead; what the demo puts there it removes")
	flags.BoolVar(&o.json, "json", false, "print the ledger as one JSON object on standard output, all else on standard error")
	flags.BoolVar(&o.keep, "keep", false, "keep the workers' file, and the queue if the server was given")
	flags.BoolVar(&o.miniredis, "miniredis", false, "use the Redis inside this process, whatever is on PATH")
	if err := flags.MarkHidden("miniredis"); err != nil {
		panic(err) // the line above defines it
	}
	return cmd
}

var errInterrupted = errors.New("interrupted: the workers were ended, and there is no ledger")

// run plays the demonstration and prints its ledger.
func run(ctx context.Context, o *options, out, errOut io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	live := out
	if o.json {
		live = errOut
	}
	bounded, cancel := context.WithTimeoutCause(ctx, wholeBound, fmt.Errorf("the demo did not come to an end within %v", wholeBound))
	defer cancel()
	s, err := newStage(bounded, o, live)
	if err != nil {
		return interruptedOr(ctx, err)
	}
	book, err := s.perform(bounded)
	failed := book == nil || len(book.Problems) > 0
	err = errors.Join(err, s.strike(failed && ctx.Err() == nil))
	switch {
	case ctx.Err() != nil:
		return errInterrupted
	case book == nil:
		return err
	case o.json:
		err = errors.Join(err, json.NewEncoder(out).Encode(book.summary()))
	default:
		book.print(out)
	}
	return errors.Join(err, book.verdict(o.json))
}

func interruptedOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

// newStage prepares everything that the play needs but the workers. After an error nothing is left.
func newStage(ctx context.Context, o *options, live io.Writer) (*stage, error) {
	orders, err := readOrders()
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("the demo's workers are processes of this program, which cannot be found: %w", err)
	}
	s := &stage{
		options: o, orders: orders, byID: map[string]*order{}, story: newStory(live, len(orders)), began: time.Now(),
		running: map[int]map[int64]line{}, effects: map[int64]line{}, up: map[int]bool{}, refused: map[int]int{}, expiries: map[string]int{},
	}
	for i := range orders {
		s.byID[orders[i].ID] = &orders[i]
	}
	if err := s.open(ctx, program); err != nil {
		return nil, errors.Join(err, s.strike(false))
	}
	return s, nil
}

func (s *stage) open(ctx context.Context, program string) (err error) {
	if s.dir, err = os.MkdirTemp(s.options.temp, "leaseq-demo-"); err != nil {
		return err
	}
	s.file = filepath.Join(s.dir, "workers.jsonl")
	if err = os.WriteFile(s.file, nil, 0o600); err != nil {
		return err
	}
	if s.lines, err = follow(s.file); err != nil {
		return err
	}
	if s.server, err = chooseServer(ctx, s.options); err != nil {
		return err
	}
	s.story.say("Redis: %s", s.server.told)
	name := "demo-" + reliable.NewID()
	if s.queue, err = openQueue(s.server.rdb, name); err != nil {
		return err
	}
	s.crew = &crew{program: program, config: workerConfig{URL: s.server.url, Queue: name, File: s.file}}
	return nil
}

// strike ends every process of the demonstration and removes what it made. With keepFile the workers' file stays.
func (s *stage) strike(keepFile bool) error {
	s.story.end()
	var problems []error
	if s.crew != nil {
		problems = append(problems, s.crew.end())
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanBound)
	defer cancel()
	if s.queue != nil {
		problems = append(problems, s.queue.Close(ctx))
	}
	if s.server != nil {
		if !s.server.own && s.queue != nil && !s.options.keep {
			problems = append(problems, s.server.clean(ctx, s.queue.Name(), s.orders))
		}
		problems = append(problems, s.server.close(ctx))
	}
	if s.lines != nil {
		s.lines.close()
	}
	switch {
	case s.dir == "":
	case s.options.keep, keepFile && s.lines != nil && s.lines.read > 0:
		s.story.say("the workers' file stays: %s", s.file)
	default:
		problems = append(problems, os.RemoveAll(s.dir))
	}
	return errors.Join(problems...)
}
