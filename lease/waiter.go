package lease

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/internal/callback"
	"github.com/leaseq/leaseq/internal/script"
)

// DefaultFallback is how long a process waits for a wake-up before it looks by itself.
const DefaultFallback = time.Second

// A Waiter waits for jobs to become claimable, on a connection of its own: a blocking read must never take one from
// the pool that heartbeats use. Any number of goroutines may wait on C; each takes what it receives as its duty to
// claim, or to pass it on with Store.Wake.
type Waiter struct {
	store    *Store
	client   redis.UniversalClient
	fallback time.Duration
	logger   *slog.Logger

	c         chan bool
	arm       chan struct{}
	closing   context.Context
	close     context.CancelFunc
	ended     chan struct{}
	begin     sync.Once // run
	once      sync.Once // the closing
	listeners atomic.Int64
}

// CanWait reports whether a blocking connection can be made for a client: a *redis.Client (made by NewClient or
// NewFailoverClient) or a *redis.ClusterClient.
func CanWait(rdb redis.UniversalClient) error {
	switch rdb.(type) {
	case *redis.Client, *redis.ClusterClient:
		return nil
	}
	return fmt.Errorf("a blocking connection cannot be made from a %T: pass a *redis.Client (NewClient, NewFailoverClient) or a *redis.ClusterClient", rdb)
}

// NewWaiter checks its arguments; the first Listen starts the one goroutine of a Waiter, which Close ends. fallback is a
// millisecond or more; 0 is one second.
func NewWaiter(store *Store, fallback time.Duration, logger *slog.Logger) (*Waiter, error) {
	if err := CanWait(store.rdb); err != nil {
		return nil, err
	}
	if fallback == 0 {
		fallback = DefaultFallback
	}
	if fallback < time.Millisecond { // Redis takes 0 for without end
		return nil, fmt.Errorf("waiter: a fallback of %v: want a millisecond or more", fallback)
	}
	w := &Waiter{
		store: store, client: blocking(store.runner.Link(), fallback), fallback: fallback, logger: callback.Logger(logger),
		c: make(chan bool), arm: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	w.closing, w.close = context.WithCancel(context.Background())
	return w, nil
}

// blocking makes a client with one connection.
func blocking(link *Link, fallback time.Duration) redis.UniversalClient {
	return link.OwnClient(1, func(t *script.Tuning) {
		t.ReadTimeout = fallback + 2*time.Second // an idle server lets BLPOP end up to 100 ms late
	})
}

// C gives true for a wake-up that this process took, and false when the fallback passed without one, or the waiting
// failed. A connection that is dead without a word gives nothing until about two seconds after the fallback: whoever
// must not wait so long has a timer too. Listen first.
func (w *Waiter) C() <-chan bool { return w.c }

// Listen says that the caller is going to receive from C, until it calls the function returned: a wake-up that comes
// when nobody listens any more is passed on.
func (w *Waiter) Listen() (leave func()) {
	w.listeners.Add(1)
	w.begin.Do(func() { go w.run() })
	return func() {
		if w.listeners.Add(-1) > 0 {
			w.Arm() // the value that the leaver took may have been the only one that was armed for
		}
	}
}

// Arm begins to wait, unless it is waiting already; each value on C needs a new Arm. Without a listener it does nothing.
func (w *Waiter) Arm() { nudge(w.arm) }

// Close closes the blocking connection first, passes on a wake-up that had just been taken, and waits for the end.
func (w *Waiter) Close() {
	w.once.Do(func() {
		w.close()
		_ = w.client.Close()
	})
	w.begin.Do(func() { close(w.ended) }) // nobody has ever listened
	<-w.ended
}

func (w *Waiter) run() {
	defer close(w.ended)
	failures := 0
	for {
		select {
		case <-w.closing.Done():
			return
		case <-w.arm:
		}
		if w.listeners.Load() == 0 {
			continue // who armed has left: a wake-up would be taken from others for nothing
		}
		took, err := w.pop()
		switch {
		case err != nil && w.closing.Err() != nil:
			return
		case err != nil:
			failures++
			w.logger.Warn("waiting for jobs failed, and is repeated", "queue", w.store.Queue(), "error", err)
			if !w.rest(failures) {
				return
			}
		default:
			failures = 0
		}
		if !w.deliver(took) {
			return
		}
	}
}

// pop waits for one element. The command is raw, since the typed one rounds its timeout to seconds.
func (w *Waiter) pop() (took bool, err error) {
	key := w.store.keys.Key("wake")
	cmd := redis.NewCmd(w.closing, "blpop", key, fmt.Sprintf("%.3f", w.fallback.Seconds()))
	cmd.SetFirstKeyPos(1)
	err = w.client.Process(w.closing, cmd)
	if err == redis.Nil {
		return false, nil
	}
	script.Reload(w.client, err)
	return err == nil, err
}

// rest is the growing pause after errors, up to the fallback: after it a listener looks by itself.
func (w *Waiter) rest(failures int) bool {
	wait := min(10*time.Millisecond<<min(failures, 10), w.fallback)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-w.closing.Done():
		return false
	case <-timer.C:
		return true
	}
}

// deliver hands the outcome to a listener; a wake-up that nobody takes is passed on.
func (w *Waiter) deliver(took bool) (goOn bool) {
	patience := time.NewTicker(20 * time.Millisecond)
	defer patience.Stop()
	for {
		select {
		case w.c <- took:
			return true
		case <-w.closing.Done():
			w.passOn(took)
			return false
		case <-patience.C:
			if w.listeners.Load() == 0 {
				w.passOn(took)
				return true
			}
		}
	}
}

func (w *Waiter) passOn(took bool) {
	if !took {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(w.fallback, DefaultFallback))
	defer cancel()
	if err := w.store.Wake(ctx); err != nil {
		w.logger.Warn("a wake-up could not be passed on", "queue", w.store.Queue(), "error", err)
	}
}
