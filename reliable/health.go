package reliable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leaseq/leaseq/internal/pulse"
	"github.com/leaseq/leaseq/lease"
)

// ErrNotRunning says that a Consumer is not running, or claims nothing more since it is stopping.
var ErrNotRunning = lease.ErrNotRunning

// Health reports whether the consumer can do its work: nil, or every reason why not, joined. It goes by what came of its
// last claims, sweeps and heartbeats, not by a ping: a server that answers pings and refuses claims is not healthy. It is
// right again by itself. Before the first answers after a start it waits for them until ctx or Run ends, unless something is
// known to fail; it asks Redis nothing.
//
// The reasons: [ErrNotRunning], before Run, after it, and while it stops. A claim, a sweep or a heartbeat whose last try
// failed, with how long that has been so and its error; none that worked for a few seconds although it was due.
// [*OverdueError] where handlers are still running after their job timeout: what is fit for alarms may be too much for a
// probe that restarts the process, which can leave it out with errors.As where OverdueError.Free is not 0.
func (c *Consumer) Health(ctx context.Context) error {
	return c.health(ctx, (*run).overdueError)
}

// overdueError is nil where no handler is overdue.
func (r *run) overdueError() error {
	if overdue := r.late.report(r.opts.Concurrency); overdue != nil {
		return overdue
	}
	return nil
}

func (c *Consumer) health(ctx context.Context, overdue func(*run) error) error {
	r := c.current.Load()
	if r == nil {
		return ErrNotRunning
	}
	if r.ending.Load() {
		return fmt.Errorf("%w: it is stopping", ErrNotRunning)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.over, cancel)()
	now, instant := context.WithCancel(ctx)
	instant()
	errs := r.loopsHealth(now, now, pulse.Failing)
	if len(errs) == 0 { // nothing is known to fail: what is not known yet is waited for
		errs = r.loopsHealth(ctx, now, func(err error) error { return err })
	}
	if r.over.Err() != nil {
		return ErrNotRunning
	}
	if err := errors.Join(append(errs, overdue(r))...); err != nil {
		return fmt.Errorf("queue %s: %w", r.queue.name, err)
	}
	return nil
}

// loopsHealth asks each loop, waiting until ctx ends, or with now once there is a reason. keep says what of their errors
// counts.
func (r *run) loopsHealth(ctx, now context.Context, keep func(error) error) (errs []error) {
	note := func(what string, err error) {
		if err = keep(err); err != nil {
			errs, ctx = append(errs, fmt.Errorf("%s: %w", what, err)), now
		}
	}
	if r.waits.Load() { // no claim is due, also where there was none yet
		note("claims", pulse.Failing(r.claims.Check(now, 0)))
	} else {
		note("claims", r.claims.Check(ctx, r.mostBetweenClaims()))
	}
	if !r.opts.NoSweep {
		note("sweeps", r.sweeper.Health(ctx))
	}
	if !r.opts.NoExtend {
		note("heartbeats", r.keeper.Health())
	}
	return errs
}

// silentAfter is how much longer than it should a loop may take until it counts as silent.
const silentAfter = 3 * time.Second

// mostBetweenClaims is how far apart claims may be: while all slots are taken there are none.
func (r *run) mostBetweenClaims() time.Duration {
	if r.slots.Load() == 0 {
		return 0
	}
	return r.opts.WakeFallback + lateWake + silentAfter
}

// An OverdueHandler is one that is still running though its job's time is over and its context has ended.
type OverdueHandler struct {
	ID, Kind string
	Attempt  int
	RunTime  time.Duration
}

// An OverdueError says that handlers do not heed the end of their contexts. Each holds a slot until it returns; its lease
// is not extended any more, so that its job runs elsewhere.
type OverdueError struct {
	Handlers []OverdueHandler // the longest running first
	Free     int              // slots that no such handler holds
}

func (e *OverdueError) Error() string {
	shown := make([]string, 0, 3)
	for _, h := range e.Handlers[:min(len(e.Handlers), cap(shown))] {
		shown = append(shown, fmt.Sprintf("%s %s, attempt %d, running for %v", h.Kind, h.ID, h.Attempt, h.RunTime.Round(time.Millisecond)))
	}
	if len(e.Handlers) > len(shown) {
		shown = append(shown, "…")
	}
	return fmt.Sprintf("%d of %d slots are held by handlers whose job timeout is over (%s)",
		len(e.Handlers), len(e.Handlers)+e.Free, strings.Join(shown, "; "))
}

// latecomers are the handlers that are overdue.
type latecomers struct {
	mu  sync.Mutex
	all map[*work]struct{}
}

func (l *latecomers) add(w *work) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[*work]struct{}{}
	}
	l.all[w] = struct{}{}
}

func (l *latecomers) remove(w *work) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, w)
}

// report is nil where nobody is late.
func (l *latecomers) report(slots int) *OverdueError {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) == 0 {
		return nil
	}
	e := &OverdueError{Free: max(slots-len(l.all), 0)}
	for w := range l.all {
		e.Handlers = append(e.Handlers, OverdueHandler{ID: w.job.ID, Kind: w.job.Kind, Attempt: w.job.Attempt, RunTime: w.running()})
	}
	slices.SortFunc(e.Handlers, func(a, b OverdueHandler) int { return cmp.Compare(b.RunTime, a.RunTime) })
	return e
}
