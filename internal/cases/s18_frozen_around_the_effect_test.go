//go:build unix

package cases

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/idempotency"
	"github.com/leaseq/leaseq/reliable"
)

// Where the handlers of the process that is frozen stand then, by job, and what they try after it.
const (
	frozenBefore   = "J0" // before Once, which is called without a look, on a context that does not end
	frozenInside   = "J1" // inside Once's function, which looks at its context before the effect
	frozenCommit   = "J2" // with a permit, which is committed without a look, and without an effect
	frozenComplete = "J3" // with a permit, which is committed together with the ack
)

var _ = crashHandler("s18-guarded", func(w *crashWorker) reliable.Handler {
	return reliable.HandlerFunc(func(ctx context.Context, job *reliable.Job) error {
		effect := func(ctx context.Context) error {
			w.mark("effect", job, "")
			_, err := w.effect(ctx, job)
			return err
		}
		late := context.Background()
		var err error
		switch job.ID {
		case frozenBefore:
			_ = w.workFor(ctx, job)
			err = job.Once(late, theEffect, effect)
		case frozenInside:
			err = job.Once(late, theEffect, func(ctx context.Context) error {
				if err := w.workFor(ctx, job); err != nil {
					return err
				}
				return effect(ctx)
			})
		case frozenCommit, frozenComplete:
			a, begun := job.BeginOnce(ctx, theEffect)
			if begun != nil {
				return begun
			}
			_ = w.workFor(a.Permit.Context(), job)
			if job.ID == frozenCommit {
				err = a.Permit.Commit(late, []byte("late"))
			} else {
				err = job.CompleteAndAck(late, a.Permit, []byte("late"))
			}
		default:
			return job.Once(ctx, theEffect, effect)
		}
		w.mark("tried", job, refusedEffect(err))
		return nil
	})
})

// workFor notes a start, and works for ten leases or until a context ends, and says why that did.
func (w *crashWorker) workFor(ctx context.Context, job *reliable.Job) error {
	w.mark("start", job, "")
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(10 * w.Lease):
		return nil
	}
}

// refusedEffect says in words which of the two errors an effect, or its commit, was refused with.
func refusedEffect(err error) string {
	switch {
	case errors.Is(err, reliable.ErrLost):
		return "lost"
	case errors.Is(err, idempotency.ErrNotOwner):
		return "not the owner"
	case err == nil:
		return "nothing"
	}
	return err.Error()
}

// A process is frozen with four jobs, just before their effects, until another has run these, each with Once, and acked.
// After the thaw no effect is run any more, and no permit that was given
// before can be committed. Where the frozen one had begun, the other was told that the effect is in doubt.
func TestS18_ThawedProcessHasNoEffectBehindItsGuard(t *testing.T) {
	t.Parallel()
	const jobs, poll = 4, 125 * time.Millisecond
	s := newCrashSite(t, crashConfig{
		Handler: "s18-guarded", Concurrency: 8, Fallback: poll,
		Lease: shape(750*time.Millisecond, 2*time.Second), MaxRetries: 5, MaxExpiries: 5,
	})
	frozen := s.worker(t, nil)
	s.awaitSwept(t)
	items := numberedItems("J", jobs)
	s.enqueue(items...)
	s.awaitMarks(t, "start", jobs)

	var other crashWorker
	other.crashConfig, other.beside = s.crashConfig, s.beside
	stopB := consumeWith(t, s.queue, reliable.HandlerFunc(func(ctx context.Context, job *reliable.Job) error {
		a, err := job.BeginOnce(ctx, theEffect)
		if err != nil {
			return err
		}
		if a.InDoubt {
			putMark(s.Marks, mark{What: "answer", ID: job.ID})
		}
		times, err := idempotency.Run(ctx, a, func(ctx context.Context) (int64, error) { return other.effect(ctx, job) }, nil)
		if err == nil && times != 1 {
			err = errors.New("the effect had happened before")
		}
		return err
	}), &reliable.ConsumerOptions{WakeFallback: poll, Holder: "the other"})
	s.awaitHolder(t, "the other")
	s.awaitSwept(t)
	frozenAt := time.Now()
	require.NoError(t, frozen.Process.Signal(syscall.SIGSTOP))
	s.awaitCount(t, "acked", jobs)
	<-time.After(time.Until(frozenAt.Add(3 * s.Lease)))
	stopB()
	require.Empty(t, marksOf(readMarks(t, s.Marks), "tried"), "the process was to be stopped")
	assert.Equal(t, []string{frozenInside, frozenCommit, frozenComplete}, idsOf(marksOf(readMarks(t, s.Marks), "answer")), "in doubt")
	records := map[string]map[string]string{}
	for _, item := range items {
		records[item.ID] = s.onceRecord(item.ID)
		require.Regexp(t, `^d .*\n1$`, records[item.ID]["e:"+theEffect])
	}

	require.NoError(t, frozen.Process.Signal(syscall.SIGCONT))
	tried := map[string]string{}
	for _, m := range s.awaitMarks(t, "tried", jobs) {
		tried[m.ID] = m.Note
	}
	assert.Equal(t, map[string]string{
		frozenBefore: "lost", frozenInside: "lost", frozenCommit: "not the owner", frozenComplete: "lost",
	}, tried, "what the thawed process was told")
	assert.Empty(t, marksOf(readMarks(t, s.Marks), "effect"))
	assert.Equal(t, each(items, "1"), s.effects(t))
	for _, item := range items {
		assert.Equal(t, records[item.ID], s.onceRecord(item.ID), "the record of %s", item.ID)
	}
	s.awaitCount(t, "refused", jobs)
	assert.EqualValues(t, jobs, s.count(t, "acked"), "all acks are those of the other consumer")

	s.enqueue(reliable.Item{ID: "new", Kind: "case"})
	s.awaitCount(t, "acked", jobs+1)
	assert.Equal(t, "1", s.effects(t)["new"], "the thawed process works on")
	frozen.finish(t)
}
