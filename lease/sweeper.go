package lease

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/leaseq/leaseq/internal/script"
)

// SweeperOptions are the optional settings of a Sweeper; nil is valid.
type SweeperOptions struct {
	Batch   int           // leases ended by one call; default 256, at most 1,000
	Logger  *slog.Logger  // default: none
	OnSweep func(Expired) // called after each call that moved something or told of a grace; must not block
	OnError func(error)   // called after each failed call; must not block
}

// A Sweeper puts jobs whose leases ran out back, forgets old sessions, and needs no leader: any number run side by
// side. It keeps no state that a restart could lose.
type Sweeper struct {
	store *Store
	opts  SweeperOptions
}

// NewSweeper checks its options and starts nothing: Run does.
func NewSweeper(store *Store, o *SweeperOptions) (*Sweeper, error) {
	w := &Sweeper{store: store}
	if o != nil {
		w.opts = *o
	}
	if w.opts.Batch == 0 {
		w.opts.Batch = DefaultBatch
	}
	if w.opts.Batch < 1 || w.opts.Batch > MaxBatch {
		return nil, fmt.Errorf("sweeper: a batch of %d: want 1 to %d", w.opts.Batch, MaxBatch)
	}
	if w.opts.Logger == nil {
		w.opts.Logger = slog.New(slog.DiscardHandler)
	}
	return w, nil
}

// Run sweeps until ctx ends, and returns nil. It sleeps until the next lease runs out or the outage grace ends, at most
// a quarter of a lease, drains full batches without a pause, and goes on after any error.
func (w *Sweeper) Run(ctx context.Context) error {
	trimAt, cursor := time.Now().Add(trimEvery), "0"
	length := DefaultLease
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		got, err := w.store.Expire(ctx, w.opts.Batch, false)
		wait := retryGap(length)
		if err == nil {
			length = got.Lease
			w.tell(got)
			wait = pause(&got)
		} else if ctx.Err() == nil {
			w.failed(err)
		}
		if err == nil && wait > 0 && !time.Now().Before(trimAt) {
			cursor = w.trim(ctx, cursor)
			trimAt = time.Now().Add(trimEvery)
		}
		timer.Reset(wait)
	}
}

// trimEvery is how often one page of the sessions is looked through.
const trimEvery = 10 * time.Second

// pause is how long a sweeper may sleep after an answer.
func pause(got *Expired) time.Duration {
	if got.More && got.Grace == 0 {
		return 0
	}
	wait := got.Lease / 4
	if got.Grace > 0 {
		return min(wait, got.Grace)
	}
	if got.NextExpiry >= 0 {
		wait = min(wait, got.NextExpiry)
	}
	return max(wait, time.Millisecond)
}

func (w *Sweeper) tell(got Expired) {
	if got.Missing > 0 {
		w.opts.Logger.Error("leases without a record were put into dead", "queue", w.store.Queue(), "jobs", got.Missing)
	}
	if w.opts.OnSweep != nil && (got.Moved() > 0 || got.Grace > 0) {
		w.opts.OnSweep(got)
	}
}

func (w *Sweeper) failed(err error) {
	w.opts.Logger.Warn("a sweep failed, and is repeated", "queue", w.store.Queue(), "error", err)
	if w.opts.OnError != nil {
		w.opts.OnError(err)
	}
}

func (w *Sweeper) trim(ctx context.Context, cursor string) string {
	next, removed, err := w.store.TrimSessions(ctx, cursor)
	if err != nil {
		if ctx.Err() == nil {
			w.failed(err)
		}
		return "0"
	}
	if removed > 0 {
		w.opts.Logger.Info("forgot unused sessions", "queue", w.store.Queue(), "sessions", removed)
	}
	return next
}

// Sweep is one bounded pass, for cron and tests: it drains what has run out now, in batches, at most max leases (0: as
// many as had run out when it began). With noGrace the outage grace is neither read nor begun; without it, a pass that
// finds a grace waits for its end, at most about four leases, and sweeps then.
func (w *Sweeper) Sweep(ctx context.Context, max int, noGrace bool) (Expired, error) {
	var sum Expired
	for {
		batch := w.opts.Batch
		if max > 0 {
			batch = min(batch, max-sum.Moved())
		}
		got, err := w.store.Expire(ctx, batch, noGrace)
		if err != nil {
			return sum, err
		}
		w.tell(got)
		sum.ToDue += got.ToDue
		sum.ToDead += got.ToDead
		sum.Cancelled += got.Cancelled
		sum.Missing += got.Missing
		sum.More, sum.NextExpiry, sum.Grace, sum.Lease = got.More, got.NextExpiry, got.Grace, got.Lease
		switch {
		case got.Grace > 0:
			if err := script.Sleep(ctx, min(got.Grace, got.Lease/4)); err != nil {
				return sum, err
			}
		case !got.More || max > 0 && sum.Moved() >= max:
			return sum, nil
		}
	}
}
