package reaper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/internal/callback"
	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/wire"
	"github.com/leaseq/leaseq/lease"
)

// DefaultRefresh is how often the registry of queues is read again.
const DefaultRefresh = 5 * time.Second

// Options are the optional settings of a Reaper; nil is valid.
type Options struct {
	// Prefix is that of all keys, and of the registry. Default: "leaseq".
	Prefix string

	// Queues are the queues to look after. Default, nil: all that are in the registry, where every queue is put when it
	// is first used. An empty list that is not nil is refused, since nothing would be done.
	Queues []string

	// RefreshEvery is how often the registry is read again, so how late a new queue may be swept for the first time.
	// Default: 5 s. It is refused beside Queues, where the registry is not read.
	RefreshEvery time.Duration

	// Batch is how many leases one call ends at most, 1 to 1,000. Default: 256. A full batch is followed by the next at
	// once.
	Batch int

	// Logger gets what happens. Default: nothing is logged.
	Logger *slog.Logger

	// OnSweep is called after each call that ended leases, or found that holders are being spared after a gap between
	// sweeps (Grace). It comes from one goroutine per queue, so from several at once, and must not block. A panic of it
	// ends the process, and so does runtime.Goexit (as FailNow of a test does): never does one end a sweeper in silence.
	OnSweep func(queue string, e lease.Expired)

	// OnError is called after each failed call; queue is "" where the registry could not be read. As OnSweep otherwise.
	// Every failed call is repeated.
	OnError func(queue string, err error)
}

// A Reaper sweeps queues. It holds nothing between calls, and is safe for concurrent use.
type Reaper struct {
	rdb     redis.UniversalClient
	opts    Options
	current atomic.Pointer[fleet] // nil: Run is not under way
}

// New checks its arguments, reports every problem in one error, and does no I/O. rdb stays the caller's: it must be
// open for as long as the Reaper works, and is not closed here.
func New(rdb redis.UniversalClient, o *Options) (*Reaper, error) {
	r := &Reaper{rdb: rdb}
	if o != nil {
		r.opts = *o
		r.opts.Queues = slices.Clone(o.Queues)
	}
	errs := r.opts.check()
	errs = append(errs, lease.ValidateClient(rdb))
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("reaper: %w", err)
	}
	return r, nil
}

// check fills in the defaults and returns every problem.
func (o *Options) check() []error {
	var errs []error
	if o.Prefix == "" {
		o.Prefix = keys.DefaultPrefix
	}
	errs = append(errs, keys.ValidateName("prefix", o.Prefix))
	if o.Queues != nil && len(o.Queues) == 0 {
		errs = append(errs, errors.New("Queues is empty but not nil: name at least one queue, or leave it nil for all in the registry"))
	}
	for i, queue := range o.Queues {
		errs = append(errs, keys.ValidateName("queue name", queue))
		if slices.Contains(o.Queues[:i], queue) {
			errs = append(errs, fmt.Errorf("queue %q is named twice: name each queue once", queue))
		}
	}
	switch {
	case o.RefreshEvery < 0:
		errs = append(errs, fmt.Errorf("RefreshEvery %v: want more than 0, or 0 for %v", o.RefreshEvery, DefaultRefresh))
	case o.RefreshEvery > 0 && o.Queues != nil:
		errs = append(errs, fmt.Errorf("RefreshEvery %v does nothing with named Queues: set one of the two", o.RefreshEvery))
	case o.RefreshEvery == 0:
		o.RefreshEvery = DefaultRefresh
	}
	if o.Batch == 0 {
		o.Batch = lease.DefaultBatch
	}
	if o.Batch < 1 || o.Batch > lease.MaxBatch {
		errs = append(errs, fmt.Errorf("Batch %d: want 1 to %d", o.Batch, lease.MaxBatch))
	}
	o.Logger = callback.Logger(o.Logger)
	return errs
}

// queues names what is to be swept, in order.
func (r *Reaper) queues(ctx context.Context, link *lease.Link, aside bool) ([]string, error) {
	if r.opts.Queues != nil {
		return slices.Sorted(slices.Values(r.opts.Queues)), nil
	}
	names, err := lease.QueuesOn(ctx, link, aside, r.opts.Prefix)
	if err != nil {
		return nil, fmt.Errorf("read the registry of queues: %w", err)
	}
	slices.Sort(names)
	return names, nil
}

func (r *Reaper) store(queue string, link *lease.Link) (*lease.Store, error) {
	return lease.NewStore(r.rdb, queue, &lease.StoreOptions{Prefix: r.opts.Prefix, Stub: wire.Stub(), Link: link})
}

// closeStore ends what the store may have open in Redis; a sweep opens nothing, so that it is no wait.
func (r *Reaper) closeStore(store *lease.Store) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := store.Close(ctx); err != nil {
		r.opts.Logger.Warn("sessions were not closed, and will be trimmed", "queue", store.Queue(), "error", err)
	}
}

func (r *Reaper) tellSweep(queue string, e lease.Expired) {
	if e.Missing > 0 {
		r.opts.Logger.Error("leases without a record were put into dead", "queue", queue, "jobs", e.Missing)
	}
	if e.Moved() > 0 {
		r.opts.Logger.Info("leases ran out", "queue", queue,
			"to_due", e.ToDue, "to_dead", e.ToDead, "cancelled", e.Cancelled, "more", e.More)
	}
	if r.opts.OnSweep != nil {
		callback.Run("OnSweep", func() { r.opts.OnSweep(queue, e) })
	}
}

func (r *Reaper) tellError(queue string, err error) {
	if r.opts.OnError != nil {
		callback.Run("OnError", func() { r.opts.OnError(queue, err) })
	}
}
