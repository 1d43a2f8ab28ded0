package reliable

import (
	"context"
	"time"

	"github.com/leaseq/leaseq/internal/callback"
)

// An Event is something that happened to a job, or to a queue as a whole (ID is then empty). Fields that do not apply
// are zero.
type Event struct {
	// Queue is the name of the queue.
	Queue string
	// ID and Kind are the job's.
	ID, Kind string
	// Attempt is the number of this run: failures + expiries + 1.
	Attempt int
	// Fence is the number of the lease.
	Fence int64
	// Wait is how long the job had been due when its handler was started. The way of the claim's request to Redis counts
	// twice: Redis knows when the claim ran, and this process when it asked for it.
	Wait time.Duration
	// RunTime is how long the handler has run.
	RunTime time.Duration
	// Err is what the handler returned, or what went wrong. Its text can be of any length.
	Err error
	// NextRun is when the job is due again, by this process's clock: within the time that the answer took.
	NextRun time.Time
}

// Hooks are functions that a Consumer calls when something happens. Any of them can be nil, and so can a *Hooks.
//
// They are called one after the other for one job, and by many goroutines at once for several. A hook must be quick:
// OnStart and OnOverdue delay their worker, all others the one goroutine that claims and settles for the whole
// Consumer. A hook that panics is logged and otherwise changes nothing. A hook must not call [runtime.Goexit], as FailNow
// of a test does: it would end a goroutine without which the Consumer lives and does nothing, so that it ends the process
// instead, with a panic that says so.
//
// Of an event about a job, the context is that of [Job.Context], which may have ended already: [JobFrom] finds the job.
type Hooks struct {
	// OnStart: a handler is about to be called.
	OnStart func(ctx context.Context, e Event)
	// OnDone: the job was acked.
	OnDone func(ctx context.Context, e Event)
	// OnRetry: the job was nacked with Err and is due again at NextRun.
	OnRetry func(ctx context.Context, e Event)
	// OnRelease: the job was released, and nothing was counted. NextRun is zero where it kept its old due time.
	OnRelease func(ctx context.Context, e Event)
	// OnDead: the job went to the dead letters: it was buried, or nacked more often than MaxRetries. Err says why.
	OnDead func(ctx context.Context, e Event)
	// OnCancelled: the job had been cancelled while it ran, and settling it has removed it.
	OnCancelled func(ctx context.Context, e Event)
	// OnLost: the lease was lost before the job was settled. What the handler did stands, its verdict does not, and
	// the job runs again or has run elsewhere.
	OnLost func(ctx context.Context, e Event)
	// OnOverdue: the job's time is over and its context has ended, but its handler has not returned. It is no longer
	// extended. Another event follows when the handler returns.
	OnOverdue func(ctx context.Context, e Event)
	// OnError: something of ours failed, as a claim, a settle whose outcome is unknown, or a sweep. ID is set if it
	// concerns one job. The Consumer goes on by itself.
	OnError func(ctx context.Context, e Event)
}

// An eventName names a hook, and the event in the log.
type eventName string

const (
	eventStart     eventName = "start"
	eventDone      eventName = "done"
	eventRetry     eventName = "retry"
	eventRelease   eventName = "release"
	eventDead      eventName = "dead"
	eventCancelled eventName = "cancelled"
	eventLost      eventName = "lost"
	eventOverdue   eventName = "overdue"
	eventError     eventName = "error"
)

// hook returns the function for an event, or nil. h may be nil.
func (h *Hooks) hook(name eventName) func(context.Context, Event) {
	if h == nil {
		return nil
	}
	switch name {
	case eventStart:
		return h.OnStart
	case eventDone:
		return h.OnDone
	case eventRetry:
		return h.OnRetry
	case eventRelease:
		return h.OnRelease
	case eventDead:
		return h.OnDead
	case eventCancelled:
		return h.OnCancelled
	case eventLost:
		return h.OnLost
	case eventOverdue:
		return h.OnOverdue
	case eventError:
		return h.OnError
	}
	return nil
}

// fire calls the hook for an event, if there is one. h may be nil. If the hook panics, fire returns a *panicError; if
// it calls runtime.Goexit, fire panics.
func (h *Hooks) fire(ctx context.Context, name eventName, e Event) (err error) {
	if fn := h.hook(name); fn != nil {
		callback.Run("the hook for "+string(name), func() { err = caught(func() { fn(ctx, e) }) })
	}
	return err
}

// caught calls fn and returns its panic as a *panicError.
func caught(fn func()) (err error) {
	returned := false
	defer func() {
		if !returned { // of a Goexit, which goes on whatever is done here, the error is lost
			err = panicked(recover())
		}
	}()
	fn()
	returned = true
	return nil
}
