package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leaseq/leaseq/internal/callback"
	"github.com/leaseq/leaseq/internal/lazyctx"
	"github.com/leaseq/leaseq/internal/pulse"
)

// KeeperOptions are the optional settings of a Keeper; nil is valid.
type KeeperOptions struct {
	Batch    int           // leases extended by one call; default 256, at most 1,000
	NoExtend bool          // only watch the local deadlines: nothing is extended
	Length   time.Duration // asked for at each extend; default the published lease
	Logger   *slog.Logger  // default: none
	OnBeat   func(Beat)    // called after each extend call, by several goroutines at once; must not block
}

// A Beat is one extend call of a Keeper.
type Beat struct {
	Held, Extended, Lost int
	Err                  error
}

// A Keeper keeps what a process holds of one partition, waiting in a buffer or being worked on: it extends all leases
// in batches every third of a lease, and cancels the context of a job whose lease is gone, with cause [ErrLost], at
// the latest at the local deadline, even if Redis is silent. It is safe for concurrent use.
type Keeper struct {
	store *Store
	opts  KeeperOptions

	mu      sync.Mutex
	held    map[*Hold]struct{}
	length  time.Duration // of a lease, as last told
	beatAt  time.Time     // when the next beat is due; zero: nothing is held
	watchAt time.Time     // when the next deadline passes; zero: nothing is held
	ended   bool          // Run has returned
	kick    chan struct{} // the beat's timer must be set anew
	look    chan struct{} // the watch's timer must be set anew
	calls   sync.WaitGroup
	pulse   pulse.Pulse
	quiet   pulse.Quiet
	failing atomic.Int64 // batches whose last try failed

	// One try: on connections of our own, so that no beat waits for a claim; beside one without an answer, on the user's;
	// and beside both, on fresh ones of our own.
	extend, company, again func(ctx context.Context, length time.Duration, held []Held) (Extended, error)
}

// A Hold is one lease that a Keeper looks after.
type Hold struct {
	keeper *Keeper
	held   Held
	ctx    lazyctx.Context

	renewing bool // in a batch without an answer yet; under the Keeper's lock

	mu       sync.Mutex
	deadline time.Time
	attached *Attached
	state    HoldState
	stopped  bool // not extended any more
	done     bool // settled, or about to be: what an extend says of it now means nothing
}

// HoldState says how a lease stands, as far as this process knows.
type HoldState int

const (
	HoldCurrent   HoldState = iota // held
	HoldLost                       // Redis said that it is lost
	HoldOverdue                    // the local deadline passed without a word from Redis
	HoldCancelled                  // the job was cancelled
)

// NewKeeper checks its options and starts nothing: Run does.
func NewKeeper(store *Store, o *KeeperOptions) (*Keeper, error) {
	k := &Keeper{store: store, held: map[*Hold]struct{}{}, kick: make(chan struct{}, 1), look: make(chan struct{}, 1)}
	if o != nil {
		k.opts = *o
	}
	if k.opts.Batch == 0 {
		k.opts.Batch = DefaultBatch
	}
	if k.opts.Batch < 1 || k.opts.Batch > MaxBatch {
		return nil, &BatchError{What: "Keeper batch", Size: k.opts.Batch}
	}
	k.opts.Logger = callback.Logger(k.opts.Logger)
	k.extend, k.company, k.again = store.ExtendOnce, store.extendShared, store.extendAgain
	return k, nil
}

// Hold begins to look after a lease, until Done, or until the lease is known to be over. The context that it returns
// through Context ends with the lease; it carries the values of parent, and not its end. After the Keeper's Run it has
// ended already, with cause [ErrClosed].
func (k *Keeper) Hold(parent context.Context, l *Lease) *Hold {
	h := &Hold{keeper: k, held: Held{ID: l.ID, Token: l.Token}, deadline: l.Deadline}
	h.ctx.Begin(parent)
	sent := l.Deadline.Add(-l.Length) // when the claim was sent
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended {
		h.ctx.Cancel(ErrClosed)
		return h
	}
	k.held[h] = struct{}{}
	if k.length == 0 || l.Length < k.length {
		k.length = l.Length
	}
	if beat := sent.Add(l.Length / 3); k.beatAt.IsZero() || beat.Before(k.beatAt) {
		k.beatAt = beat
		nudge(k.kick)
	}
	if k.watchAt.IsZero() || l.Deadline.Before(k.watchAt) {
		k.watchAt = l.Deadline
		nudge(k.look)
	}
	return h
}

// Ended is the Hold of a job that nobody holds: its context has ended, and it is neither extended nor watched.
func (k *Keeper) Ended(parent context.Context, l *Lease) *Hold {
	h := &Hold{keeper: k, held: Held{ID: l.ID}, state: HoldLost, done: true}
	h.ctx.Begin(parent)
	h.ctx.Cancel(context.Canceled)
	return h
}

func nudge(signal chan struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}

// drop forgets leases that are over: nothing is left to be done for them.
func (k *Keeper) drop(over []*Hold) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range over {
		delete(k.held, h)
	}
}

// Health reports whether leases can be extended, by what came of the last beats: nil, or an error that says for how long
// and why not. It is nil where nothing is held.
func (k *Keeper) Health() error {
	if k.Holding() == 0 {
		return nil
	}
	return k.pulse.Check(context.Background(), 0)
}

// Holding is how many leases are looked after. Those that are over do not count.
func (k *Keeper) Holding() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.held)
}

// Context ends when the lease does (cause [ErrLost] or [ErrCancelled]), or with Cancel or Done.
func (h *Hold) Context() context.Context { return &h.ctx }

// A LimitedContext is a context that ends with a lease, at a time, or with Cancel. What a context costs is spent only if
// somebody waits for its end; Cause tells its cause, or nil, for less than [context.Cause].
type LimitedContext = lazyctx.Context

// Limit begins a context that ends as Context does, or at a time, with a cause: for a handler whose time is limited.
func (h *Hold) Limit(ctx *LimitedContext, at time.Time, reason error) {
	ctx.BeginUntil(&h.ctx, at, reason)
}

// Deadline is until when the lease is held at least, on this process' monotonic clock.
func (h *Hold) Deadline() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.deadline
}

// State tells how the lease stands.
func (h *Hold) State() HoldState {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state
}

// Startable reports whether work may begin under the lease: it is held, and its deadline has not passed.
func (h *Hold) Startable() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state == HoldCurrent && time.Until(h.deadline) > 0
}

// Cancel ends the job's context with a cause; the lease is still looked after.
func (h *Hold) Cancel(cause error) { h.ctx.Cancel(cause) }

// StopExtending lets the lease run out.
func (h *Hold) StopExtending() {
	h.mu.Lock()
	h.stopped = true
	h.mu.Unlock()
}

// Extending reports whether the lease is one that the Keeper renews: not after StopExtending, nor with NoExtend.
func (h *Hold) Extending() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.stopped && !h.keeper.opts.NoExtend
}

// Done ends looking after the lease, and the job's context: the caller settles it, or has.
func (h *Hold) Done() {
	k := h.keeper
	k.mu.Lock()
	delete(k.held, h)
	k.mu.Unlock()
	h.mu.Lock()
	h.done = true
	h.mu.Unlock()
	h.ctx.Cancel(context.Canceled)
}

// Extended notes that the lease was extended by somebody else than the keeper, as by a handler.
func (h *Hold) Extended(deadline time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if deadline.After(h.deadline) {
		h.deadline = deadline
	}
}

// Attach has every beat from now on carry a record on the lease, in place of the one before; nil ends that. It is checked
// here, and an error leaves what was attached before. The keeper takes a copy. A beat that is under way may still carry
// what was attached when it was sent, and may run late: what that does to a record depends on its owner.
func (h *Hold) Attach(a *Attached) error {
	if a != nil {
		if err := a.check(h.keeper.store); err != nil {
			return fmt.Errorf("job %s: %w", h.held.ID, err)
		}
		if size := a.Size(); size > maxBeatRecord {
			return &TooLargeError{What: "a record that rides on the keeper's beats", Size: size, Limit: maxBeatRecord}
		}
	}
	a = a.clone()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.attached = a
	return nil
}

// maxBeatRecord is how many bytes of fields a beat carries of one record: what 1,000 of them have stays below MaxBytes.
const maxBeatRecord = MaxBytes / MaxBatch

// Held names the lease, with what is attached to it at the moment: what an Extend by hand takes.
func (h *Hold) Held() Held {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.held
	one.Attached = h.attached
	return one
}

// answer notes what an extend said of this lease.
func (h *Hold) answer(err error, deadline time.Time) (lost bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.done:
		return false
	case err == nil:
		if deadline.After(h.deadline) {
			h.deadline = deadline
		}
		return false
	case h.state != HoldCurrent:
		return false
	case errors.Is(err, ErrCancelled):
		h.state = HoldCancelled
		h.ctx.Cancel(ErrCancelled)
	default:
		h.state = HoldLost
		h.ctx.Cancel(ErrLost)
	}
	return true
}

// due ends the hold's context if its local deadline has passed.
func (h *Hold) due(now time.Time) (next time.Time, over bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state != HoldCurrent {
		return time.Time{}, false
	}
	if now.Before(h.deadline) {
		return h.deadline, false
	}
	h.state = HoldOverdue
	h.ctx.Cancel(ErrLost)
	return time.Time{}, true
}
