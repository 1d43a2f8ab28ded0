package reliable_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

func TestJobsClaimedByHandAreSettledByHand(t *testing.T) {
	t.Parallel()
	q := newQueue(t, quick())
	empty, err := q.Claim(t.Context(), 5, nil)
	require.NoError(t, err)
	require.Empty(t, empty.Jobs)
	require.Zero(t, empty.NextDue)

	put(t, q, jobs("k", 5)...)
	batch, err := q.Claim(t.Context(), 10, nil)
	require.NoError(t, err)
	require.Len(t, batch.Jobs, 5)
	j := batch.Jobs
	require.NoError(t, j[0].Ack(t.Context()))
	require.ErrorIs(t, j[0].Ack(t.Context()), reliable.ErrSettled)
	require.NoError(t, j[1].Nack(t.Context(), reliable.RetryAfter(time.Hour, errors.New("later"))))
	require.Error(t, j[2].Nack(t.Context(), nil))
	require.NoError(t, j[2].Release(t.Context()))
	require.NoError(t, j[3].Bury(t.Context(), errors.New("for good")))
	require.NoError(t, j[4].Extend(t.Context(), time.Hour))
	require.Greater(t, time.Until(j[4].Deadline()), 59*time.Minute)
	s, err := q.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int64{2, 1, 1}, []int64{s.Due, s.Processing, s.Dead})
	require.Less(t, j[3].Fence(), j[4].Fence())
	require.Error(t, j[3].Context().Err(), "a settled job's context has ended")
	require.NoError(t, j[4].Context().Err())
	require.NoError(t, j[4].Nack(t.Context(), reliable.Discard(errors.New("no"))))
}

func TestWithoutKeepAliveALeaseRunsOutAndItsContextEnds(t *testing.T) {
	t.Parallel()
	q := newQueue(t, &reliable.QueueOptions{Lease: 100 * time.Millisecond})
	put(t, q, jobs("k", 2)...)
	plain, err := q.Claim(t.Context(), 1, nil)
	require.NoError(t, err)
	alive, err := q.Claim(t.Context(), 1, &reliable.ClaimOptions{KeepAlive: true})
	require.NoError(t, err)
	receive(t, plain.Jobs[0].Context().Done())
	require.ErrorIs(t, context.Cause(plain.Jobs[0].Context()), reliable.ErrLost)
	require.Eventually(t, func() bool { // two leases later
		return time.Since(plain.Jobs[0].Deadline()) > 200*time.Millisecond
	}, 5*time.Second, 10*time.Millisecond)
	require.NoError(t, alive.Jobs[0].Context().Err())
	require.NoError(t, alive.Jobs[0].Ack(t.Context()))
	require.NoError(t, plain.Jobs[0].Ack(t.Context()), "no sweeper has taken it: the token is current")
}

func TestAClaimThatWaitsIsWokenByAJobByItsDueTimeAndByTheEnd(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	before := time.Now()
	empty, err := q.Claim(t.Context(), 1, &reliable.ClaimOptions{Wait: 50 * time.Millisecond})
	require.NoError(t, err)
	require.Empty(t, empty.Jobs)
	require.GreaterOrEqual(t, time.Since(before), 50*time.Millisecond)

	got := make(chan *reliable.Batch, 1)
	wait := func() {
		b, err := q.Claim(context.Background(), 1, &reliable.ClaimOptions{Wait: 10 * time.Second})
		if err == nil {
			got <- b
		}
	}
	go wait()
	put(t, q, job("now"))
	require.NoError(t, receive(t, got).Jobs[0].Ack(t.Context()))
	put(t, q, reliable.Item{Kind: "soon", Delay: 80 * time.Millisecond})
	go wait()
	require.NoError(t, receive(t, got).Jobs[0].Ack(t.Context()))

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	_, err = q.Claim(ctx, 1, &reliable.ClaimOptions{Wait: time.Minute})
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestALeaseShorterThanTheQueuesIsRefusedAndALongerOneTaken(t *testing.T) {
	t.Parallel()
	q := newQueue(t, quick())
	put(t, q, job("k"))
	var short *reliable.ShortLeaseError
	_, err := q.Claim(t.Context(), 1, &reliable.ClaimOptions{Lease: 299 * time.Millisecond})
	require.ErrorAs(t, err, &short)
	batch, err := q.Claim(t.Context(), 1, &reliable.ClaimOptions{Lease: time.Minute})
	require.NoError(t, err)
	require.Greater(t, time.Until(batch.Jobs[0].Deadline()), 50*time.Second)
	require.NoError(t, batch.Jobs[0].Ack(t.Context()))
}

func TestRecordsThatCannotBeReadGoToDeadAndNewerOnesBackForANewerVersion(t *testing.T) {
	t.Parallel()
	q := newQueue(t, quick())
	ids := put(t, q, job("broken"), job("newer"), job("whole"))
	rdb := redistest.Client(t)
	part, err := keys.New(keys.DefaultPrefix, q.Name(), 0)
	require.NoError(t, err)
	require.NoError(t, rdb.HSet(t.Context(), part.Key("jobs"), ids[0], "\xffrubbish", ids[1], "\x02of tomorrow").Err())
	batch, err := q.Claim(t.Context(), 10, nil)
	require.NoError(t, err)
	require.Len(t, batch.Jobs, 1)
	require.Equal(t, "whole", batch.Jobs[0].Kind)
	require.NoError(t, batch.Jobs[0].Ack(t.Context()))
	infos, err := q.Inspect(t.Context(), ids...)
	require.NoError(t, err)
	require.Equal(t, reliable.Dead, infos[0].Place)
	require.Contains(t, infos[0].Errors[0].Reason, "undecodable")
	require.Equal(t, "\xffrubbish", string(infos[0].Payload))
	require.Equal(t, reliable.Due, infos[1].Place)
	require.Greater(t, infos[1].In, 100*time.Millisecond)
	require.Zero(t, infos[1].Failures)
	s, err := q.Stats(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, s.Counters["newer"])
}
