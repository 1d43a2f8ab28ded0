package lease

import (
	"context"
	"time"

	"github.com/leaseq/leaseq/internal/script"
)

// Forgotten is what one call of Retain did.
type Forgotten struct {
	Dead int  // jobs in dead that are gone
	Done int  // jobs in done
	More bool // another call would forget jobs too
}

// Retain forgets up to n dead jobs (1–1,000), the oldest first, that are more than the queue's policy keeps (DeadKeep) or
// older (DeadAge): their records, counts and errors go with them, and they are counted as `trimmed`. Idempotency records
// of their effects go when their own retention is over. Of the jobs in done it forgets as many, with their results, that
// were acked DoneAge ago or before, or are more than DoneKeep, counted as `forgotten`. Where nothing is to be forgotten it
// does nothing. Safe to run twice; one try: an error means that it may have run, and calling again is the answer.
func (s *Store) Retain(ctx context.Context, n int) (Forgotten, error) {
	if err := checkBatch("retain", n); err != nil {
		return Forgotten{}, err
	}
	req := &script.Request{Script: retainScript, Args: []any{n}}
	if s.runner.Send(ctx, req); req.Err != nil {
		return Forgotten{}, req.Err
	}
	numbers, ok := integers(req.Reply, 4)
	if !ok || numbers[0] < 0 || numbers[1] < 0 {
		return Forgotten{}, odd(retainScript, req.Reply)
	}
	return Forgotten{Dead: int(numbers[0]), Done: int(numbers[1]), More: numbers[2] == 1}, nil
}

// keepEvery is how often a sweeper looks whether there are more dead or done jobs than are kept.
const keepEvery = 5 * time.Second

type keepAnswer struct {
	Forgotten
	err error
}

func (w *Sweeper) keep(ctx context.Context) (got keepAnswer) {
	got.Forgotten, got.err = w.store.Retain(ctx, w.opts.Batch)
	return got
}

// kept tells of an answer, and returns when to look again.
func (w *Sweeper) kept(ctx context.Context, got keepAnswer) time.Duration {
	if got.err != nil {
		if ctx.Err() == nil {
			w.failed(got.err)
		}
		return w.keepEvery
	}
	if got.Dead > 0 {
		w.opts.Logger.Warn("forgot dead jobs that the queue does not keep", "queue", w.store.Queue(), "jobs", got.Dead)
	}
	if got.Done > 0 {
		w.opts.Logger.Debug("forgot finished jobs whose time is over", "queue", w.store.Queue(), "jobs", got.Done)
	}
	if got.More {
		return 0
	}
	return w.keepEvery
}

// keepAll forgets all that are not kept.
func (w *Sweeper) keepAll(ctx context.Context) error {
	for {
		got := w.keep(ctx)
		if got.err != nil {
			return got.err
		}
		w.kept(ctx, got)
		if !got.More {
			return nil
		}
	}
}
