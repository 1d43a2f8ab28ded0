package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/chaos/record"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reaper"
	"github.com/leaseq/leaseq/reliable"
)

// What a child that is this program once more is for, and which call of Run it belongs to.
const (
	envRole = "LEASEQ_CHAOS_ROLE"
	envRun  = "LEASEQ_CHAOS_RUN"
	envSeed = "LEASEQ_CHAOS_SEED"

	roleWorker  = "worker"
	roleSweeper = "sweeper"
)

// A Worker is what a worker process is given. Its methods return the same each time.
type Worker struct {
	rdb   *redis.Client
	rec   *record.Recorder
	queue string
	opts  reliable.QueueOptions
	slots int
	name  string
	seed  uint64
}

// Client is the way to Redis on which this worker's faults come. Its options may be read (Client().Options()) to make
// another one with the same address.
func (w *Worker) Client() *redis.Client { return w.rdb }

// Name is that of this process in the history.
func (w *Worker) Name() string { return w.name }

// Queue is the name of the queue to work on.
func (w *Worker) Queue() string { return w.queue }

// QueueOptions are those that the queue must have: its Prefix and Lease, and a Backoff that is short enough for the run.
// What else they hold may be changed.
func (w *Worker) QueueOptions() *reliable.QueueOptions {
	o := w.opts
	return &o
}

// ConsumerOptions are those of a Consumer in this worker: its Concurrency, Middleware and Hooks. Keep them, and set
// others as you like; a Hook of yours goes through Hooks.
func (w *Worker) ConsumerOptions() *reliable.ConsumerOptions {
	return &reliable.ConsumerOptions{
		Concurrency: w.slots, Middleware: []reliable.Middleware{w.Middleware()}, Hooks: w.Hooks(nil), DrainTimeout: w.opts.Lease,
	}
}

// Middleware writes down what handlers do. It must be the outermost.
func (w *Worker) Middleware() reliable.Middleware { return w.rec.Middleware() }

// Hooks write down what becomes of jobs, and call yours, if there are any.
func (w *Worker) Hooks(more *reliable.Hooks) *reliable.Hooks { return w.rec.Hooks(more) }

// Recorder is for what Middleware and Hooks do not see, as jobs that a handler enqueues.
func (w *Worker) Recorder() *record.Recorder { return w.rec }

// backoff is that of the queue of a run: short, so that it ends.
var backoff = reliable.Backoff{Base: 50 * time.Millisecond, Cap: time.Second}

// childOf reports whether this process is a child of a run of that name.
func childOf(name string) bool { return os.Getenv(envRole) != "" && os.Getenv(envRun) == name }

// playChild is a child process from here on: it never returns.
func playChild(o *Options) {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	go func() { // the parent's end is the end of standard input
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	err := play(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func play(ctx context.Context, o *Options) error {
	if os.Getenv(envRole) == roleSweeper {
		return sweep(ctx)
	}
	w, err := workerFromEnv()
	if err != nil {
		return err
	}
	work := builtIn
	if o != nil && o.Worker != nil {
		work = o.Worker
	}
	err = work(ctx, w)
	if err == nil && ctx.Err() == nil {
		err = errors.New("the worker returned before it was told to end")
	}
	return errors.Join(err, w.rec.Close(), w.rdb.Close())
}

func workerFromEnv() (*Worker, error) {
	w := &Worker{queue: os.Getenv(record.EnvQueue), name: os.Getenv(record.EnvProcess)}
	options, err := redis.ParseURL(os.Getenv(record.EnvURL))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", record.EnvURL, err)
	}
	w.rdb = redis.NewClient(options)
	if w.slots, err = strconv.Atoi(os.Getenv(record.EnvSlots)); err != nil {
		return nil, fmt.Errorf("%s: %w", record.EnvSlots, err)
	}
	if w.seed, err = strconv.ParseUint(os.Getenv(envSeed), 10, 64); err != nil {
		return nil, fmt.Errorf("%s: %w", envSeed, err)
	}
	lease, err := time.ParseDuration(os.Getenv(record.EnvLease))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", record.EnvLease, err)
	}
	w.opts = reliable.QueueOptions{Prefix: os.Getenv(record.EnvPrefix), Lease: lease, Backoff: backoff, Logger: childLog()}
	if w.rec, err = record.FromEnv(); err != nil {
		return nil, err
	}
	if w.rec == nil {
		return nil, fmt.Errorf("%s is empty", record.EnvHistory)
	}
	return w, nil
}

// childLog goes to standard error, of which the parent shows the end where a child ends by itself.
func childLog() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// sweep is a sidecar of the run's queue. What it does is in its history.
func sweep(ctx context.Context) error {
	options, err := redis.ParseURL(os.Getenv(record.EnvURL))
	if err != nil {
		return err
	}
	rec, err := record.FromEnv()
	if err != nil {
		return err
	}
	rdb := redis.NewClient(options)
	r, err := reaper.New(rdb, &reaper.Options{
		Prefix: os.Getenv(record.EnvPrefix), Queues: []string{os.Getenv(record.EnvQueue)}, Logger: childLog(),
		OnSweep: func(_ string, e lease.Expired) {
			rec.Swept(record.Sweep{ToDue: e.ToDue, ToDead: e.ToDead, Cancelled: e.Cancelled, Grace: e.Grace})
		},
	})
	if err == nil {
		err = r.Run(ctx)
	}
	return errors.Join(err, rec.Close(), rdb.Close())
}
