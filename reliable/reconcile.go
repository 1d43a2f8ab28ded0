package reliable

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/leaseq/leaseq/lease"
)

// Defaults and bounds of a Reconcile.
const (
	DefaultReconcileInterval = time.Minute
	DefaultReconcileRate     = 1000

	minReconcileInterval = 10 * time.Millisecond
	maxReconcileRate     = 1_000_000
)

// A Source gives what should be scheduled, as far as the ledger beside Redis knows, one item at a time: as orders that
// still wait for their payment. It is called once a pass. Every item has an ID that follows from what it is about
// ("close:10086"), the same as the producer's: that makes the scan safe beside producers, consumers and other scans.
//
// An error ends the pass; what came before it is enqueued. A source ends early when ctx does, or when yield answers false,
// and gives back what it holds then. Since it waits while a batch is sent, read a database in pages rather than with one
// cursor that stays open.
type Source func(ctx context.Context) iter.Seq2[Item, error]

// ReconcileOptions are the optional settings of a Reconcile; nil is valid.
type ReconcileOptions struct {
	// Interval from the end of a pass of Run to the start of the next, varied by up to a tenth, so that several do not keep
	// step: 10 ms or more. Default 1 min.
	Interval time.Duration
	// Rate is how many items a second are sent at most, averaged over batches: 1 to 1,000,000. Default 1,000.
	Rate int
	// Batch is how many items go in one call: 1 to 256. Default 256.
	Batch int
	// OnPass is told of each pass of Run when it is over. It must not block for long: the next pass waits for it.
	OnPass func(pass Pass, err error)
	// Logger of passes that failed. Default: none.
	Logger *slog.Logger
}

// A Reconcile is the compensation scan: it enqueues what should be scheduled and is not, since Redis may have lost it, or
// the producer died between its commit and its enqueue. IDs decide: what is in any place of the queue is left alone.
// So several may run at once, beside producers and consumers, and each job that is made is counted by exactly one.
//
// It cannot know what happened between the source's answer and the enqueue: a job that was acked in between is made again,
// and runs again. So the handler re-checks the business (is the order still unpaid?), as it must for any second run, and
// the job then ends without an effect. Let the source give only what is overdue by more than the usual delay of the queue, and it
// finds next to nothing in normal times.
//
// A job in [Dead] is there, and is left alone: that is for a person, or a redrive.
type Reconcile struct {
	q       *Queue
	source  Source
	opts    ReconcileOptions
	running atomic.Bool
}

// NewReconcile checks its arguments and does no I/O.
func NewReconcile(q *Queue, source Source, o *ReconcileOptions) (*Reconcile, error) {
	var opts ReconcileOptions
	if o != nil {
		opts = *o
	}
	if opts.Interval == 0 {
		opts.Interval = DefaultReconcileInterval
	}
	if opts.Rate == 0 {
		opts.Rate = DefaultReconcileRate
	}
	if opts.Batch == 0 {
		opts.Batch = lease.DefaultBatch
	}
	opts.Logger = loggerOr(opts.Logger)
	var errs []error
	if q == nil {
		errs = append(errs, errors.New("Queue is nil"))
	}
	if source == nil {
		errs = append(errs, errors.New("Source is nil"))
	}
	if opts.Interval < minReconcileInterval {
		errs = append(errs, fmt.Errorf("Interval is %v: want %v or more", opts.Interval, minReconcileInterval))
	}
	if opts.Rate < 1 || opts.Rate > maxReconcileRate {
		errs = append(errs, fmt.Errorf("Rate is %d: want 1 to %d items a second", opts.Rate, maxReconcileRate))
	}
	if opts.Batch < 1 || opts.Batch > lease.DefaultBatch {
		errs = append(errs, fmt.Errorf("Batch is %d: want 1 to %d items", opts.Batch, lease.DefaultBatch))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("reliable.NewReconcile: %w", err)
	}
	return &Reconcile{q: q, source: source, opts: opts}, nil
}

// Run makes a pass at once and then one every Interval, until ctx ends, and returns nil then. A pass that fails is logged
// and told to OnPass, and the next one tries again. [ErrRunning] says that it runs already, and [ErrClosed] that the Queue
// was closed.
func (r *Reconcile) Run(ctx context.Context) error {
	if !r.running.CompareAndSwap(false, true) {
		return fmt.Errorf("the Reconcile: %w", ErrRunning)
	}
	defer r.running.Store(false)
	for ctx.Err() == nil {
		pass, err := r.Pass(ctx)
		if err != nil && ctx.Err() == nil {
			r.opts.Logger.Warn("a compensation scan failed; the next one tries again", "queue", r.q.name, "pass", pass, "error", err)
		}
		if r.opts.OnPass != nil {
			r.opts.OnPass(pass, err)
		}
		if errors.Is(err, ErrClosed) {
			return err
		}
		tenth := r.opts.Interval / 10
		pause(ctx, r.opts.Interval-tenth+rand.N(2*tenth+1))
	}
	return nil
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
