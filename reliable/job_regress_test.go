package reliable_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

// ackInto acks a job while the call is kept from Redis, for as long as a short context lasts.
func ackInto(t *testing.T, proxy *netfault.Proxy, j *reliable.Job) *reliable.UnknownError {
	t.Helper()
	held := make(chan struct{}, 100)
	proxy.Decide(holdScript(shaOf(t, "settle"), held))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var unknown *reliable.UnknownError
	require.ErrorAs(t, j.Ack(ctx), &unknown)
	proxy.Decide(nil)
	proxy.ReleaseHeld()
	return unknown
}

func TestASettleByHandWhoseOutcomeIsUnknownMayBeRepeated(t *testing.T) {
	t.Parallel()
	rdb, proxy := behindProxy(t, 3*time.Second)
	q := queueOn(t, rdb, redistest.Queue(t), quick())
	put(t, q, job("k"))
	batch, err := q.Claim(t.Context(), 1, &reliable.ClaimOptions{KeepAlive: true})
	require.NoError(t, err)
	j := batch.Jobs[0]
	unknown := ackInto(t, proxy, j)
	require.NoError(t, j.Context().Err(), "the job is held until it is known to be settled")
	truth := unknown.Resolve(t.Context())
	again := j.Ack(t.Context())
	if truth == nil {
		require.ErrorIs(t, again, reliable.ErrLost)
	} else {
		require.ErrorIs(t, truth, reliable.ErrNeverRan)
		require.NoError(t, again)
	}
	s := await(t, q, "acked", func(s reliable.Stats) bool { return s.Records == 0 })
	require.EqualValues(t, 1, s.Counters["acked"])
}

func TestAnAckByHandThatNeverRanIsRepeatedAndNotTurnedIntoWhatTheHandlerReturns(t *testing.T) {
	t.Parallel()
	rdb, proxy := behindProxy(t, 200*time.Millisecond)
	q := queueOn(t, rdb, redistest.Queue(t), nil)
	var starts atomic.Int64
	runConsumer(t, q, reliable.HandlerFunc(func(_ context.Context, j *reliable.Job) error {
		starts.Add(1)
		proxy.Cut() // so that it surely never ran
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		err := j.Ack(ctx)
		proxy.Restore()
		return errors.Join(errors.New("not acked"), err)
	}), nil)
	put(t, q, job("k"))
	s := await(t, q, "acked", func(s reliable.Stats) bool { return s.Counters["acked"] == 1 })
	require.Zero(t, s.Counters["nacked"]+s.Processing)
	require.EqualValues(t, 1, starts.Load())
}
