package record

import (
	"context"
	"errors"
	"time"

	"github.com/leaseq/leaseq/reliable"
)

// Middleware writes when handlers return, and with what, and when their contexts end before. It belongs outermost in
// ConsumerOptions.Middleware, and goes with Hooks.
func (r *Recorder) Middleware() reliable.Middleware {
	return func(next reliable.Handler) reliable.Handler {
		if r == nil {
			return next
		}
		return reliable.HandlerFunc(func(ctx context.Context, job *reliable.Job) (err error) {
			told := make(chan struct{})
			ended := func() {
				r.Write(&Event{Kind: Ended, ID: job.ID, Fence: job.Fence(), Out: causeOf(ctx), Deadline: r.since(job.Deadline())})
			}
			unwatch := context.AfterFunc(ctx, func() {
				defer close(told)
				ended()
			})
			out := OutPanic
			defer func() {
				if !unwatch() {
					<-told
				} else if ctx.Err() != nil { // the handler was quicker than the watch
					ended()
				}
				r.Write(&Event{Kind: Returned, ID: job.ID, Fence: job.Fence(), Out: out, Deadline: r.since(job.Deadline())})
			}()
			err = next.Handle(ctx, job)
			out = OutNil
			if err != nil {
				out = OutError
			}
			return err
		})
	}
}

func causeOf(ctx context.Context) string {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, reliable.ErrLost):
		return OutLost
	case errors.Is(cause, reliable.ErrCancelled):
		return OutCancelled
	case errors.Is(cause, reliable.ErrJobTimeout):
		return CauseTimeout
	case errors.Is(cause, reliable.ErrShutdown):
		return CauseShutdown
	}
	return CauseOther
}

// Hooks returns hooks that write what becomes of jobs, and then call the one of more for the same event; more may be
// nil. OnOverdue and OnError of more are taken as they are, but for an OnError about one job, whose settle's outcome is
// then unknown.
func (r *Recorder) Hooks(more *reliable.Hooks) *reliable.Hooks {
	if r == nil {
		return more
	}
	var theirs reliable.Hooks
	if more != nil {
		theirs = *more
	}
	settled := func(out string, then func(context.Context, reliable.Event)) func(context.Context, reliable.Event) {
		return func(ctx context.Context, e reliable.Event) {
			r.settledBy(ctx, &e, out)
			if then != nil {
				then(ctx, e)
			}
		}
	}
	return &reliable.Hooks{
		OnStart: func(ctx context.Context, e reliable.Event) {
			if job, ok := reliable.JobFrom(ctx); ok && e.Queue == r.opts.Queue {
				line := r.claimOf(job)
				line.Kind, line.Wait = Started, e.Wait.Microseconds()
				r.Write(&line)
			}
			if theirs.OnStart != nil {
				theirs.OnStart(ctx, e)
			}
		},
		OnDone:      settled(OutAcked, theirs.OnDone),
		OnRetry:     settled(OutRetried, theirs.OnRetry),
		OnRelease:   settled(OutReleased, theirs.OnRelease),
		OnDead:      settled(OutDead, theirs.OnDead),
		OnCancelled: settled(OutCancelled, theirs.OnCancelled),
		OnLost:      settled(OutLost, theirs.OnLost),
		OnOverdue:   theirs.OnOverdue,
		OnError: func(ctx context.Context, e reliable.Event) {
			if e.ID != "" {
				r.settledBy(ctx, &e, OutUnknown)
			}
			if theirs.OnError != nil {
				theirs.OnError(ctx, e)
			}
		},
	}
}

func (r *Recorder) settledBy(ctx context.Context, e *reliable.Event, out string) {
	job, ok := reliable.JobFrom(ctx)
	if !ok || e.Queue != r.opts.Queue {
		return
	}
	if out == OutLost {
		out = lostOut(e.Err)
	}
	line := Event{ID: job.ID, Fence: job.Fence()}
	if out != OutAcked && out != OutRetried { // these have had a start
		line = r.claimOf(job)
	}
	line.Kind, line.Out = Settled, out
	if !e.NextRun.IsZero() {
		line.Delay = max(time.Until(e.NextRun).Microseconds(), 0)
	}
	r.Write(&line)
}

func lostOut(err error) string {
	switch {
	case errors.Is(err, reliable.ErrGone):
		return OutGone
	case errors.Is(err, reliable.ErrLost):
		return OutLost
	}
	return OutUnknown
}

func (r *Recorder) claimOf(job *reliable.Job) Event {
	e := Event{
		ID: job.ID, Fence: job.Fence(), Attempt: job.Attempt, Failures: job.Failures, Expiries: job.Expiries,
		Redrives: job.Redrives, Due: job.DueAt.UnixMilli(), Deadline: r.since(job.Deadline()),
	}
	if !job.EnqueuedAt.IsZero() {
		e.Enqueued = job.EnqueuedAt.UnixMicro()
	}
	return e
}

// Claimed writes that a job was claimed by hand, before it is worked on.
func (r *Recorder) Claimed(job *reliable.Job) {
	line := r.claimOf(job)
	line.Kind = Started
	r.Write(&line)
}

// Settling writes that a job is about to be settled by hand. It takes the place of a handler's end for a job claimed by
// hand.
func (r *Recorder) Settling(job *reliable.Job) {
	r.Write(&Event{Kind: Settled, ID: job.ID, Fence: job.Fence(), Out: OutSending})
}

// Settled writes what a settle by hand was told. out is what was asked for: [OutAcked], [OutRetried], [OutReleased] or
// [OutDead]; err, the settle's answer, outweighs it. A Nack or Bury cannot tell where the job went: pass [OutUnknown]
// unless you know. Nothing is written of a job that this holder had settled already ([reliable.ErrSettled]).
func (r *Recorder) Settled(job *reliable.Job, out string, err error) {
	if errors.Is(err, reliable.ErrSettled) {
		return
	}
	if err != nil {
		out = lostOut(err)
	}
	r.Write(&Event{Kind: Settled, ID: job.ID, Fence: job.Fence(), Out: out})
}
