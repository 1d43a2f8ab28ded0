package lease

import (
	"context"
	"time"

	"github.com/leaseq/leaseq/internal/script"
)

// Retain forgets up to n dead jobs (1–1,000), the oldest first, that are more than the queue's policy keeps (DeadKeep) or
// older (DeadAge): their records, counts and errors go with them, and they are counted as `trimmed`. Idempotency records
// of their effects go when their own retention is over. more says that another call would forget jobs too. Without either
// limit it does nothing. Safe to run twice; one try: an error means that it may have run, and calling again is the answer.
func (s *Store) Retain(ctx context.Context, n int) (forgotten int, more bool, err error) {
	if err := checkBatch("retain", n); err != nil {
		return 0, false, err
	}
	req := &script.Request{Script: retainScript, Args: []any{n}}
	if s.runner.Send(ctx, req); req.Err != nil {
		return 0, false, req.Err
	}
	numbers, ok := integers(req.Reply, 3)
	if !ok || numbers[0] < 0 {
		return 0, false, odd(retainScript, req.Reply)
	}
	return int(numbers[0]), numbers[1] == 1, nil
}

// keepEvery is how often a sweeper looks whether there are more dead jobs than are kept.
const keepEvery = 5 * time.Second

type keepAnswer struct {
	forgotten int
	more      bool
	err       error
}

func (w *Sweeper) keep(ctx context.Context) (got keepAnswer) {
	got.forgotten, got.more, got.err = w.store.Retain(ctx, w.opts.Batch)
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
	if got.forgotten > 0 {
		w.opts.Logger.Warn("forgot dead jobs that the queue does not keep", "queue", w.store.Queue(), "jobs", got.forgotten)
	}
	if got.more {
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
		if !got.more {
			return nil
		}
	}
}
