package reliable_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

func TestEnqueueManyAnswersPerItemAndOneMistakeFailsNoOther(t *testing.T) {
	t.Parallel()
	q := newQueue(t, &reliable.QueueOptions{PayloadLimit: 100})
	items := []reliable.Item{
		{Kind: "ok", ID: "a"},
		{Kind: "ok", ID: "a"},
		{Kind: "not ok", ID: "b"},
		{Kind: "ok", ID: "c", Payload: make([]byte, 101)},
		{Kind: "ok", ID: "d\x00"},
		{Kind: "ok", ID: "e", Delay: -1},
		{Kind: "ok", ID: "f", Delay: time.Second, At: time.Now()},
		{Kind: "ok", Payload: make([]byte, 100)},
	}
	results, err := q.EnqueueMany(t.Context(), items)
	require.NoError(t, err)
	require.NoError(t, results[0].Err)
	var duplicate *reliable.DuplicateError
	require.ErrorAs(t, results[1].Err, &duplicate)
	require.Equal(t, reliable.Due, duplicate.Place)
	require.ErrorContains(t, results[2].Err, "kind")
	var large *reliable.TooLargeError
	require.ErrorAs(t, results[3].Err, &large)
	require.Equal(t, [2]int{101, 100}, [2]int{large.Size, large.Limit})
	require.Error(t, results[4].Err)
	require.ErrorContains(t, results[5].Err, "Delay is -1ns")
	require.ErrorContains(t, results[6].Err, "one of them")
	require.NoError(t, results[7].Err)
	require.Len(t, results[7].ID, 26)
	s, err := q.Stats(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, s.Due)
}

func TestALargeEnqueueGoesOutInBatchesByCountAndBytes(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	items := jobs("k", 1000)
	for range 20 {
		items = append(items, reliable.Item{Kind: "large", Payload: make([]byte, 512<<10)})
	}
	put(t, q, items...)
	s, err := q.Stats(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1020, s.Due)
}

func TestAnEnqueueWhoseContextEndsSaysUnknownAndResolvesToTheTruth(t *testing.T) {
	t.Parallel()
	redistest.NeedServer(t)
	name := redistest.Queue(t)
	proxy := redistest.Proxy(t, redistest.Addr(t))
	o := redistest.Options(t)
	o.Addr, o.ReadTimeout = proxy.Addr(), 4*time.Second
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	q := queueOn(t, rdb, name, nil)
	put(t, q, job("warm"))
	proxy.BlackHole(true)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	before := time.Now()
	result, err := q.Enqueue(ctx, reliable.Item{Kind: "k", ID: "x"})
	require.Less(t, time.Since(before), 3*time.Second, "the end of the context is noticed at once")
	var unknown *reliable.UnknownError
	require.ErrorAs(t, err, &unknown)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, "x", result.ID)
	proxy.BlackHole(false)
	require.ErrorIs(t, unknown.Resolve(t.Context()), reliable.ErrNeverRan)
	infos, err := q.Inspect(t.Context(), "x")
	require.NoError(t, err)
	require.Equal(t, reliable.Nowhere, infos[0].Place)
}

func TestOptionsThatCannotBeAreRefusedAllAtOnce(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	_, err := reliable.New(rdb, "q", &reliable.QueueOptions{
		Lease: time.Millisecond, MaxRetries: intp(-1), PayloadLimit: -1, Backoff: reliable.Backoff{Base: time.Hour, Cap: time.Second},
	})
	for _, part := range []string{"Lease is 1ms", "MaxRetries is -1", "PayloadLimit is -1", "back-off Base"} {
		require.ErrorContains(t, err, part)
	}
	_, err = reliable.New(nil, "q", nil)
	require.Error(t, err)
	_, err = reliable.New(rdb, "{q}", nil)
	require.ErrorContains(t, err, "queue name")

	q, err := reliable.New(rdb, "q", nil)
	require.NoError(t, err)
	h := reliable.NewMux()
	_, err = reliable.NewConsumer(q, nil, &reliable.ConsumerOptions{
		Concurrency: -1, WakeFallback: time.Hour, NoExtend: true, JobTimeout: time.Minute, DrainTimeout: time.Minute,
		Holder: strings.Repeat("x", 65),
	})
	for _, part := range []string{"Handler is nil", "Concurrency is -1", "WakeFallback is 1h", "JobTimeout of 1m0s: longer than the lease of 15s", "DrainTimeout of 1m0s", "holder has 65 bytes"} {
		require.ErrorContains(t, err, part)
	}
	_, err = reliable.NewConsumer(nil, h, nil)
	require.Error(t, err)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	onRing, err := reliable.New(ring, "q", nil)
	require.NoError(t, err)
	_, err = reliable.NewConsumer(onRing, h, nil)
	require.ErrorContains(t, err, "blocking connection")
}

func TestAClosedQueueRefuses(t *testing.T) {
	t.Parallel()
	q, err := reliable.New(redistest.Client(t), redistest.Queue(t), nil)
	require.NoError(t, err)
	put(t, q, job("k"))
	require.NoError(t, q.Close(t.Context()))
	_, err = q.Enqueue(t.Context(), job("k"))
	require.ErrorIs(t, err, reliable.ErrClosed)
	_, err = q.Claim(t.Context(), 1, nil)
	require.ErrorIs(t, err, reliable.ErrClosed)
}
