package lease

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/leaseq/leaseq/internal/callback"
	"github.com/leaseq/leaseq/internal/pulse"
	"github.com/leaseq/leaseq/internal/script"
)

// SweeperOptions are the optional settings of a Sweeper; nil is valid.
type SweeperOptions struct {
	Batch   int           // leases ended by one call; default 256, at most 1,000
	Logger  *slog.Logger  // default: none
	OnSweep func(Expired) // called after each call that moved something or told of a grace; must not block
	OnError func(error)   // called after each failed call, never together with OnSweep; must not block
}

// A Sweeper puts jobs whose leases ran out back, forgets old sessions, and needs no leader: any number run side by
// side. It keeps no state that a restart could lose.
type Sweeper struct {
	store     *Store
	opts      SweeperOptions
	trimEvery time.Duration
	keepEvery time.Duration
	pulse     pulse.Pulse
	quiet     pulse.Quiet
}

// Health reports whether sweeps work, by what came of the last ones: nil, or an error that says for how long and why
// not. It is right again by itself. Before the first answer of a Run it waits for that until ctx ends; it asks Redis
// nothing.
func (w *Sweeper) Health(ctx context.Context) error { return w.pulse.Check(ctx, maxPause+silentAfter) }

// silentAfter is how much longer than it should a loop may take until it counts as silent.
const silentAfter = 3 * time.Second

// NewSweeper checks its options and starts nothing: Run does.
func NewSweeper(store *Store, o *SweeperOptions) (*Sweeper, error) {
	w := &Sweeper{store: store, trimEvery: trimEvery, keepEvery: keepEvery}
	w.pulse.Begin()
	if o != nil {
		w.opts = *o
	}
	if w.opts.Batch == 0 {
		w.opts.Batch = DefaultBatch
	}
	if w.opts.Batch < 1 || w.opts.Batch > MaxBatch {
		return nil, fmt.Errorf("sweeper: a batch of %d: want 1 to %d", w.opts.Batch, MaxBatch)
	}
	w.opts.Logger = callback.Logger(w.opts.Logger)
	return w, nil
}

// Run sweeps until ctx ends, and returns nil when no call of its own is under way any more. It sleeps until the next
// lease runs out or the outage grace ends, at most a quarter of a lease and a second, drains full batches without a
// pause, and goes on after any error. Every five seconds it forgets dead and done jobs that the policy does not keep (see Retain). A call that waits for its answer for a quarter of a lease, at most a second, gets
// company on a connection of the Store's own: it may have gone into a dead one, and expire is safe to run twice.
func (w *Sweeper) Run(ctx context.Context) error {
	var calls sync.WaitGroup
	defer calls.Wait()
	answers, outstanding := make(chan sweepAnswer, maxOutstanding), 0
	pages, cursor := make(chan trimAnswer, 1), "0"
	kept := make(chan keepAnswer, 1)
	length := DefaultLease
	w.pulse.Begin()
	timer, trims, keeps := time.NewTimer(0), time.NewTimer(w.trimEvery), time.NewTimer(w.keepEvery)
	defer timer.Stop()
	defer keeps.Stop()
	defer trims.Stop()
	for {
		select {
		case <-ctx.Done():
			for ; outstanding > 0; outstanding-- { // what they moved is told too
				w.digest(ctx, <-answers, length)
			}
			return nil
		case <-timer.C:
			if outstanding < maxOutstanding {
				alone := outstanding == 0
				outstanding++
				calls.Go(func() { answers <- w.expire(ctx, alone) })
			}
			timer.Reset(min(max(length/4, 50*time.Millisecond), maxPause))
		case got := <-answers:
			outstanding--
			if got.err == nil {
				length = got.Lease
			}
			timer.Reset(w.digest(ctx, got, length))
		case <-trims.C:
			from := cursor
			calls.Go(func() { pages <- w.trim(ctx, from) })
		case page := <-pages:
			cursor = w.turned(ctx, page)
			trims.Reset(w.trimEvery)
		case <-keeps.C:
			calls.Go(func() { kept <- w.keep(ctx) })
		case got := <-kept:
			keeps.Reset(w.kept(ctx, got))
		}
	}
}

type sweepAnswer struct {
	Expired
	err error
}

func (w *Sweeper) expire(ctx context.Context, alone bool) sweepAnswer {
	if !alone {
		got, err := w.store.expireAside(ctx, w.opts.Batch)
		return sweepAnswer{got, err}
	}
	got, err := w.store.Expire(ctx, w.opts.Batch, false)
	return sweepAnswer{got, err}
}

// digest tells of an answer, and returns for how long the sweeper may sleep.
func (w *Sweeper) digest(ctx context.Context, got sweepAnswer, length time.Duration) time.Duration {
	if got.err == nil {
		w.pulse.Worked()
		w.tell(got.Expired)
		return pause(&got.Expired)
	}
	if ctx.Err() == nil {
		w.pulse.Failed(got.err)
		w.failed(got.err)
	}
	return retryGap(length)
}

// trimEvery is how often one page of the sessions is looked through.
const trimEvery = 10 * time.Second

// maxPause bounds a sweeper's sleep where leases are long: a shorter lease may be published meanwhile, and a sleep of
// more than half of that would begin a grace.
const maxPause = time.Second

// pause is how long a sweeper may sleep after an answer.
func pause(got *Expired) time.Duration {
	if got.More && got.Grace == 0 {
		return 0
	}
	wait := min(got.Lease/4, maxPause)
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
		callback.Run("OnSweep", func() { w.opts.OnSweep(got) })
	}
}

func (w *Sweeper) failed(err error) {
	if muted, ok := w.quiet.Loud(); ok {
		w.opts.Logger.Warn("a sweep failed, and is repeated", "queue", w.store.Queue(), "error", err, "muted_failures", muted)
	}
	if w.opts.OnError != nil {
		callback.Run("OnError", func() { w.opts.OnError(err) })
	}
}

type trimAnswer struct {
	next    string
	removed int64
	err     error
}

func (w *Sweeper) trim(ctx context.Context, cursor string) (page trimAnswer) {
	page.next, page.removed, page.err = w.store.TrimSessions(ctx, cursor)
	return page
}

// turned tells of a page of sessions that was looked through, and returns where to go on.
func (w *Sweeper) turned(ctx context.Context, page trimAnswer) (cursor string) {
	if page.err != nil {
		if ctx.Err() == nil {
			w.failed(page.err)
		}
		return "0"
	}
	if page.removed > 0 {
		w.opts.Logger.Info("forgot unused sessions", "queue", w.store.Queue(), "sessions", page.removed)
	}
	return page.next
}

// Sweep is one bounded pass, for cron and tests: it drains what has run out, in batches, until nothing is left that
// has, or it has ended max leases (0: any number). With noGrace the outage grace is neither read nor begun; without it,
// a pass that finds a grace waits for its end, at most about four leases, and sweeps then. At last it forgets the dead and
// done jobs that the policy does not keep.
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
			return sum, w.keepAll(ctx)
		}
	}
}
