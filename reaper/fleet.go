package reaper

import (
	"context"
	"sync"
	"time"

	"github.com/leaseq/leaseq/internal/pulse"
	"github.com/leaseq/leaseq/lease"
)

// A fleet is the sweepers of one Run, one for each queue.
type fleet struct {
	r        *Reaper
	ctx      context.Context // of all sweepers
	cancel   context.CancelFunc
	mu       sync.Mutex // for readers of sweeping beside Run
	sweeping map[string]*sweeping
	registry pulse.Pulse
	all      sync.WaitGroup
	fatal    chan error // holds the first error that ends Run
	link     *lease.Link
	troubles *troubles
}

// sweeping is one sweeper that runs.
type sweeping struct {
	store   *lease.Store
	sweeper *lease.Sweeper
	end     context.CancelFunc
	warned  bool // that it left the registry with jobs in processing
	sparing bool // the last call told of a grace; used by the sweeper's goroutine alone
}

func newFleet(ctx context.Context, r *Reaper) *fleet {
	f := &fleet{r: r, link: lease.NewLink(r.rdb), sweeping: map[string]*sweeping{}, fatal: make(chan error, 1), troubles: newTroubles(r.opts.Logger)}
	f.ctx, f.cancel = context.WithCancel(ctx)
	f.registry.Begin()
	return f
}

// stop ends all sweepers and waits for them.
func (f *fleet) stop() {
	f.cancel()
	f.all.Wait()
	_ = f.link.Close() // nothing of it is in use any more
}

// follow starts sweepers of queues that have none, and ends those of queues that are not named any more.
func (f *fleet) follow(ctx context.Context, names []string) {
	named := make(map[string]bool, len(names))
	for _, queue := range names {
		named[queue] = true
		if one := f.sweeping[queue]; one != nil {
			one.warned = false
		} else if err := f.start(queue); err != nil {
			f.failed(queue, err)
		}
	}
	for queue, one := range f.sweeping {
		if !named[queue] && f.mayEnd(ctx, queue, one) {
			one.end()
			f.mu.Lock()
			delete(f.sweeping, queue)
			f.mu.Unlock()
		}
	}
}

func (f *fleet) start(queue string) error {
	store, err := f.r.store(queue, f.link)
	if err != nil {
		return err
	}
	one := &sweeping{store: store}
	sweeper, err := lease.NewSweeper(store, &lease.SweeperOptions{
		Batch:   f.r.opts.Batch,
		OnSweep: func(e lease.Expired) { f.swept(queue, one, e) },
		OnError: func(err error) { f.failed(queue, err) },
	})
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(f.ctx)
	one.sweeper, one.end = sweeper, end
	f.mu.Lock()
	f.sweeping[queue] = one
	f.mu.Unlock()
	f.r.opts.Logger.Info("sweeping begins", "queue", queue)
	f.all.Go(func() {
		defer end()
		if err := sweeper.Run(ctx); err != nil {
			f.fail(err) // a sweeper that ended must not go unseen
		}
		f.r.closeStore(store)
		f.r.opts.Logger.Info("sweeping ended", "queue", queue)
	})
	return nil
}

// lookBound bounds the question whether a queue that left the registry still has leases.
const lookBound = 2 * time.Second

// mayEnd reports whether nothing is in processing. A registry can be deleted by mistake: leases that were given before
// are not left behind for that.
func (f *fleet) mayEnd(ctx context.Context, queue string, one *sweeping) bool {
	ctx, cancel := context.WithTimeout(ctx, lookBound)
	defer cancel()
	stats, err := one.store.Stats(ctx)
	if err != nil {
		f.failed(queue, err)
		return false
	}
	if stats.Processing == 0 {
		return true
	}
	if !one.warned {
		one.warned = true
		f.r.opts.Logger.Warn("a queue has left the registry and is swept on until its last lease has ended",
			"queue", queue, "processing", stats.Processing)
	}
	return false
}

func (f *fleet) swept(queue string, one *sweeping, e lease.Expired) {
	if e.Grace > 0 && !one.sparing {
		f.r.opts.Logger.Info("nobody had swept for a while: holders are spared first", "queue", queue, "grace", e.Grace)
	}
	one.sparing = e.Grace > 0
	f.r.tellSweep(queue, e)
}

// failed tells of an error; one that cannot be survived ends Run.
func (f *fleet) failed(queue string, err error) {
	if end := closed(err); end != nil {
		f.fail(end)
		return
	}
	if f.ctx.Err() != nil {
		return // we are stopping: a call that was given up is no news
	}
	f.troubles.note(queue, err)
	f.r.tellError(queue, err)
}

func (f *fleet) fail(err error) {
	select {
	case f.fatal <- err:
	default:
	}
}
