package cases

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

// unchanging is what a refused call may change: counters, sessions and wake-ups, and the sweepers' own key.
var unchanging = []string{"stats", "sessions", "wake", "sweep"}

// opening is what the first settle of a process changes beside: it opens a session.
var opening = []string{"fence", "holders"}

// refused runs a call that must be refused as lost, and that must change nothing, but for the keys in beside.
func (l *lane) refused(what string, call func() error, beside ...string) error {
	l.t.Helper()
	except := append(beside, unchanging...)
	before := redistest.Dump(l.t, l.rdb, keys.DefaultPrefix, l.name, except...)
	err := call()
	require.ErrorIs(l.t, err, reliable.ErrLost, what)
	require.Equal(l.t, before, redistest.Dump(l.t, l.rdb, keys.DefaultPrefix, l.name, except...), "%s changed a key", what)
	return err
}

// takenOver gives a job to A, whose lease runs out, and then to B. Both hold it by hand, without a heartbeat. token is
// A's.
func takenOver(t *testing.T, o *reliable.QueueOptions) (l *lane, a, b *reliable.Job, token string) {
	t.Helper()
	l = newLane(t, o)
	l.enqueue(numberedItems("j", 1)...)
	a = l.claimExactly(1)["j0"]
	token = l.rdb.HGet(t.Context(), l.keys.Key("leases"), "j0").Val()
	l.sweepUntilMoved(1)
	// B is another process.
	other := newQueueOn(t, redistest.Client(t), l.name, o)
	batch, err := other.Claim(t.Context(), 1, &reliable.ClaimOptions{Lease: time.Hour})
	require.NoError(t, err)
	require.Len(t, batch.Jobs, 1)
	b = batch.Jobs[0]
	require.Equal(t, "j0", b.ID)
	require.Equal(t, 2, b.Attempt)
	require.Greater(t, b.Fence(), a.Fence())
	return l, a, b, token
}

func zombieOptions() *reliable.QueueOptions {
	return &reliable.QueueOptions{Lease: shape(150*time.Millisecond, 2*time.Second)}
}

// A's lease ran out and B holds the job. A's acks are refused, before and after B's own, and change no key.
func TestS12_AnAckWithALeaseThatIsLostIsRefusedAndChangesNothing(t *testing.T) {
	t.Parallel()
	l, a, b, _ := takenOver(t, zombieOptions())

	var lost *reliable.LostError
	require.ErrorAs(t, l.refused("A's ack while B works", func() error { return a.Ack(t.Context()) }), &lost)
	assert.Equal(t, &reliable.LostError{ID: "j0", Place: reliable.Processing}, lost)
	require.NoError(t, b.Ack(t.Context()))
	l.refused("A's ack after B's", func() error { return a.Ack(t.Context()) })

	assert.EqualValues(t, 1, l.stats().Counters["acked"])
	assert.Zero(t, l.stats().Records)
}

// Every call with A's token is refused wherever the job is: in another's hands, back in due, dead, acked; and the same
// ID enqueued anew. One error tells all of it: lost, and gone is also lost.
func TestS12_AnOldTokenIsRefusedWhereverTheJobIs(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, end := range map[string]struct {
		after func(l *lane, b *reliable.Job) error
		want  reliable.Place
	}{
		"held by another": {func(*lane, *reliable.Job) error { return nil }, reliable.Processing},
		"acked":           {func(_ *lane, b *reliable.Job) error { return b.Ack(ctx) }, reliable.Nowhere},
		"nacked":          {func(_ *lane, b *reliable.Job) error { return b.Nack(ctx, assert.AnError) }, reliable.Due},
		"released":        {func(_ *lane, b *reliable.Job) error { return b.Release(ctx) }, reliable.Due},
		"dead":            {func(_ *lane, b *reliable.Job) error { return b.Bury(ctx, assert.AnError) }, reliable.Dead},
		"acked and enqueued anew": {func(l *lane, b *reliable.Job) error {
			err := b.Ack(ctx)
			l.enqueue(numberedItems("j", 1)...)
			return err
		}, reliable.Due},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, _, b, token := takenOver(t, zombieOptions())
			require.NoError(t, end.after(l, b))
			require.Equal(t, end.want, l.inspect("j0").Place)
			l.everyCallIsRefused("j0", token, end.want)
			if end.want == reliable.Processing {
				require.NoError(t, b.Ack(t.Context()))
			}
		})
	}
}

// everyCallIsRefused tries all that a holder can do with a token, through a Store, which keeps nothing in mind.
func (l *lane) everyCallIsRefused(id, token string, place reliable.Place) {
	l.t.Helper()
	_, err := l.store.Settle(l.t.Context(), []lease.Verdict{{Op: lease.Ack, ID: "none", Token: "none"}})
	require.NoError(l.t, err, "the store's first call opens its session")
	want := error(&lease.LostError{ID: id, Place: place})
	if place == reliable.Nowhere {
		want = lease.ErrGone
	}
	for _, op := range []lease.Op{lease.Ack, lease.Nack, lease.Release, lease.Bury} {
		err := l.refused("a settle "+string(op), func() error {
			got, err := l.store.Settle(l.t.Context(), []lease.Verdict{{Op: op, ID: id, Token: token, Reason: "late"}})
			require.NoError(l.t, err)
			return got[0].Err
		})
		require.Equal(l.t, want, err)
	}
	err = l.refused("an extend", func() error {
		got, err := l.store.Extend(l.t.Context(), 0, []lease.Held{{ID: id, Token: token}})
		require.NoError(l.t, err)
		return got.Results[0]
	})
	require.Equal(l.t, want, err)
}
