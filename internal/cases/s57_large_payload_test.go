package cases

import (
	"context"
	"crypto/sha256"
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

const sizeLimit = reliable.DefaultPayloadLimit

// Whether a payload fits is known before anything is sent, the registration of the queue included.
func TestS57_APayloadOverTheLimitIsRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	redistest.NeedServer(t)
	l := newLane(t, nil)
	proxy := redistest.Proxy(t, redistest.Addr(t))
	options := redistest.Options(t)
	options.Addr = proxy.Addr()
	rdb := redis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	q, err := reliable.New(rdb, l.name, nil)
	require.NoError(t, err)
	t.Cleanup(func() { closeBounded(t, q.Close) })

	for _, size := range []int{sizeLimit + 1, 64 << 20, 513 << 20} {
		item := reliable.Item{Kind: "case", ID: "too large", Payload: make([]byte, size)}
		for name, enqueue := range map[string]func() error{
			"Enqueue": func() error { _, err := q.Enqueue(t.Context(), item); return err },
			"EnqueueMany": func() error {
				results, err := q.EnqueueMany(t.Context(), []reliable.Item{item})
				require.NoError(t, err)
				return results[0].Err
			},
		} {
			err := enqueue()
			var large *reliable.TooLargeError
			require.ErrorAs(t, err, &large, "%s of %d bytes", name, size)
			require.Equal(t, reliable.TooLargeError{What: "payload", Size: size, Limit: sizeLimit}, *large)
			require.ErrorContains(t, err, strconv.Itoa(size))
			require.ErrorContains(t, err, strconv.Itoa(sizeLimit))
		}
	}
	require.Zero(t, proxy.Commands(), "something was sent")
	require.Empty(t, redistest.Dump(t, l.rdb, "", l.name))

	results, err := q.EnqueueMany(t.Context(), []reliable.Item{
		{Kind: "case", ID: "L-1", Payload: make([]byte, sizeLimit-1)},
		{Kind: "case", ID: "L+1", Payload: make([]byte, sizeLimit+1)},
		{Kind: "case", ID: "L", Payload: make([]byte, sizeLimit)},
	})
	require.NoError(t, err)
	require.NoError(t, results[0].Err)
	require.Error(t, results[1].Err)
	require.NoError(t, results[2].Err)
	require.ElementsMatch(t, []string{"L-1", "L"}, l.members(lease.Due))
}

// A producer whose own limit is higher than what the queue publishes is refused by the script, and nothing is stored.
func TestS57_ThePublishedLimitHoldsForAProducerWithAHigherOne(t *testing.T) {
	t.Parallel()
	l := newLane(t, &reliable.QueueOptions{PayloadLimit: 1000})
	require.Empty(t, l.claim(1)) // publishes
	other := laneOn(t, l.name, l.rdb, &reliable.QueueOptions{PayloadLimit: 10_000})
	results, err := other.queue.EnqueueMany(t.Context(), []reliable.Item{
		{Kind: "case", ID: "1000", Payload: make([]byte, 1000)},
		{Kind: "case", ID: "1001", Payload: make([]byte, 1001)},
	})
	require.NoError(t, err)
	require.NoError(t, results[0].Err)
	var large *reliable.TooLargeError
	require.ErrorAs(t, results[1].Err, &large)
	require.Equal(t, 1001, large.Size)
	require.Equal(t, []string{"1000"}, l.members(lease.Due))
	require.EqualValues(t, 1, l.stats().Records)
}

// storedWithin asserts that each record is at most 1 KB larger than its payload, and that the whole queue takes at most
// 1 KB a job more than the same bytes as plain strings: nothing of a payload lies in a second place. Allocators round
// large values up, so the plain strings are what is measured against.
func (l *lane) storedWithin(stage string, jobs, payload int) {
	l.t.Helper()
	ctx := l.t.Context()
	ids, err := l.rdb.HKeys(ctx, l.keys.Key("jobs")).Result()
	require.NoError(l.t, err)
	require.Len(l.t, ids, jobs, stage)
	for _, id := range ids {
		size, err := l.rdb.HStrLen(ctx, l.keys.Key("jobs"), id).Result()
		require.NoError(l.t, err)
		require.LessOrEqual(l.t, int(size), payload+1024, stage)
	}
	record, err := l.rdb.HGet(ctx, l.keys.Key("jobs"), ids[0]).Result()
	require.NoError(l.t, err)
	plain := "case:plain:" + l.name
	defer l.rdb.Del(context.Background(), plain)
	require.NoError(l.t, l.rdb.Set(ctx, plain, record, time.Minute).Err())
	one, err := l.rdb.MemoryUsage(ctx, plain, 0).Result()
	require.NoError(l.t, err)
	total := int64(0)
	for _, key := range l.keys.All() {
		used, err := l.rdb.MemoryUsage(ctx, key, 0).Result()
		if !errors.Is(err, redis.Nil) {
			require.NoError(l.t, err)
		}
		total += used
	}
	require.LessOrEqual(l.t, total, int64(jobs)*(one+1024), "%s: bytes of %d jobs, each %d as a plain string", stage, jobs, one)
}

func TestS57_JobsOfTheGreatestSizeGoThroughRetryAndDead(t *testing.T) {
	t.Parallel()
	redistest.NeedServer(t)
	n := shape(20, 100)
	l := newLane(t, &reliable.QueueOptions{MaxRetries: limitOf(1)})
	payload := make([]byte, sizeLimit)
	for i := range payload {
		payload[i] = byte(rand.Uint32())
	}
	sum := sha256.Sum256(payload)
	items := make([]reliable.Item, n)
	for i := range items {
		items[i] = reliable.Item{Kind: "case", ID: strconv.Itoa(i), Payload: payload}
	}
	l.enqueue(items...)
	l.storedWithin("due", n, sizeLimit)
	for failures := range 2 {
		held := l.claimInParts(n, sum)
		l.storedWithin("processing", n, sizeLimit)
		for _, job := range held {
			require.Equal(t, failures, job.Failures)
			require.NoError(t, job.Nack(t.Context(), reliable.RetryAfter(0, errors.New("failed"))))
		}
	}
	require.EqualValues(t, n, l.stats().Dead)
	l.storedWithin("dead", n, sizeLimit)
	var cursor reliable.Cursor
	for !cursor.Done {
		_, err := l.queue.RedriveNext(t.Context(), &cursor, 1000)
		require.NoError(t, err)
	}
	for _, job := range l.claimInParts(n, sum) {
		require.NoError(t, job.Ack(t.Context()))
	}
	l.balanced(n)
	require.Zero(t, l.stats().Records)
}

// claimInParts asks for all at once, and gets as many at a time as fit into the bytes of one answer.
func (l *lane) claimInParts(n int, sum [32]byte) []*reliable.Job {
	l.t.Helper()
	var held []*reliable.Job
	for len(held) < n {
		batch, err := l.queue.Claim(l.t.Context(), lease.MaxBatch, nil)
		require.NoError(l.t, err)
		require.NotEmpty(l.t, batch.Jobs, "%d of %d", len(held), n)
		bytes := 0
		for _, job := range batch.Jobs {
			bytes += len(job.Payload)
			require.Equal(l.t, sum, sha256.Sum256(job.Payload))
		}
		require.LessOrEqual(l.t, bytes, lease.MaxBytes, "of one answer")
		require.Zero(l.t, batch.NextDue)
		held = append(held, batch.Jobs...)
	}
	require.Len(l.t, held, n)
	return held
}

// One payload may be larger than what an answer holds otherwise: it comes alone.
func TestS57_AJobLargerThanAWholeAnswerComesAlone(t *testing.T) {
	t.Parallel()
	size := shape(6<<20, 64<<20)
	l := newLane(t, &reliable.QueueOptions{PayloadLimit: size})
	_, err := l.queue.Enqueue(t.Context(), reliable.Item{Kind: "case", ID: "over", Payload: make([]byte, size+1)})
	var large *reliable.TooLargeError
	require.ErrorAs(t, err, &large)
	l.enqueue(
		reliable.Item{Kind: "case", ID: "a", Payload: []byte("small")},
		reliable.Item{Kind: "case", ID: "b", Payload: make([]byte, size)},
		reliable.Item{Kind: "case", ID: "c", Payload: []byte("small")},
	)
	l.setScores(lease.Due, "1000", "a", "b", "c")
	for _, id := range []string{"a", "b", "c"} {
		jobs := l.claim(10)
		require.Len(t, jobs, 1, id)
		require.Equal(t, id, jobs[0].ID)
		require.NoError(t, jobs[0].Ack(t.Context()))
	}
	l.balanced(3)
}

// countingReads returns a client of the shared server that counts the bytes it was sent.
func countingReads(t testing.TB) (*redis.Client, *atomic.Int64) {
	t.Helper()
	var n atomic.Int64
	options := redistest.Options(t)
	options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &countedConn{Conn: conn, read: &n}, err
	}
	rdb := redis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	return rdb, &n
}

type countedConn struct {
	net.Conn
	read *atomic.Int64
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Add(int64(n))
	return n, err
}

// Looking at a queue costs the same whatever its payloads are.
func TestS57_ListingAndCountingDoNotPullPayloads(t *testing.T) {
	t.Parallel()
	const n = 10
	l := newLane(t, nil)
	for i := range n {
		l.enqueue(reliable.Item{Kind: "case", ID: strconv.Itoa(i), Payload: make([]byte, sizeLimit)})
	}
	rdb, read := countingReads(t)
	watched := laneOn(t, l.name, rdb, nil)
	require.EqualValues(t, n, watched.stats().Due)
	before := read.Load()
	require.EqualValues(t, n, watched.stats().Due)
	listed, err := watched.store.List(t.Context(), lease.Due, 1000, nil)
	require.NoError(t, err)
	ids := listed.IDs
	require.Len(t, ids, n)
	require.Less(t, read.Load()-before, int64(4096), "bytes of stats and IDs")
}
