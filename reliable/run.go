package reliable

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leaseq/leaseq/idempotency"
	"github.com/leaseq/leaseq/internal/pulse"
	"github.com/leaseq/leaseq/internal/script"
	"github.com/leaseq/leaseq/internal/wire"
	"github.com/leaseq/leaseq/lease"
)

// A run is one Run of a Consumer: the parts that live as long as it does.
type run struct {
	*Consumer
	store   *lease.Store
	guard   *idempotency.Guard // for the effects of jobs
	keeper  *lease.Keeper
	sweeper *lease.Sweeper
	waiter  *lease.Waiter

	jobs     chan *work // to the workers; never blocks, since only free slots are claimed for
	finished inbox
	aside    sync.WaitGroup // wake-ups being passed on

	suspect chan struct{} // the queue's policy may be gone

	nextLimit atomic.Int64  // the first time that a job timeout may be reached, in ns of this process' clock
	sooner    chan struct{} // it has become an earlier one

	claims pulse.Pulse
	late   latecomers
	slots  atomic.Int64 // free ones, as last known
	ending atomic.Bool  // nothing more is claimed
	quiet  pulse.Quiet
	over   context.Context // ends when Run returns
	end    context.CancelFunc

	share *share          // of slots that several queues have together; nil: they are this run's
	turns <-chan struct{} // slots may be free for it; nil likewise
	waits atomic.Bool     // for a slot that others have

	dispatcher
}

func newRun(c *Consumer) (*run, error) {
	r := &run{Consumer: c, jobs: make(chan *work, c.opts.Concurrency+c.opts.Prefetch), suspect: make(chan struct{}, 1), sooner: make(chan struct{}, 1)}
	r.nextLimit.Store(math.MaxInt64)
	r.finished.notify = make(chan struct{}, 1)
	r.claims.Begin()
	r.over, r.end = context.WithCancel(context.Background())
	var err error
	r.store, err = lease.NewStore(c.queue.rdb, c.queue.name, &lease.StoreOptions{
		Prefix: c.queue.opts.Prefix, Holder: c.opts.Holder, Stub: wire.Stub(), OnRepeat: r.repeated,
	})
	if err != nil {
		return nil, err
	}
	if r.guard, err = newEffectGuard(c.queue, c.opts.Holder, c.opts.Logger); err != nil {
		return nil, err
	}
	store := r.store
	r.keeper, err = lease.NewKeeper(store, &lease.KeeperOptions{NoExtend: c.opts.NoExtend, Logger: c.opts.Logger})
	if err != nil {
		return nil, err
	}
	r.sweeper, err = lease.NewSweeper(store, &lease.SweeperOptions{Logger: c.opts.Logger, OnError: func(err error) { r.failed("", err) }})
	return r, err
}

// work runs everything until the dispatcher has nothing left, and ends it in the order in which it depends on each
// other.
func (r *run) work(ctx context.Context) error {
	if !r.introduce(ctx) {
		r.closeStore(lastSeal)
		return nil
	}
	var err error
	if r.waiter, err = lease.NewWaiter(r.store, r.opts.WakeFallback, r.opts.Logger); err != nil {
		r.closeStore(lastSeal)
		return err
	}
	background, stop := context.WithCancel(context.Background())
	var loops sync.WaitGroup
	loops.Go(func() { _ = r.keeper.Run(background) }) // always nil
	loops.Go(func() { r.remind(background) })
	loops.Go(func() { r.follow(background) })
	if !r.opts.NoSweep {
		loops.Go(func() { _ = r.sweeper.Run(background) }) // always nil
	}
	for range r.staff() {
		go r.worker()
	}
	err = r.dispatch(ctx)
	close(r.jobs)
	stop()
	loops.Go(r.waiter.Close)
	patience := lastSeal
	if err != nil {
		patience = 0 // the time is over
	}
	r.closeStore(patience) // while those end: with a silent Redis each of them waits for a call of its own
	loops.Wait()
	r.aside.Wait()
	return err
}

// introduce registers the queue and publishes its policy, however long that takes; false means that ctx ended first.
func (r *run) introduce(ctx context.Context) bool {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := r.store.Register(ctx)
		if err == nil || errors.Is(err, ErrOutOfMemory) { // work goes on when memory is full; others can register
			if _, err = r.store.Publish(ctx, r.queue.opts.policy()); err == nil {
				err = r.queue.follow(ctx, r.store, r.opts.Logger)
			}
		}
		if err == nil {
			return ctx.Err() == nil
		}
		if ctx.Err() != nil {
			return false
		}
		r.claims.Failed(err)
		r.failed("", err)
		if script.Sleep(ctx, wait) != nil {
			return false
		}
	}
}

// remindEvery is how often a running consumer sees to it that its queue is still known: a FLUSHALL, or a failover that
// lost writes, may have taken its name and its policy. It does so at once where a claim tells of another lease than the
// one before: without a policy leases have the built-in length.
const remindEvery = time.Minute

func (r *run) remind(ctx context.Context) {
	timer := time.NewTicker(remindEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-r.suspect:
		}
		if overdue := r.late.report(r.opts.Concurrency); overdue != nil {
			r.opts.Logger.Warn("handlers do not heed their job timeout", "queue", r.queue.name, "error", overdue, "slots", len(overdue.Handlers))
		}
		if err := r.remindOnce(ctx); err != nil && ctx.Err() == nil {
			r.failed("", err)
		}
	}
}

func (r *run) remindOnce(ctx context.Context) error {
	_, err := r.store.Restore(ctx, r.queue.opts.policy())
	return errors.Join(r.store.Register(ctx), err)
}

// lastSeal is how long a run waits at its end for the outcome of a claim that had no answer.
const lastSeal = time.Second

func (r *run) closeStore(patience time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	guard := make(chan error, 1)
	go func() { guard <- r.guard.Close(ctx) }()
	if err := errors.Join(r.store.Close(ctx), <-guard); err != nil {
		r.opts.Logger.Warn("sessions were not closed, and will be trimmed", "queue", r.queue.name, "error", err)
	}
}

// passOn gives a wake-up to another process. It is tried for a second at most: Run waits for its end.
func (r *run) passOn() {
	r.aside.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), min(r.opts.WakeFallback, lease.DefaultFallback))
		defer cancel()
		if err := r.store.Wake(ctx); err != nil {
			r.failed("", err)
		}
	})
}

// failed reports an error of ours: to the hook each time, to the log not too often where it is about no one job.
func (r *run) failed(id string, err error) {
	log := r.opts.Logger
	if id == "" {
		switch muted, ok := r.quiet.Loud(); {
		case !ok:
			log = slog.New(slog.DiscardHandler)
		case muted > 0:
			log = log.With("muted_failures", muted)
		}
	}
	emit(context.Background(), log, r.opts.Hooks, eventError, Event{Queue: r.queue.name, ID: id, Err: err})
}

// repeated is told of each try of a call that had no answer.
func (r *run) repeated(op string, err error) {
	if op == "claim" {
		r.claims.Failed(err)
	}
	r.failed("", fmt.Errorf("%s is repeated: %w", op, err))
}

// inbox is where workers leave what they have finished.
type inbox struct {
	mu     sync.Mutex
	list   []*work
	wanted int // how many must have come together before the dispatcher is told
	notify chan struct{}
	share  *share // whose slots are free with what is finished
}

func (in *inbox) put(w *work) {
	in.mu.Lock()
	in.list = append(in.list, w)
	tell := len(in.list) >= in.wanted || w.silent
	in.mu.Unlock()
	in.share.finish()
	if !tell {
		return
	}
	select {
	case in.notify <- struct{}{}:
	default:
	}
}

// takeAll takes what has come together, and wants to be told of whatever comes next; what was taken before is given back,
// for its room.
func (in *inbox) takeAll(before []*work) []*work {
	clear(before)
	in.mu.Lock()
	defer in.mu.Unlock()
	list := in.list
	in.list, in.wanted = before[:0], 0
	return list
}

// want says how many must have come together before the dispatcher is told; false means that they have.
func (in *inbox) want(n int) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.wanted = n
	return len(in.list) < n
}
