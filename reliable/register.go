package reliable

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/internal/script"
	"github.com/leaseq/leaseq/lease"
)

// A registration is what a process knows of its queue's name in the registry.
type registration struct {
	at      atomic.Int64 // when it was written last, in ns of this process' clock; 0: not yet
	mu      sync.Mutex
	current *registering // nil: nobody is at it
}

// registering is one attempt that all callers share.
type registering struct {
	done chan struct{}
	err  error
}

// register writes the queue's name into the registry: before anything else of this process, and in the background again
// where that was long ago, since a FLUSHALL or `reaper queue delete` may have taken it. It is repeated until it is answered
// or refused, as every other call is, for as long as the Queue is open; a caller waits no longer than its ctx.
func (q *Queue) register(ctx context.Context) error {
	if at := q.registry.at.Load(); at != 0 {
		q.refresh(at)
		return nil
	}
	attempt, ok := q.joinRegistering()
	if !ok {
		return lease.ErrClosed
	}
	select {
	case <-attempt.done:
		return attempt.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (q *Queue) joinRegistering() (attempt *registering, ok bool) {
	q.registry.mu.Lock()
	defer q.registry.mu.Unlock()
	if q.registry.current != nil {
		return q.registry.current, true
	}
	attempt = &registering{done: make(chan struct{})}
	ok = q.group.spawn(func() {
		attempt.err = q.registerNow(q.group.closing)
		q.registry.mu.Lock()
		q.registry.current = nil
		q.registry.mu.Unlock()
		close(attempt.done)
	})
	if ok {
		q.registry.current = attempt
	}
	return attempt, ok
}

func (q *Queue) registerNow(ctx context.Context) error {
	for wait := 4 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := q.store.Register(ctx)
		if err == nil {
			q.registry.at.Store(int64(time.Since(processStart)))
			return nil
		}
		var refused *ServerError
		if errors.As(err, &refused) || errors.Is(err, redis.ErrClosed) {
			return err
		}
		if script.Sleep(ctx, wait) != nil {
			return lease.ErrClosed
		}
	}
}

// refresh writes the name again once a minute.
func (q *Queue) refresh(at int64) {
	now := int64(time.Since(processStart))
	if now-at > int64(remindEvery) && q.registry.at.CompareAndSwap(at, now) {
		q.group.spawn(func() {
			ctx, cancel := context.WithTimeout(q.group.closing, time.Second)
			defer cancel()
			_ = q.store.Register(ctx) // in vain: tried again in a minute
		})
	}
}
