package reliable_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

func TestAStopWaitsForHandlersAndClaimsNothingMore(t *testing.T) {
	t.Parallel()
	q := newQueue(t, quick())
	running, finish := make(chan struct{}, 10), make(chan struct{})
	stop := runConsumer(t, q, reliable.HandlerFunc(func(ctx context.Context, _ *reliable.Job) error {
		running <- struct{}{}
		<-finish
		return ctx.Err()
	}), &reliable.ConsumerOptions{Concurrency: 2})
	put(t, q, jobs("k", 5)...)
	receive(t, running)
	receive(t, running)
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	await(t, q, "two are worked on", func(s reliable.Stats) bool { return s.Processing == 2 })
	close(finish)
	require.NoError(t, receive(t, ended))
	s, err := q.Stats(t.Context())
	require.NoError(t, err)
	require.Zero(t, s.Processing)
	require.EqualValues(t, 2, s.Counters["acked"])
	require.EqualValues(t, 3, s.Due)
	require.Zero(t, s.Sessions-1, "only the queue's own session is left")
}

func TestAfterTheDrainTimeTheContextEndsAndAnErrorReleasesTheJobUncounted(t *testing.T) {
	t.Parallel()
	q := newQueue(t, quick())
	running, cause := make(chan struct{}, 1), make(chan error, 1)
	stop := runConsumer(t, q, reliable.HandlerFunc(func(ctx context.Context, _ *reliable.Job) error {
		running <- struct{}{}
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return errors.New("interrupted")
	}), &reliable.ConsumerOptions{DrainTimeout: 30 * time.Millisecond})
	ids := put(t, q, job("k"))
	receive(t, running)
	require.NoError(t, stop())
	require.ErrorIs(t, receive(t, cause), reliable.ErrShutdown)
	requireDueUncounted(t, q, ids[0])
}

func TestAHandlerThatIgnoresItsContextIsAbandonedAndItsJobReleased(t *testing.T) {
	t.Parallel()
	q := newQueue(t, quick())
	running, finish := make(chan *reliable.Job, 1), make(chan struct{})
	late := make(chan error, 1)
	stop := runConsumer(t, q, reliable.HandlerFunc(func(_ context.Context, j *reliable.Job) error {
		running <- j
		<-finish
		late <- j.Ack(context.Background())
		return nil
	}), &reliable.ConsumerOptions{DrainTimeout: 20 * time.Millisecond})
	ids := put(t, q, job("k"))
	receive(t, running)
	before := time.Now()
	require.NoError(t, stop())
	require.Less(t, time.Since(before), 3*time.Second)
	requireDueUncounted(t, q, ids[0])
	close(finish)
	require.Error(t, receive(t, late), "an abandoned handler cannot ack")
	requireDueUncounted(t, q, ids[0])
}

func requireDueUncounted(t *testing.T, q *reliable.Queue, id string) {
	t.Helper()
	infos, err := q.Inspect(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, reliable.Due, infos[0].Place)
	require.LessOrEqual(t, infos[0].In, time.Duration(0))
	require.Zero(t, infos[0].Failures+infos[0].Expiries)
}

func TestAStopWhileRedisIsSilentEndsInTimeAndNamesWhatWasNotSettled(t *testing.T) {
	t.Parallel()
	redistest.NeedServer(t)
	name := redistest.Queue(t)
	proxy := redistest.Proxy(t, redistest.Addr(t))
	o := redistest.Options(t)
	o.Addr, o.ReadTimeout, o.DialTimeout = proxy.Addr(), 300*time.Millisecond, 300*time.Millisecond
	rdb := redis.NewClient(o)
	defer rdb.Close()
	q, err := reliable.New(rdb, name, quick())
	require.NoError(t, err)
	running, finish := make(chan struct{}, 1), make(chan struct{})
	stop := runConsumer(t, q, reliable.HandlerFunc(func(context.Context, *reliable.Job) error {
		running <- struct{}{}
		<-finish
		return nil
	}), &reliable.ConsumerOptions{DrainTimeout: 50 * time.Millisecond})
	ids := put(t, q, job("k"))
	receive(t, running)
	proxy.BlackHole(true)
	close(finish)
	before := time.Now()
	err = stop()
	var drain *reliable.DrainError
	require.ErrorAs(t, err, &drain)
	require.Equal(t, ids, drain.IDs)
	require.Less(t, time.Since(before), 7*time.Second)
	proxy.BlackHole(false)
	require.NoError(t, q.Close(t.Context()))

	direct := queueOn(t, redistest.Client(t), name, quick())
	again := make(chan int, 1)
	runConsumer(t, direct, reliable.HandlerFunc(func(_ context.Context, j *reliable.Job) error {
		again <- j.Attempt
		return nil
	}), nil)
	require.Equal(t, 2, receive(t, again), "the lease ran out, and somebody else has the job")
	await(t, direct, "acked", func(s reliable.Stats) bool { return s.Counters["acked"] == 1 })
}

func TestAStopAtTheMomentOfAClaimsAnswerLeavesNothingInProcessing(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	put(t, q, job("k"))
	waits := reliable.HandlerFunc(func(ctx context.Context, _ *reliable.Job) error {
		<-ctx.Done()
		return ctx.Err()
	})
	for range 300 {
		c, err := reliable.NewConsumer(q, waits, &reliable.ConsumerOptions{
			DrainTimeout: time.Duration(1+rand.N(1500)) * time.Microsecond, NoSweep: true, Concurrency: 1,
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(1500*time.Microsecond+rand.N(3*time.Millisecond), cancel)
		require.NoError(t, c.Run(ctx))
		cancel()
		stats, err := q.Stats(t.Context())
		require.NoError(t, err)
		require.Zero(t, stats.Processing)
	}
	stats, err := q.Stats(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, stats.Due)
	require.Zero(t, stats.Counters["expired"]+stats.Counters["nacked"])
	t.Log("claimed", stats.Counters["claimed"], "released", stats.Counters["released"])
}
