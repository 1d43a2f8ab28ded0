package cases

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

// A works on J for longer than its lease, without a heartbeat. J is put back and B holds it when A nacks it with a delay
// of an hour. The nack is refused and changes nothing of J or of B's lease, and A, which has one slot, goes on at once
// with the hundred jobs that are due.
func TestS13_ALateNackChangesNothingAndTheWorkerCarriesOn(t *testing.T) {
	t.Parallel()
	const others = 100
	o := &reliable.QueueOptions{Lease: shape(150*time.Millisecond, 2*time.Second), MaxRetries: limitOf(2), MaxExpiries: limitOf(2)}
	l := newLane(t, o)
	l.claim(1) // publishes the policy
	working, nack := make(chan struct{}), make(chan struct{})
	lost, carriedOn, acks := make(chan error, 1), make(chan time.Time, 1), newCountdown(others)
	var failed atomic.Int64
	handler := func(_ context.Context, job *reliable.Job) error {
		if job.ID == "J" {
			close(working)
			<-nack
			return reliable.RetryAfter(time.Hour, errors.New("late"))
		}
		select {
		case carriedOn <- time.Now():
		default:
		}
		return nil
	}
	stop := l.consume(handler, &reliable.ConsumerOptions{
		Concurrency: 1, NoExtend: true, NoSweep: true, WakeFallback: 50 * time.Millisecond,
		Hooks: &reliable.Hooks{
			OnLost:  func(_ context.Context, e reliable.Event) { lost <- e.Err },
			OnError: func(context.Context, reliable.Event) { failed.Add(1) },
			OnDone:  func(context.Context, reliable.Event) { acks.done() },
		},
	})
	l.enqueue(reliable.Item{ID: "J", Kind: "case"})
	awaitFrom(t, working, "the start of J")
	l.sweepUntilMoved(1)
	b := newQueueOn(t, redistest.Client(t), l.name, o)
	batch, err := b.Claim(t.Context(), 1, &reliable.ClaimOptions{Lease: time.Hour})
	require.NoError(t, err)
	require.Len(t, batch.Jobs, 1)
	dueBefore, before := batch.Jobs[0].DueAt, l.inspect("J")
	l.enqueue(numberedItems("j", others)...)

	late := time.Now()
	close(nack)
	var refusal *reliable.LostError
	require.ErrorAs(t, awaitFrom(t, lost, "the refusal"), &refusal)
	assert.Equal(t, &reliable.LostError{ID: "J", Place: reliable.Processing}, refusal)
	assert.Less(t, awaitFrom(t, carriedOn, "the next start").Sub(late), shape(time.Second, 250*time.Millisecond), "from the late nack to the next start")
	awaitFrom(t, acks.all, "all acks")
	stop()
	assert.Zero(t, failed.Load(), "a refusal is no failure of ours")

	after := l.inspect("J")
	assert.Equal(t, [2]int{0, 1}, [2]int{after.Failures, after.Expiries}, "failures and expiries")
	assert.Empty(t, after.Errors)
	assert.Equal(t, reliable.Processing, after.Place)
	assert.Equal(t, before.At, after.At, "the end of B's lease")
	assert.Equal(t, before.Fence, after.Fence)
	stats := l.stats()
	assert.EqualValues(t, others, stats.Counters["acked"])
	assert.EqualValues(t, 1, stats.Counters["refused"])
	assert.Zero(t, stats.Counters["nacked"])

	require.NoError(t, batch.Jobs[0].Release(t.Context()))
	released := l.inspect("J")
	assert.Equal(t, reliable.Due, released.Place)
	assert.Equal(t, dueBefore, released.At, "the due time that J had")
	assert.Equal(t, [2]int{0, 1}, [2]int{released.Failures, released.Expiries})
}
