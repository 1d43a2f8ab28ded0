package cases

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/reliable"
)

// cutOff is a worker that lost its network in the middle of a job which may be started once, and whose lease then ran
// out: the job is dead, and its handler works on.
type cutOff struct {
	*lane
	d         *detour
	job       *reliable.Job
	cancelled time.Time // when the handler's context ended
	cause     error
	goOn      chan func(job *reliable.Job) error // what the handler does when the network is back
	result    chan error
	lost      chan error
	stop      func()
}

// newCutOff cuts the worker off when first, if any, has run in the handler.
func newCutOff(t *testing.T, first func(ctx context.Context, job *reliable.Job) error) *cutOff {
	t.Helper()
	o := &reliable.QueueOptions{
		Lease: shape(300*time.Millisecond, 2*time.Second), MaxRetries: limitOf(0), MaxExpiries: limitOf(0),
	}
	w := &cutOff{
		lane: newLane(t, o), goOn: make(chan func(*reliable.Job) error), result: make(chan error, 1), lost: make(chan error, 1),
		d: detourTo(t, func(o *redis.Options) { o.ReadTimeout, o.DialTimeout = 200*time.Millisecond, 200*time.Millisecond }),
	}
	w.claim(1) // publishes the policy
	sidecar(t, w.name)
	working := make(chan *reliable.Job)
	ended := make(chan struct{})
	handler := func(ctx context.Context, job *reliable.Job) error {
		if first != nil {
			if err := first(ctx, job); err != nil {
				return err
			}
		}
		working <- job
		<-ctx.Done()
		w.cancelled, w.cause = time.Now(), context.Cause(ctx)
		close(ended)
		w.result <- (<-w.goOn)(job)
		return nil
	}
	w.stop = consumeWith(t, newQueueOn(t, w.d.rdb, w.name, o), reliable.HandlerFunc(handler), &reliable.ConsumerOptions{
		Concurrency: 1, NoSweep: true, WakeFallback: 50 * time.Millisecond,
		Hooks: &reliable.Hooks{OnLost: func(_ context.Context, e reliable.Event) { w.lost <- e.Err }},
	})
	w.enqueue(reliable.Item{ID: "J", Kind: "case", Payload: []byte("first")})
	w.job = awaitFrom(t, working, "the start")
	w.d.BlackHole(true)
	require.Eventually(t, func() bool { return w.stats().Dead == 1 }, 20*time.Second, 2*time.Millisecond)
	awaitFrom(t, ended, "the end of the handler's context")
	return w
}

// reconnect gives the worker its network back.
func (w *cutOff) reconnect() { w.d.BlackHole(false) }

// The handler's context ends at the end of its lease as its own process knows it, though Redis is silent. The producer
// who enqueues the same ID is told that it is dead, and the handler's late ack is refused.
func TestS24_TheHandlerOfADeadJobIsStoppedAndItsAckRefused(t *testing.T) {
	t.Parallel()
	w := newCutOff(t, nil)
	deadline := w.job.Deadline()
	assert.GreaterOrEqual(t, w.cancelled.Sub(deadline), time.Duration(0))
	assert.LessOrEqual(t, w.cancelled.Sub(deadline), 250*time.Millisecond, "from the local end of the lease to the end of the context")
	assert.ErrorIs(t, w.cause, reliable.ErrLost)
	dead := w.inspect("J")
	assert.Equal(t, reliable.Dead, dead.Place)
	assert.Equal(t, [2]int{0, 1}, [2]int{dead.Failures, dead.Expiries})
	require.Len(t, dead.Errors, 1)
	assert.Equal(t, "lease expired once", dead.Errors[0].Reason)

	for range 2 {
		_, err := w.queue.Enqueue(t.Context(), reliable.Item{ID: "J", Kind: "case", Payload: []byte("second")})
		assert.Equal(t, &reliable.DuplicateError{ID: "J", Place: reliable.Dead}, err)
	}
	w.reconnect()
	w.refused("the late ack", func() error {
		w.goOn <- func(job *reliable.Job) error { return job.Ack(context.Background()) }
		return awaitFrom(t, w.result, "the answer to the ack")
	}, opening...)
	w.stop()
	assert.Equal(t, []byte("first"), w.inspect("J").Payload)
	assert.Zero(t, w.stats().Counters["acked"])
	assert.EqualValues(t, 1, w.stats().Counters["claimed"], "starts")
}

// The verdict of the handler that only returns is sent when the network is back, refused, and told.
func TestS24_TheVerdictOfADeadJobsHandlerIsRefusedAndTold(t *testing.T) {
	t.Parallel()
	w := newCutOff(t, nil)
	w.reconnect()
	w.goOn <- func(*reliable.Job) error { return nil }
	var lost *reliable.LostError
	require.ErrorAs(t, awaitFrom(t, w.lost, "the refusal"), &lost)
	assert.Equal(t, &reliable.LostError{ID: "J", Place: reliable.Dead}, lost)
	w.stop()
	assert.EqualValues(t, 1, w.stats().Counters["refused"])
	assert.Zero(t, w.stats().Counters["acked"])
	assert.Equal(t, reliable.Dead, w.inspect("J").Place)
}

// After the dead job was purged the same ID is a new job: created, told so, and untouched by the old handler.
func TestS24_ANewJobOfTheSameIDIsUntouchedByTheOldHandler(t *testing.T) {
	t.Parallel()
	w := newCutOff(t, nil)
	purged, err := w.queue.Purge(t.Context(), reliable.Dead, "J")
	require.NoError(t, err)
	require.NoError(t, purged[0])
	_, err = w.queue.Enqueue(t.Context(), reliable.Item{ID: "J", Kind: "case", Payload: []byte("second"), Delay: time.Hour})
	require.NoError(t, err)
	w.reconnect()
	err = w.refused("the late ack", func() error {
		w.goOn <- func(job *reliable.Job) error { return job.Ack(context.Background()) }
		return awaitFrom(t, w.result, "the answer to the ack")
	}, opening...)
	assert.Equal(t, &reliable.LostError{ID: "J", Place: reliable.Due}, err)
	w.stop()
	info := w.inspect("J")
	assert.Equal(t, reliable.Due, info.Place)
	assert.Equal(t, []byte("second"), info.Payload)
	assert.Equal(t, [2]int{0, 0}, [2]int{info.Failures, info.Expiries})
}
