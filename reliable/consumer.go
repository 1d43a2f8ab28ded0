package reliable

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/leaseq/leaseq/lease"
)

// Defaults and bounds of a Consumer.
const (
	DefaultConcurrency  = 32
	DefaultJobTimeout   = time.Hour
	DefaultDrainTimeout = 20 * time.Second

	maxConcurrency = 10_000
	maxPrefetch    = 10_000
	abandonAfter   = 500 * time.Millisecond // after handlers' contexts were cancelled at shutdown
	lastSettle     = 3 * time.Second        // for the last verdicts, after that
	settleFor      = 10 * time.Minute       // how long a verdict is repeated
)

// ConsumerOptions are the optional settings of a Consumer; nil is valid, and zero values mean the documented defaults.
type ConsumerOptions struct {
	// Concurrency is how many handlers run at a time: 1 to 10,000. Jobs are claimed only for free slots. Default 32.
	Concurrency int
	// Prefetch is how many jobs more may be claimed than handlers are free, 0 to 10,000: they wait in this process, under
	// leases that are extended, and start without a round trip. It makes short jobs at a low Concurrency several times as
	// fast. Other consumers do not get what waits here, and what has not started when Run's context ends goes back to the
	// queue at once, uncounted. Refused with NoExtend. Default 0.
	Prefetch int
	// NoExtend lets leases run out while handlers run. JobTimeout and DrainTimeout then default to the lease, and a longer
	// one of either is refused, that of a kind included.
	NoExtend bool
	// NoSweep leaves expired leases to other consumers or the sidecar. Default: this consumer sweeps its queue too.
	NoSweep bool
	// JobTimeout is how long one run may take: then the handler's context ends with cause [ErrJobTimeout], and the lease
	// is not extended any more. A kind may have its own (HandleOptions). Default 1 h.
	JobTimeout time.Duration
	// DrainTimeout is how long handlers may go on after Run's context ended; then their contexts end with cause
	// [ErrShutdown]. Default 20 s.
	DrainTimeout time.Duration
	// WakeFallback is how long an idle consumer waits before it looks by itself: 10 ms to 1 min. Default 1 s.
	WakeFallback time.Duration
	// Holder is this process' readable name, 1–64 bytes. Default <host>/<pid>.
	Holder string
	// Middleware are put around the Handler, once, by NewConsumer; the first is the outermost. One that is nil, that
	// returns a nil Handler, or that panics, is refused. Default: none.
	Middleware []Middleware
	// Hooks are called for what happens to jobs. Default: none.
	Hooks *Hooks
	// Logger. Default: none.
	Logger *slog.Logger
}

// A Consumer claims jobs of one queue and runs a Handler for each. Run starts and stops it.
type Consumer struct {
	queue   *Queue
	handler Handler // as it was given: a Mux is asked for timeouts
	wrapped Handler // with the middleware around it: what jobs are given to
	opts    ConsumerOptions
	running atomic.Bool
	current atomic.Pointer[run] // nil: it does not run

	unknownKinds *growingDelays
	newer        *growingDelays
}

// NewConsumer checks its arguments and does no I/O. The queue's Redis client must be one of which a connection of the
// consumer's own can be made for blocking reads: made by redis.NewClient, NewFailoverClient or NewClusterClient.
func NewConsumer(q *Queue, h Handler, o *ConsumerOptions) (*Consumer, error) {
	if q == nil {
		return nil, errors.New("reliable.NewConsumer: the Queue is nil: want one made by New")
	}
	c, err := newConsumer(q, h, o)
	if err != nil {
		return nil, fmt.Errorf("reliable.NewConsumer(%q): %w", q.name, err)
	}
	return c, nil
}

func newConsumer(q *Queue, h Handler, o *ConsumerOptions) (*Consumer, error) {
	var errs []error
	if isNil(h) {
		errs = append(errs, errors.New("the Handler is nil: want a Mux, a HandlerFunc, or one of your own"))
	}
	var opts ConsumerOptions
	if o != nil {
		opts = *o
	}
	opts.fill(q)
	wrapped, err := wrap(h, opts.Middleware)
	errs = append(errs, opts.validate(q), opts.validateKinds(q, h), err, lease.CanWait(q.rdb))
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &Consumer{
		queue: q, handler: h, wrapped: wrapped, opts: opts,
		unknownKinds: newUnknownKinds(time.Now), newer: newNewerVersions(time.Now),
	}, nil
}

// isNil reports whether a Handler is nil, or one of ours that would panic at its first job.
func isNil(h Handler) bool {
	switch h := h.(type) {
	case nil:
		return true
	case *Mux:
		return h == nil
	case HandlerFunc:
		return h == nil
	}
	return false
}

func (o *ConsumerOptions) fill(q *Queue) {
	if o.Concurrency == 0 {
		o.Concurrency = DefaultConcurrency
	}
	if o.JobTimeout == 0 {
		o.JobTimeout = DefaultJobTimeout
		if o.NoExtend {
			o.JobTimeout = q.opts.Lease
		}
	}
	if o.DrainTimeout == 0 {
		o.DrainTimeout = DefaultDrainTimeout
		if o.NoExtend {
			o.DrainTimeout = q.opts.Lease
		}
	}
	if o.WakeFallback == 0 {
		o.WakeFallback = lease.DefaultFallback
	}
	if o.Holder == "" {
		o.Holder = lease.DefaultHolder()
	}
	o.Logger = loggerOr(o.Logger)
}

func (o *ConsumerOptions) validate(q *Queue) error {
	var errs []error
	if o.Concurrency < 1 || o.Concurrency > maxConcurrency {
		errs = append(errs, fmt.Errorf("Concurrency is %d: want 1 to %d", o.Concurrency, maxConcurrency))
	}
	if o.Prefetch < 0 || o.Prefetch > maxPrefetch {
		errs = append(errs, fmt.Errorf("Prefetch is %d: want 0 to %d", o.Prefetch, maxPrefetch))
	}
	if o.NoExtend && o.Prefetch > 0 {
		errs = append(errs, fmt.Errorf("NoExtend with a Prefetch of %d: the leases of jobs that wait would run out", o.Prefetch))
	}
	if o.JobTimeout < 0 || o.DrainTimeout < 0 {
		errs = append(errs, fmt.Errorf("JobTimeout is %v, DrainTimeout is %v: want more than 0", o.JobTimeout, o.DrainTimeout))
	}
	if o.WakeFallback < 10*time.Millisecond || o.WakeFallback > time.Minute {
		errs = append(errs, fmt.Errorf("WakeFallback is %v: want 10ms to 1m", o.WakeFallback))
	}
	if o.NoExtend && o.JobTimeout > q.opts.Lease {
		errs = append(errs, fmt.Errorf("NoExtend with a JobTimeout of %v: longer than the lease of %v, which nobody extends", o.JobTimeout, q.opts.Lease))
	}
	if o.NoExtend && o.DrainTimeout > q.opts.Lease {
		errs = append(errs, fmt.Errorf("NoExtend with a DrainTimeout of %v: longer than the lease of %v, which nobody extends", o.DrainTimeout, q.opts.Lease))
	}
	errs = append(errs, lease.ValidateHolder(o.Holder))
	return errors.Join(errs...)
}

// validateKinds checks the timeouts and the batches of the kinds that a Mux has so far.
func (o *ConsumerOptions) validateKinds(q *Queue, h Handler) error {
	mux, ok := h.(*Mux)
	if !ok || mux == nil {
		return nil
	}
	var errs []error
	for _, kind := range mux.Kinds() {
		if r, _ := mux.route(kind); r.batch > o.Concurrency {
			errs = append(errs, fmt.Errorf("batches of %d jobs of kind %q with a Concurrency of %d: they are never full; want at least as much", r.batch, kind, o.Concurrency))
		}
		if !o.NoExtend {
			continue
		}
		if own := mux.timeoutFor(kind); own > q.opts.Lease {
			errs = append(errs, fmt.Errorf("NoExtend with a Timeout of %v for kind %q: longer than the lease of %v, which nobody extends", own, kind, q.opts.Lease))
		}
	}
	return errors.Join(errs...)
}

// Run claims and works on jobs until ctx ends, and goes on after any error of Redis. When ctx ends it claims nothing
// more, waits up to DrainTimeout for handlers and for the answer to a claim under way, then ends the handlers' contexts
// and gives them half a second; what has not returned is released, and its handler abandoned: whatever it returns later
// settles nothing. Run returns nil after a clean stop, and a [*DrainError] naming the jobs that Redis did not take the
// verdicts of; at the latest DrainTimeout + 3.5 s after ctx ended, and the time that the Redis client then needs to give
// up one call (its ReadTimeout; twice that, and up to its DialTimeout, where it has to connect first). Run may be called
// again after it returned.
func (c *Consumer) Run(ctx context.Context) error {
	if !c.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer c.running.Store(false)
	r, err := newRun(c)
	if err != nil {
		return err
	}
	c.current.Store(r)
	defer func() {
		c.current.Store(nil)
		r.end()
	}()
	return r.work(ctx)
}
