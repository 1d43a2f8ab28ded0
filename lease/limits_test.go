package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sized lists every method that takes a batch, each called with a batch of n.
func (b *bench) sized(t *testing.T) map[string]func(n int) error {
	ctx := t.Context()
	ids := func(n int) []string { return names("j", n) }
	return map[string]func(n int) error{
		"Enqueue": func(n int) error {
			items := make([]Item, n)
			for i, id := range ids(n) {
				items[i] = Item{ID: id, Record: record(id), MaxRetries: ptr(3), MaxExpiries: ptr(1)}
			}
			_, err := b.Enqueue(ctx, items)
			return err
		},
		"Claim": func(n int) error { _, err := b.Claim(ctx, n, nil); return err },
		"Settle": func(n int) error {
			verdicts := make([]Verdict, n)
			for i, id := range ids(n) {
				verdicts[i] = Verdict{Op: Nack, ID: id, Token: "1:s:1"}
			}
			_, err := b.Settle(ctx, verdicts)
			return err
		},
		"Exchange": func(n int) error {
			_, settleErr, _, claimErr := b.Exchange(ctx, []Verdict{{Op: Ack, ID: "x"}}, max(n, 1), nil)
			require.Equal(t, settleErr, claimErr, "neither half is sent")
			return claimErr
		},
		"Extend": func(n int) error {
			held := make([]Held, n)
			for i, id := range ids(n) {
				held[i] = Held{ID: id, Token: "1:s:1"}
			}
			_, err := b.Extend(ctx, 0, held)
			return err
		},
		"Expire":      func(n int) error { _, err := b.Expire(ctx, n, true); return err },
		"Cancel":      func(n int) error { _, err := b.Cancel(ctx, ids(n)); return err },
		"Redrive":     func(n int) error { _, err := b.Redrive(ctx, ids(n)); return err },
		"RedriveNext": func(n int) error { _, err := b.RedriveNext(ctx, &Cursor{}, n); return err },
		"Purge":       func(n int) error { _, err := b.Purge(ctx, Dead, ids(n)); return err },
		"PurgeNext":   func(n int) error { _, err := b.PurgeNext(ctx, Dead, &Cursor{}, n); return err },
		"Inspect":     func(n int) error { _, err := b.Inspect(ctx, ids(n)); return err },
		"List":        func(n int) error { _, err := b.List(ctx, Due, n, nil); return err },
		"Reschedule":  func(n int) error { _, err := b.Reschedule(ctx, 0, ids(n)); return err },
		"Bury":        func(n int) error { _, err := b.Store.Bury(ctx, "", ids(n)); return err },
		"Edit": func(n int) error {
			edits := make([]Edit, n)
			for i, id := range ids(n) {
				edits[i] = Edit{ID: id, Record: []byte("r")}
			}
			_, err := b.EditAndRedrive(ctx, edits)
			return err
		},
		"Import": func(n int) error {
			jobs := make([]Kept, n)
			for i, id := range ids(n) {
				jobs[i] = Kept{ID: id, Place: Dead, At: time.UnixMilli(1), Record: []byte("r")}
			}
			_, err := b.Import(ctx, jobs)
			return err
		},
	}
}

func TestBatchesOfAThousandAreTakenAndLargerOrEmptyOnesRefused(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		for name, call := range b.sized(t) {
			for _, n := range []int{0, MaxBatch + 1} {
				if name == "Exchange" && n == 0 {
					continue // settles only
				}
				err := call(n)
				var size *BatchError
				require.ErrorAs(t, err, &size, "%s of %d", name, n)
				assert.Equal(t, n, size.Size)
			}
		}
		assert.Empty(t, b.dump(t))
		for name, call := range b.sized(t) {
			assert.NoError(t, call(MaxBatch), name)
		}
	})
}

// 1000 jobs at once through every transition, with all that a job can have.
func TestAThousandJobsPassThroughEveryTransitionAtOnce(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	call := b.sized(t)
	require.NoError(t, call["Enqueue"](MaxBatch))
	verdicts := func(op Op) []Verdict {
		var out []Verdict
		for _, l := range b.take(t, MaxBatch) {
			out = append(out, Verdict{Op: op, ID: l.ID, Token: l.Token, Reason: "reason"})
		}
		return out
	}
	for _, step := range []struct {
		op   Op
		want Settled
	}{{Nack, Settled{Place: Due}}, {Release, Settled{Place: Due}}, {Bury, Settled{Place: Dead}}} {
		for _, got := range b.settle(t, verdicts(step.op)...) {
			require.Equal(t, step.want, got)
		}
	}
	var cursor Cursor
	n, err := b.RedriveNext(t.Context(), &cursor, MaxBatch)
	require.NoError(t, err)
	assert.Equal(t, MaxBatch, n)
	assert.Equal(t, MaxBatch, b.expireAll(t, b.take(t, MaxBatch)...).ToDue)
	assert.Equal(t, MaxBatch, b.expireAll(t, b.take(t, MaxBatch)...).ToDead)
	redriven, err := b.Redrive(t.Context(), names("j", MaxBatch))
	require.NoError(t, err)
	for _, err := range redriven {
		require.NoError(t, err)
	}
	leases := b.take(t, MaxBatch)
	removed, err := b.Cancel(t.Context(), names("j", MaxBatch))
	require.NoError(t, err)
	for _, one := range removed {
		require.True(t, one.Cancelling)
	}
	assert.Equal(t, MaxBatch, b.expireAll(t, leases...).Cancelled)
	require.NoError(t, call["Enqueue"](MaxBatch))
	for _, got := range b.settle(t, verdicts(Ack)...) {
		require.Equal(t, Settled{}, got)
	}
	assert.Zero(t, b.rdb.HLen(t.Context(), b.key("jobs")).Val())
}
