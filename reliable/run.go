package reliable

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/leaseq/leaseq/internal/script"
	"github.com/leaseq/leaseq/lease"
)

// A run is one Run of a Consumer: the parts that live as long as it does.
type run struct {
	*Consumer
	store   *lease.Store
	keeper  *lease.Keeper
	sweeper *lease.Sweeper
	waiter  *lease.Waiter

	jobs     chan *work // to the workers; never blocks, since only free slots are claimed for
	finished inbox
	aside    sync.WaitGroup // wake-ups being passed on

	dispatcher
}

func newRun(c *Consumer, store *lease.Store) (*run, error) {
	r := &run{Consumer: c, store: store, jobs: make(chan *work, c.opts.Concurrency)}
	r.finished.notify = make(chan struct{}, 1)
	var err error
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
	defer r.closeStore()
	if !r.introduce(ctx) {
		return nil
	}
	var err error
	if r.waiter, err = lease.NewWaiter(r.store, r.opts.WakeFallback, r.opts.Logger); err != nil {
		return err
	}
	background, stop := context.WithCancel(context.Background())
	var loops sync.WaitGroup
	loops.Go(func() { _ = r.keeper.Run(background) }) // always nil
	if !r.opts.NoSweep {
		loops.Go(func() { _ = r.sweeper.Run(background) }) // always nil
	}
	for range r.opts.Concurrency {
		go r.worker()
	}
	err = r.dispatch(ctx)
	close(r.jobs)
	r.waiter.Close()
	r.aside.Wait()
	stop()
	loops.Wait()
	return err
}

// introduce registers the queue and publishes its policy, however long that takes; false means that ctx ended first.
func (r *run) introduce(ctx context.Context) bool {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := r.store.Register(ctx)
		if err == nil || errors.Is(err, ErrOutOfMemory) { // work goes on when memory is full; others can register
			_, err = r.store.Publish(ctx, r.queue.opts.policy())
		}
		if err == nil {
			return ctx.Err() == nil
		}
		if ctx.Err() != nil {
			return false
		}
		r.failed("", err)
		if script.Sleep(ctx, wait) != nil {
			return false
		}
	}
}

func (r *run) closeStore() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := r.store.Close(ctx); err != nil {
		r.opts.Logger.Warn("sessions were not closed, and will be trimmed", "queue", r.queue.name, "error", err)
	}
}

// passOn gives a wake-up to another process.
func (r *run) passOn() {
	r.aside.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), r.opts.WakeFallback)
		defer cancel()
		if err := r.store.Wake(ctx); err != nil {
			r.failed("", err)
		}
	})
}

// failed reports an error of ours.
func (r *run) failed(id string, err error) {
	emit(context.Background(), r.opts.Logger, r.opts.Hooks, eventError, Event{Queue: r.queue.name, ID: id, Err: err})
}

// inbox is where workers leave what they have finished.
type inbox struct {
	mu     sync.Mutex
	list   []*work
	notify chan struct{}
}

func (in *inbox) put(w *work) {
	in.mu.Lock()
	in.list = append(in.list, w)
	in.mu.Unlock()
	select {
	case in.notify <- struct{}{}:
	default:
	}
}

func (in *inbox) takeAll() []*work {
	in.mu.Lock()
	defer in.mu.Unlock()
	list := in.list
	in.list = nil
	return list
}
