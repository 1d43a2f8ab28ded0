package reliable

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/idempotency"
	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/wire"
	"github.com/leaseq/leaseq/lease"
)

// Defaults and bounds of a queue's limits.
const (
	DefaultLease        = lease.DefaultLease
	DefaultMaxRetries   = 20
	DefaultMaxExpiries  = 5
	DefaultPayloadLimit = 512 << 10
	DefaultMaxDelay     = 7 * 24 * time.Hour

	minLease        = 20 * time.Millisecond
	maxLease        = 24 * time.Hour
	maxLimit        = 1_000_000
	maxPayloadLimit = 256 << 20
)

// QueueOptions are what belongs to a queue; nil is valid, and zero values mean the documented defaults. Whoever works
// on the queue publishes them (a Consumer at its start, a Queue at its first Claim by hand), and every sweeper follows
// what was published last, whatever its own options are. A process that only enqueues publishes nothing.
type QueueOptions struct {
	// Prefix of all Redis keys: 1–128 of A-Z a-z 0-9 . _ : / -. Default "leaseq".
	Prefix string
	// Codec of typed payloads. Default JSON.
	Codec Codec
	// Lease is how long a job is held without a renewal: 20 ms to 24 h. Default 15 s.
	Lease time.Duration
	// MaxRetries is how many failures a job survives: with n it is started up to n + 1 times. Default 20; 0 is sayable.
	MaxRetries *int
	// MaxExpiries is how many leases that ran out a job survives, as those of workers that were killed. Default 5; 0 is
	// sayable.
	MaxExpiries *int
	// Backoff before a job that failed is due again. Default: from 1 s, doubled up to 5 min, with full jitter.
	Backoff Backoff
	// ExpiryBackoff before a job whose lease ran out is due again, doubled up to its Cap, without jitter. Default: none,
	// it is due at once.
	ExpiryBackoff Backoff
	// PayloadLimit in bytes, 1 to 256 MiB, checked before anything is sent, and again by what is published. Default 512 KiB.
	PayloadLimit int
	// MaxDelay is how far ahead a due time may be asked for, at an enqueue or a reschedule: 1 ms to 100 years; exactly as
	// far is allowed. More is a [*DelayTooLongError]. Retries are not bounded by it. Default 7 days.
	MaxDelay time.Duration
	// MaxLength is how many jobs may be in due and processing together, 0 to 1,000,000,000; an enqueue of more is refused
	// ([ErrQueueFull]). Retries, redrives and imports ignore it. Default: no limit; 0 is sayable, and refuses every job.
	MaxLength *int
	// HeaderLimit is how large the headers of a job may be, names and values together: 0 to [MaxHeaders] bytes. Default
	// MaxHeaders.
	HeaderLimit *int
	// JobTimeout is how long one run of a job may take at most, 1 ms to a year: a consumer whose own timeout, or that of a
	// kind, is longer uses this one. Default: no limit.
	JobTimeout time.Duration
	// MaxLease is the longest lease that a claim or an extend by hand may ask for, Lease to 24 h. Default: 24 h.
	MaxLease time.Duration
	// DeadKeep is how many dead jobs are kept, the newest, 0 to 1,000,000,000, and DeadAge for how long, 1 s to 100 years.
	// Every five seconds sweepers forget what is more or older: record, counts and errors, counted as `trimmed`, and for good.
	// Default: all are kept for ever, so that somebody has to look after them.
	DeadKeep *int
	DeadAge  time.Duration
	// DoneAge is for how long the ID of an acked job is taken, and its result kept, counted from the ack by Redis' clock: up to
	// 100 years, in whole milliseconds. It is refused as a duplicate in [Done] a millisecond before that time is over, and free
	// when it is. Nothing else of the job is kept. It should be longer than any producer repeats an enqueue. Sweepers forget
	// what has run out, counted as `forgotten`. Default: 0, nothing is kept, and the ID is free at once; what was kept before
	// runs out.
	DoneAge time.Duration
	// DoneKeep is how many of these are kept, the newest, 0 to 1,000,000,000: those that go for it are free before their time.
	// Default: all.
	DoneKeep *int
	// Concurrency is how many jobs may be in processing at once, of all processes together, those that are prefetched
	// included: 1 to 1,000,000,000. A claim gives no more, and says so in Held; whatever frees a place wakes a waiter. A job whose
	// worker was killed keeps its place until its lease runs out. Default: no limit.
	Concurrency int
	// Rate is how many jobs may be started in each RatePer, by all processes together, spread evenly: at a moment as many
	// as 100 ms make up, and one at least; 1 to 1,000,000. A claim gives no more, and says so in Held. A claim counts as a start, also
	// where the job is given back unstarted, as by a shutdown. Default: no limit.
	Rate int
	// RatePer is 1 ms to 24 h. Default 1 s.
	RatePer time.Duration
	// Effects are the settings of what jobs do once: see [Job.Once].
	Effects EffectOptions
	// Logger for what goes on in the background. Default: none.
	Logger *slog.Logger
}

// A Queue enqueues, claims by hand and looks after jobs. It is safe for concurrent use.
type Queue struct {
	name      string
	rdb       redis.UniversalClient
	opts      QueueOptions
	partition *keys.Partition
	store     *lease.Store
	guard     *idempotency.Guard // for effects of jobs that are claimed by hand

	registry registration
	group    *group
	hand     handClaims

	following followed
}

// New checks its arguments and does no I/O. rdb is never closed by us. A client whose ReadTimeout is switched off is
// refused, since that bounds how long a dead connection is waited for.
func New(rdb redis.UniversalClient, name string, o *QueueOptions) (*Queue, error) {
	opts, err := queueOptions(o)
	if err != nil {
		return nil, fmt.Errorf("reliable.New(%q): %w", name, err)
	}
	store, err := lease.NewStore(rdb, name, &lease.StoreOptions{Prefix: opts.Prefix, Stub: wire.Stub()})
	if err != nil {
		return nil, fmt.Errorf("reliable.New: %w", err)
	}
	partition, err := keys.New(opts.Prefix, name, 0)
	if err != nil {
		return nil, fmt.Errorf("reliable.New: %w", err)
	}
	q := &Queue{
		name: name, rdb: rdb, opts: opts, partition: partition, store: store,
		group: newGroup(store), hand: handClaims{closing: make(chan struct{})},
	}
	if q.guard, err = newEffectGuard(q, "", opts.Logger); err != nil {
		return nil, fmt.Errorf("reliable.New(%q): %w", name, err)
	}
	return q, nil
}

func queueOptions(o *QueueOptions) (QueueOptions, error) {
	var opts QueueOptions
	if o != nil {
		opts = *o
	}
	if opts.Prefix == "" {
		opts.Prefix = keys.DefaultPrefix
	}
	if opts.Codec == nil {
		opts.Codec = JSON
	}
	if opts.Lease == 0 {
		opts.Lease = DefaultLease
	}
	if opts.PayloadLimit == 0 {
		opts.PayloadLimit = DefaultPayloadLimit
	}
	opts.MaxRetries = intOr(opts.MaxRetries, DefaultMaxRetries)
	opts.MaxExpiries = intOr(opts.MaxExpiries, DefaultMaxExpiries)
	opts.Logger = loggerOr(opts.Logger)
	err := opts.validate()
	opts.Backoff = opts.Backoff.withDefaults()
	return opts, err
}

func intOr(n *int, otherwise int) *int {
	if n != nil {
		otherwise = *n
	}
	return &otherwise
}

func (o *QueueOptions) validate() error {
	var errs []error
	if o.Lease < minLease || o.Lease > maxLease {
		errs = append(errs, fmt.Errorf("Lease is %v: want %v to %v", o.Lease, minLease, maxLease))
	}
	errs = append(errs, checkLimit("MaxRetries", o.MaxRetries), checkLimit("MaxExpiries", o.MaxExpiries))
	if o.PayloadLimit < 1 || o.PayloadLimit > maxPayloadLimit {
		errs = append(errs, fmt.Errorf("PayloadLimit is %d: want 1 to %d bytes", o.PayloadLimit, maxPayloadLimit))
	}
	errs = append(errs, o.Backoff.validate(), o.validateLimits())
	if o.ExpiryBackoff != (Backoff{}) {
		if err := o.ExpiryBackoff.validate(); err != nil {
			errs = append(errs, fmt.Errorf("ExpiryBackoff: %w", err))
		}
	}
	return errors.Join(errs...)
}

func checkLimit(name string, n *int) error {
	if n != nil && (*n < 0 || *n > maxLimit) {
		return fmt.Errorf("%s is %d: want 0 to %d", name, *n, maxLimit)
	}
	return nil
}

// Name returns the queue's name.
func (q *Queue) Name() string { return q.name }

// Close ends what the Queue does in the background: it stops extending jobs that were claimed by hand, and ends their
// contexts with cause [ErrClosed] (their leases run out unless they were settled), ends claims that wait, waits for
// calls whose outcome is unknown, until ctx ends, and closes its sessions in Redis. When ctx ends first its error is
// returned, as soon as the Redis client has given up the calls under way; what was unknown then stays so. A Consumer of
// the queue is not ended by it. The Redis client stays open.
func (q *Queue) Close(ctx context.Context) error {
	var hand sync.WaitGroup
	hand.Go(q.hand.close)
	q.group.close()
	var guardErr error
	hand.Go(func() { guardErr = q.guard.Close(ctx) })
	err := q.store.Close(ctx)
	q.group.await()
	hand.Wait()
	return errors.Join(err, guardErr)
}

// handClaims is what claims by hand need in the background, made at the first of them.
type handClaims struct {
	closing   chan struct{} // closed by close
	mu        sync.Mutex    // never held while waiting
	closed    bool
	published bool
	keeper    *lease.Keeper
	waiter    *lease.Waiter
	stop      context.CancelFunc
	ended     chan struct{}
	waiting   sync.WaitGroup // claims that wait
}

func (h *handClaims) close() {
	h.mu.Lock()
	if !h.closed {
		h.closed = true
		close(h.closing)
	}
	waiter, stop, ended := h.waiter, h.stop, h.ended
	h.mu.Unlock()
	if stop != nil {
		stop()
	}
	if waiter != nil {
		waiter.Close()
	}
	if ended != nil {
		<-ended
	}
	h.waiting.Wait()
}

// enter counts something that close waits for, and which says with waiting.Done that it is over; false: it is too late.
func (h *handClaims) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.waiting.Add(1)
	}
	return !h.closed
}

// keeperFor starts the Keeper at the first claim.
func (h *handClaims) keeperFor(q *Queue) (*lease.Keeper, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, lease.ErrClosed
	}
	if h.keeper == nil {
		keeper, err := lease.NewKeeper(q.store, &lease.KeeperOptions{Logger: q.opts.Logger})
		if err != nil {
			return nil, err
		}
		ctx, stop := context.WithCancel(context.Background())
		h.keeper, h.stop, h.ended = keeper, stop, make(chan struct{})
		go func() {
			defer close(h.ended)
			_ = keeper.Run(ctx) // always nil
		}()
	}
	return h.keeper, nil
}

// waiterFor starts the Waiter at the first claim that waits, and counts the claim, which says with waiting.Done that it
// is over.
func (h *handClaims) waiterFor(q *Queue) (*lease.Waiter, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, lease.ErrClosed
	}
	if h.waiter == nil {
		waiter, err := lease.NewWaiter(q.store, 0, q.opts.Logger)
		if err != nil {
			return nil, err
		}
		h.waiter = waiter
	}
	h.waiting.Add(1)
	return h.waiter, nil
}

// publish publishes the queue's policy, once.
func (h *handClaims) publish(ctx context.Context, q *Queue) error {
	h.mu.Lock()
	done, closed := h.published, h.closed
	h.mu.Unlock()
	switch {
	case closed:
		return lease.ErrClosed
	case done:
		return nil
	}
	if err := q.register(ctx); err != nil {
		return err
	}
	if _, err := q.store.Publish(ctx, q.opts.policy()); err != nil {
		return err
	}
	h.mu.Lock()
	h.published = true
	h.mu.Unlock()
	return nil
}
