package cases

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/idempotency"
	"github.com/leaseq/leaseq/reliable"
)

// purgeAndEnqueue is what a producer does about an ID that is dead: it is told so, and makes a new job.
func (w *cutOff) purgeAndEnqueue() {
	w.t.Helper()
	_, err := w.queue.Enqueue(w.t.Context(), reliable.Item{ID: "J", Kind: "case"})
	require.Equal(w.t, &reliable.DuplicateError{ID: "J", Place: reliable.Dead}, err)
	purged, err := w.queue.Purge(w.t.Context(), reliable.Dead, "J")
	require.NoError(w.t, err)
	require.NoError(w.t, purged[0])
	w.enqueue(reliable.Item{ID: "J", Kind: "case"})
}

// newJob claims the new job of the ID by hand, with a lease that lasts.
func (w *cutOff) newJob() *reliable.Job {
	w.t.Helper()
	batch, err := w.queue.Claim(w.t.Context(), 1, &reliable.ClaimOptions{Lease: time.Hour})
	require.NoError(w.t, err)
	require.Len(w.t, batch.Jobs, 1)
	require.Equal(w.t, 1, batch.Jobs[0].Attempt)
	return batch.Jobs[0]
}

// oldTries has the old handler do something, on a context that does not end, and requires that it changes nothing.
func (w *cutOff) oldTries(what string, do func(job *reliable.Job) error) {
	w.t.Helper()
	w.refused(what, func() error {
		w.goOn <- do
		return awaitFrom(w.t, w.result, "the answer to "+what)
	}, opening...)
}

// The handler of a job that is dead goes on to its effect, which is not run: not while the job is dead, nor when a new
// one of the ID is due, held, or acked. The new job's effect happens once.
func TestS24_TheHandlerOfADeadJobHasNoEffectBehindItsGuard(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]func(w *cutOff, effect func(context.Context) error) int{
		"while it is dead": func(*cutOff, func(context.Context) error) int { return 0 },
		"while a new job is due": func(w *cutOff, _ func(context.Context) error) int {
			w.purgeAndEnqueue()
			return 0
		},
		"while a new job is held": func(w *cutOff, effect func(context.Context) error) int {
			w.purgeAndEnqueue()
			require.NoError(w.t, w.newJob().Once(w.t.Context(), theEffect, effect))
			return 1
		},
		"after a new job is acked": func(w *cutOff, effect func(context.Context) error) int {
			w.purgeAndEnqueue()
			require.NoError(w.t, w.newJob().OnceAndAck(w.t.Context(), theEffect, effect))
			return 1
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newCutOff(t, nil)
			effects := newTally(t, w.name)
			happened := next(w, func(context.Context) error { effects.start("new"); return nil })
			w.reconnect()
			w.oldTries("the late effect", func(job *reliable.Job) error {
				return job.Once(context.Background(), theEffect, func(context.Context) error { effects.start("old"); return nil })
			})
			w.stop()
			assert.Equal(t, happened, effects.counts(t)["new"])
			assert.Zero(t, effects.counts(t)["old"])
		})
	}
}

// The handler had begun its effect when the network went, and looks at its permit's context before it. The new job begins
// its effect anew, without a doubt, and what the old handler commits is refused, by itself and with its ack.
func TestS24_TheOldHandlersPermitIsWorthNothing(t *testing.T) {
	t.Parallel()
	for name, commit := range map[string]func(job *reliable.Job, p *idempotency.Permit) error{
		"Commit": func(_ *reliable.Job, p *idempotency.Permit) error {
			return p.Commit(context.Background(), []byte("late"))
		},
		"CompleteAndAck": func(job *reliable.Job, p *idempotency.Permit) error {
			return job.CompleteAndAck(context.Background(), p, []byte("late"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var permit *idempotency.Permit
			w := newCutOff(t, func(ctx context.Context, job *reliable.Job) error {
				a, err := job.BeginOnce(ctx, theEffect)
				if err == nil {
					permit = a.Permit
				}
				return err
			})
			require.ErrorIs(t, context.Cause(permit.Context()), reliable.ErrLost)
			w.purgeAndEnqueue()
			fresh, err := w.newJob().BeginOnce(t.Context(), theEffect)
			require.NoError(t, err)
			assert.False(t, fresh.Done || fresh.InDoubt)
			require.NoError(t, fresh.Permit.Commit(t.Context(), []byte("new")))
			w.reconnect()
			before := w.onceRecord("J")
			w.goOn <- func(job *reliable.Job) error { return commit(job, permit) }
			err = awaitFrom(t, w.result, "the answer to the commit")
			if name == "Commit" {
				require.ErrorIs(t, err, idempotency.ErrNotOwner)
			} else {
				require.ErrorIs(t, err, reliable.ErrLost)
			}
			w.stop()
			assert.Equal(t, before, w.onceRecord("J"))
			assert.Regexp(t, `^d .*\nnew$`, before["e:"+theEffect])
			assert.Zero(t, w.stats().Counters["acked"])
		})
	}
}
