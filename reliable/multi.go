package reliable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leaseq/leaseq/lease"
)

const (
	maxShares = 64
	maxWeight = 1000
)

// A Share is one queue of a MultiConsumer.
type Share struct {
	Queue   *Queue
	Handler Handler
	// Weight is this queue's part of the starts while all of them have work: 1 to 1,000. Default 1. With Strict there are
	// no weights.
	Weight int
}

// MultiOptions are the optional settings of a MultiConsumer; nil is valid, and zero values mean the documented defaults.
type MultiOptions struct {
	// Strict has a queue's jobs claimed only while the queues before it have nothing due. A queue that has waited for a
	// second, and has seen ten jobs of those before it begin, gets a slot for one job all the same. Default: by weight.
	Strict bool
	// Consumer is what holds for every queue. Its Concurrency is that of all queues together; a Prefetch is refused.
	Consumer ConsumerOptions
}

// A MultiConsumer claims jobs of several queues, which share its slots, and runs a Handler for each job. Run starts and
// stops it.
//
// By weight: while all queues have work, jobs begin in proportion to the weights. What a queue does not need the others
// have at once; nobody saves anything up. In strict order (MultiOptions.Strict) the first queue that has work has all the
// slots that become free, but for what keeps the others from starving.
//
// Every queue has all else to itself, as with a Consumer of its own: connections, leases, sweeps, wake-ups, limits. One that
// is paused, held back by a limit, or whose Redis does not answer takes no slots from the others; those of a claim that
// has had no answer for a second or so are theirs. Should the answer come after all, jobs for which there is no slot any
// more are released, uncounted.
type MultiConsumer struct {
	consumers []*Consumer // one for each Share, in their order
	weights   []int
	strict    bool
	running   atomic.Bool
}

// NewMultiConsumer checks its arguments and does no I/O: 1 to 64 shares, each with a queue of its own. The queues may be
// of different clients; what NewConsumer asks of a queue, a Handler and options holds for each. The error names everything
// that is wrong.
func NewMultiConsumer(shares []Share, o *MultiOptions) (*MultiConsumer, error) {
	var opts MultiOptions
	if o != nil {
		opts = *o
	}
	m := &MultiConsumer{strict: opts.Strict}
	var errs []error
	if len(shares) < 1 || len(shares) > maxShares {
		errs = append(errs, fmt.Errorf("%d shares: want 1 to %d", len(shares), maxShares))
	}
	if opts.Consumer.Prefetch != 0 {
		errs = append(errs, fmt.Errorf("Consumer.Prefetch is %d: want 0: what waits would have been taken from the slots of other queues", opts.Consumer.Prefetch))
		opts.Consumer.Prefetch = 0
	}
	for i, s := range shares {
		if err := m.add(shares[:i], s, &opts); err != nil {
			errs = append(errs, fmt.Errorf("share %d: %w", i, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("reliable.NewMultiConsumer: %w", err)
	}
	return m, nil
}

// add checks a share, also beside those before it, and adds its consumer.
func (m *MultiConsumer) add(before []Share, s Share, o *MultiOptions) error {
	if s.Queue == nil {
		return errors.New("the Queue is nil: want one made by New")
	}
	var errs []error
	if i := slices.IndexFunc(before, func(other Share) bool { return sameQueue(s.Queue, other.Queue) }); i >= 0 {
		errs = append(errs, fmt.Errorf("it is the queue of share %d: want each once", i))
	}
	if o.Strict && s.Weight != 0 {
		errs = append(errs, fmt.Errorf("Weight is %d with Strict: want none, the order of the shares is what counts", s.Weight))
	}
	if !o.Strict && (s.Weight < 0 || s.Weight > maxWeight) {
		errs = append(errs, fmt.Errorf("Weight is %d: want 1 to %d", s.Weight, maxWeight))
	}
	c, err := newConsumer(s.Queue, s.Handler, &o.Consumer)
	if err := errors.Join(append(errs, err)...); err != nil {
		return fmt.Errorf("queue %q: %w", s.Queue.name, err)
	}
	m.consumers = append(m.consumers, c)
	m.weights = append(m.weights, cmp.Or(s.Weight, 1))
	return nil
}

// sameQueue reports whether two are known to be one: the same object, or of one name and prefix and one client.
func sameQueue(a, b *Queue) bool {
	if a == b || b == nil {
		return a == b
	}
	if lease.CanWait(a.rdb) != nil { // and need not be comparable
		return false
	}
	return a.name == b.name && a.opts.Prefix == b.opts.Prefix && a.rdb == b.rdb
}

// Run claims and works on jobs until ctx ends, as [Consumer.Run] does for one queue: the same times hold for all queues
// side by side. It returns nil after a clean stop, and a [*DrainError] naming the jobs of all queues that Redis did not take
// the verdicts of. Run may be called again after it returned.
func (m *MultiConsumer) Run(ctx context.Context) error {
	if !m.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer m.running.Store(false)
	runs, err := m.newRuns()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ticking, stop := context.WithCancel(context.Background())
	var all, ticks sync.WaitGroup
	ticks.Go(func() { runs[0].share.slots.run(ticking) })
	failed := make([]error, len(runs))
	for i, r := range runs {
		r.current.Store(r)
		all.Go(func() {
			defer r.end()
			defer r.current.Store(nil)
			if failed[i] = r.work(ctx); failed[i] != nil {
				cancel() // unless it has ended
			}
		})
	}
	all.Wait()
	stop()
	ticks.Wait()
	return m.joinDrains(failed)
}

// newRuns makes a run for each queue, with a part in the slots that they share.
func (m *MultiConsumer) newRuns() ([]*run, error) {
	slots := newAllotter(m.strict, m.consumers[0].opts.Concurrency, m.weights)
	runs := make([]*run, 0, len(m.consumers))
	for i, c := range m.consumers {
		r, err := newRun(c)
		if err != nil {
			for _, r := range runs {
				r.end()
			}
			return nil, err
		}
		of := slots.sharers[i]
		r.share = &share{slots: slots, of: of, rests: true}
		r.finished.share, r.turns = r.share, of.tell
		runs = append(runs, r)
	}
	return runs, nil
}

// run ticks until ctx ends.
func (a *allotter) run(ctx context.Context) {
	ticker := time.NewTicker(time.Second / ticksPerSecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			a.tick()
		}
	}
}

// joinDrains makes one error of those of the queues.
func (m *MultiConsumer) joinDrains(failed []error) error {
	var all DrainError
	var causes, others []error
	for i, err := range failed {
		name := m.consumers[i].queue.name
		drain := (*DrainError)(nil)
		switch {
		case err == nil:
		case errors.As(err, &drain):
			all.IDs = append(all.IDs, drain.IDs...)
			all.Queues = append(all.Queues, slices.Repeat([]string{name}, len(drain.IDs))...)
			causes = append(causes, fmt.Errorf("queue %s, %d jobs: %w", name, len(drain.IDs), drain.Cause))
		default:
			others = append(others, fmt.Errorf("queue %s: %w", name, err))
		}
	}
	if len(causes) > 0 {
		all.Cause = errors.Join(causes...)
		others = append(others, &all)
	}
	if len(others) == 1 {
		return others[0]
	}
	return errors.Join(others...)
}

// Health reports whether all queues can be worked on: nil, or every reason why not, joined, each with its queue's name. It
// is [Consumer.Health] for each, side by side; a queue that waits for a slot is healthy. Handlers that are overdue are
// told of once for all queues: the slots of the [*OverdueError] are shared.
func (m *MultiConsumer) Health(ctx context.Context) error {
	if !m.running.Load() {
		return ErrNotRunning
	}
	errs := m.HealthEach(ctx)
	overdue := (*OverdueError)(nil)
	for _, c := range m.consumers {
		if r := c.current.Load(); r != nil {
			overdue = overdue.with(r.late.report(c.opts.Concurrency))
		}
	}
	if overdue != nil {
		overdue.Free = max(m.consumers[0].opts.Concurrency-len(overdue.Handlers), 0)
		errs = append(errs, overdue)
	}
	return errors.Join(errs...)
}

// HealthEach is Health for each queue by itself, in the order of the shares and without overdue handlers: nil for one that
// can be worked on.
func (m *MultiConsumer) HealthEach(ctx context.Context) []error {
	errs := make([]error, len(m.consumers))
	var all sync.WaitGroup
	for i, c := range m.consumers {
		all.Go(func() {
			errs[i] = c.health(ctx, func(*run) error { return nil })
			if errors.Is(errs[i], ErrNotRunning) {
				errs[i] = fmt.Errorf("queue %s: %w", c.queue.name, errs[i])
			}
		})
	}
	all.Wait()
	return errs
}

// with joins the handlers of two.
func (e *OverdueError) with(other *OverdueError) *OverdueError {
	if e == nil || other == nil {
		return cmp.Or(e, other)
	}
	e.Handlers = append(e.Handlers, other.Handlers...)
	slices.SortFunc(e.Handlers, func(a, b OverdueHandler) int { return cmp.Compare(b.RunTime, a.RunTime) })
	return e
}
