package reliable_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

func TestCloseEndsAClaimThatWaits(t *testing.T) {
	t.Parallel()
	q, err := reliable.New(redistest.Client(t), redistest.Queue(t), nil)
	require.NoError(t, err)
	put(t, q, reliable.Item{Kind: "k", Delay: time.Hour})
	result := make(chan error, 1)
	go func() {
		_, err := q.Claim(context.Background(), 1, &reliable.ClaimOptions{Wait: time.Minute})
		result <- err
	}()
	require.Eventually(t, func() bool { // the claim has been answered: the queue has a session for claims too
		s, err := q.Stats(t.Context())
		return err == nil && s.Sessions == 2
	}, 20*time.Second, 5*time.Millisecond)
	require.NoError(t, q.Close(t.Context()))
	select {
	case err := <-result:
		require.ErrorIs(t, err, reliable.ErrClosed)
	case <-time.After(5 * time.Second):
		require.FailNow(t, "the claim waits on, though nothing can come any more")
	}
}

func TestCloseEndsTheContextsOfJobsClaimedByHand(t *testing.T) {
	t.Parallel()
	q, err := reliable.New(redistest.Client(t), redistest.Queue(t), quick())
	require.NoError(t, err)
	put(t, q, job("k"))
	batch, err := q.Claim(t.Context(), 1, nil)
	require.NoError(t, err)
	require.NoError(t, q.Close(t.Context()))
	receive(t, batch.Jobs[0].Context().Done())
	require.ErrorIs(t, context.Cause(batch.Jobs[0].Context()), reliable.ErrClosed)
	require.ErrorIs(t, batch.Jobs[0].Ack(t.Context()), reliable.ErrClosed)
}

func TestAClaimIsRefusedAtOnceWhileCloseStillWaitsForRedis(t *testing.T) {
	t.Parallel()
	rdb, proxy := behindProxy(t, 8*time.Second)
	q, err := reliable.New(rdb, redistest.Queue(t), quick())
	require.NoError(t, err)
	put(t, q, job("k"))
	_, err = q.Claim(t.Context(), 1, &reliable.ClaimOptions{KeepAlive: true})
	require.NoError(t, err)
	extend := shaOf(t, "extend")
	extending := make(chan struct{}, 100)
	proxy.Decide(holdScript(extend, extending))
	t.Cleanup(func() { proxy.ReleaseHeld() })
	receive(t, extending) // the keeper waits for an answer, and Close for the keeper
	closed := make(chan error, 1)
	go func() { closed <- q.Close(context.Background()) }()
	refused := make(chan error, 1)
	go func() {
		for { // until Close has begun
			if _, err := q.Claim(context.Background(), 1, nil); err != nil {
				refused <- err
				return
			}
		}
	}()
	select {
	case err := <-refused:
		require.ErrorIs(t, err, reliable.ErrClosed)
	case <-time.After(4 * time.Second):
		require.FailNow(t, "the claim waits for the end of Close")
	}
	proxy.ReleaseHeld()
	require.NoError(t, receive(t, closed))
}

func TestAFirstEnqueueNoticesTheEndOfItsContextThoughRedisIsSilent(t *testing.T) {
	t.Parallel()
	rdb, proxy := behindProxy(t, 5*time.Second)
	q := queueOn(t, rdb, redistest.Queue(t), nil)
	require.NoError(t, rdb.Ping(t.Context()).Err())
	proxy.BlackHole(true)
	defer proxy.BlackHole(false)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	before := time.Now()
	_, err := q.Enqueue(ctx, job("k"))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, reliable.ErrNeverRan, "the job itself was not sent")
	require.Less(t, time.Since(before), 3*time.Second)
}

func TestADueTimeBeyondReasonIsRefusedAndNeverBecomesNow(t *testing.T) {
	t.Parallel()
	q := newQueue(t, &reliable.QueueOptions{MaxDelay: 100 * 365 * 24 * time.Hour})
	_, err := q.Claim(t.Context(), 1, nil) // publishes
	require.NoError(t, err)
	results, err := q.EnqueueMany(t.Context(), []reliable.Item{
		{Kind: "k", Delay: math.MaxInt64},
		{Kind: "k", At: time.Unix(1<<60, 0)},
		{Kind: "k", At: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)},
		{Kind: "k", Delay: 99 * 365 * 24 * time.Hour},
	})
	require.NoError(t, err)
	for _, r := range results[:3] {
		require.ErrorContains(t, r.Err, "100 years")
	}
	require.NoError(t, results[3].Err)
	put(t, q, job("k"))
	batch, err := q.Claim(t.Context(), 10, nil)
	require.NoError(t, err)
	require.Len(t, batch.Jobs, 1)
	require.NoError(t, batch.Jobs[0].Nack(t.Context(), reliable.RetryAfter(math.MaxInt64, errors.New("never again"))))
	batch, err = q.Claim(t.Context(), 10, nil)
	require.NoError(t, err)
	require.Empty(t, batch.Jobs)
}
