package reliable

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/leaseq/leaseq/lease"
)

// Types of the layer below that a queue's policy needs.
type (
	// Policy is what a queue publishes; unset fields of one that is pinned stay as they are.
	Policy = lease.Policy
	// PolicyState is what holds, with what is pinned, and who publishes what.
	PolicyState = lease.PolicyState
	// LongLeaseError says that a longer lease was Asked for than the queue allows at Most.
	LongLeaseError = lease.LongLeaseError
)

// NoLimit in a field of a [Policy] that is pinned takes the limit away: see [lease.NoLimit].
const NoLimit = lease.NoLimit

// Policy reads what holds for the queue's jobs: what was published last, but for what is pinned.
func (q *Queue) Policy(ctx context.Context) (PolicyState, error) { return q.store.PolicyState(ctx) }

// SetPolicy pins the fields that are set in p: they hold until UnsetPolicy, whatever deployments publish. Scripts follow at
// once, consumers within five seconds. changed says that something else held before. An error that is of the context, or of
// the way to Redis, may have left it pinned: it is safe to call again.
func (q *Queue) SetPolicy(ctx context.Context, p Policy) (changed bool, err error) {
	if err := q.register(ctx); err != nil {
		return false, err
	}
	return q.store.Pin(ctx, &p)
}

// UnsetPolicy unpins limits by their names, as "max_retries", or all where none is named: what deployments published last
// holds again. changed says that one was pinned. It is safe to call again.
func (q *Queue) UnsetPolicy(ctx context.Context, names ...string) (changed bool, err error) {
	return q.store.Unpin(ctx, names...)
}

// followEvery is how often a consumer, and who claims by hand, reads the policy for what no script keeps: the back-off of
// retries, and the longest run and lease.
const followEvery = 5 * time.Second

// A followed policy is the last one that was read.
type followed struct {
	mu     sync.Mutex
	policy lease.Policy
	at     time.Time
	told   string // of two that differ
}

func (q *Queue) followed() lease.Policy {
	q.following.mu.Lock()
	defer q.following.mu.Unlock()
	return q.following.policy
}

// follow reads the policy, and tells the log of deployments that publish different ones, each time that they differ in
// another way.
func (q *Queue) follow(ctx context.Context, store *lease.Store, log *slog.Logger) error {
	state, err := store.PolicyState(ctx)
	if err != nil {
		return fmt.Errorf("read the queue's policy: %w", err)
	}
	differ := state.Mismatch()
	q.following.mu.Lock()
	isNew := differ != q.following.told
	q.following.policy, q.following.at, q.following.told = state.Policy, time.Now(), differ
	q.following.mu.Unlock()
	if isNew && differ != "" {
		log.Warn("deployments that are live publish different policies, and the newest holds: give them the same options, or pin one (reaper policy set)", "queue", q.name, "differ", differ)
	}
	return nil
}

// followByHand is follow for claims by hand, where the last look is long ago. What cannot be read is as it was.
func (q *Queue) followByHand(ctx context.Context) {
	q.following.mu.Lock()
	due := time.Since(q.following.at) >= followEvery
	if due {
		q.following.at = time.Now() // others need not
	}
	q.following.mu.Unlock()
	if !due || !q.hand.enter() {
		return
	}
	defer q.hand.waiting.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(q.group.closing, cancel)() // Close does not wait for it
	_ = q.follow(ctx, q.store, q.opts.Logger)
}

// follow has a running consumer follow the policy until ctx ends. It was read once before the first claim.
func (r *run) follow(ctx context.Context) {
	timer := time.NewTicker(followEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if err := r.queue.follow(ctx, r.store, r.opts.Logger); err != nil && ctx.Err() == nil {
			r.failed("", err)
		}
	}
}

// retryBackoff is the queue's back-off as it holds now.
func (q *Queue) retryBackoff() Backoff {
	b, p := q.opts.Backoff, q.followed()
	if p.BackoffBase > 0 {
		b.Base = p.BackoffBase
	}
	if p.BackoffCap > 0 {
		b.Cap = p.BackoffCap
	}
	b.Base = min(b.Base, b.Cap)
	return b
}

// atMost is a time that a run may take, or the queue's limit of it if that is shorter.
func (q *Queue) atMost(timeout time.Duration) time.Duration {
	if most := q.followed().JobTimeout; most > 0 {
		return min(timeout, most)
	}
	return timeout
}

// checkLease refuses a lease that is longer than the queue allows.
func (q *Queue) checkLease(asked time.Duration) error {
	if most := q.followed().MaxLease; most > 0 && asked > most {
		return &LongLeaseError{Asked: asked, Most: most}
	}
	return nil
}
