package reliable_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

// A counter notes the enqueue calls that a proxy sees, and what each holds.
type counter struct {
	sha    string
	mu     sync.Mutex
	bytes  []int
	action func(n int) netfault.Action // nil: all pass
}

// countingCalls makes a queue behind a proxy that notes its enqueue calls, and a second one that reaches Redis directly.
func countingCalls(t *testing.T, action func(n int) netfault.Action) (q, direct *reliable.Queue, c *counter, p *netfault.Proxy) {
	t.Helper()
	name := redistest.Queue(t)
	o := redistest.Options(t)
	p = redistest.Proxy(t, o.Addr)
	direct = queueOn(t, redistest.Client(t), name, nil)
	put(t, direct, job("first")) // the registry has the queue, and Redis the script
	o.Addr, o.ReadTimeout, o.PoolSize = p.Addr(), time.Minute, 100
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	q = queueOn(t, rdb, name, nil)
	put(t, q, job("second")) // this process has registered the queue, and opened a session
	c = &counter{action: action}
	for _, s := range lease.Scripts() {
		if s.Name == "enqueue" {
			c.sha = s.SHA()
		}
	}
	p.Decide(c.note)
	return q, direct, c, p
}

func (c *counter) note(cmd []string) netfault.Action {
	if len(cmd) < 2 || cmd[1] != c.sha {
		return netfault.Pass
	}
	size := 0
	for _, arg := range cmd {
		size += len(arg)
	}
	c.mu.Lock()
	c.bytes = append(c.bytes, size)
	n := len(c.bytes)
	c.mu.Unlock()
	if c.action == nil {
		return netfault.Pass
	}
	return c.action(n)
}

func (c *counter) calls() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.bytes)
}

// holding keeps back the calls with these numbers.
func holding(numbers ...int) func(n int) netfault.Action {
	return func(n int) netfault.Action {
		if slices.Contains(numbers, n) {
			return netfault.Hold
		}
		return netfault.Pass
	}
}

type answer struct {
	got reliable.Enqueued
	err error
}

func enqueueAside(ctx context.Context, q *reliable.Queue, item reliable.Item) <-chan answer {
	answers := make(chan answer, 1)
	go func() {
		got, err := q.Enqueue(ctx, item)
		answers <- answer{got, err}
	}()
	return answers
}

func placeOf(t *testing.T, q *reliable.Queue, id string) lease.Place {
	t.Helper()
	found, err := q.Inspect(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, found, 1)
	return found[0].Place
}

func awaitCalls(t *testing.T, c *counter, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return len(c.calls()) >= n }, 20*time.Second, time.Millisecond)
}

// occupy has as many calls under way, held by the proxy, as there are at a time; what is enqueued then waits.
func occupy(t *testing.T, q *reliable.Queue, c *counter) []<-chan answer {
	t.Helper()
	var out []<-chan answer
	for n := 1; n <= 2; n++ {
		out = append(out, enqueueAside(t.Context(), q, job("k")))
		awaitCalls(t, c, n)
	}
	return out
}

func awaitWaiting(t *testing.T, q *reliable.Queue, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return q.WaitingToEnqueue() == n }, 20*time.Second, time.Millisecond)
}

func TestCallersOfOneProcessShareRoundTrips(t *testing.T) {
	t.Parallel()
	const callers, each = 50, 20
	q, direct, c, p := countingCalls(t, nil)
	p.Delay(5 * time.Millisecond)
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range each {
				_, err := q.Enqueue(t.Context(), job("x"))
				assert.NoError(t, err)
			}
		})
	}
	all.Wait()
	p.Delay(0)
	assert.Less(t, len(c.calls()), callers*each/10, "calls for %d jobs", callers*each)
	stats, err := direct.Stats(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 2+callers*each, stats.Due)
}

func TestACallerThatLeavesASharedRoundTripLeavesTheOthersAlone(t *testing.T) {
	t.Parallel()
	q, direct, c, p := countingCalls(t, holding(1, 2, 3))
	first := occupy(t, q, c)
	early, leaveEarly := context.WithCancel(t.Context())
	late, leaveLate := context.WithCancel(t.Context())
	defer leaveLate()
	a := enqueueAside(early, q, reliable.Item{Kind: "k", ID: "early"})
	b := enqueueAside(late, q, reliable.Item{Kind: "k", ID: "late"})
	stays := enqueueAside(t.Context(), q, reliable.Item{Kind: "k", ID: "stays"})
	awaitWaiting(t, q, 3)
	require.Len(t, c.calls(), 2, "they wait for those that are under way")

	leaveEarly()
	var before, after *reliable.UnknownError
	require.ErrorAs(t, receive(t, a).err, &before)
	assert.ErrorIs(t, before, context.Canceled)
	assert.ErrorIs(t, before.Resolve(t.Context()), reliable.ErrNeverRan, "it was not sent yet")

	p.ReleaseHeld()
	for _, a := range first {
		require.NoError(t, receive(t, a).err)
	}
	awaitCalls(t, c, 3)
	leaveLate()
	require.ErrorAs(t, receive(t, b).err, &after)
	select {
	case <-stays:
		require.FailNow(t, "its call is still held")
	default:
	}
	p.Decide(nil)
	p.ReleaseHeld()
	require.NoError(t, receive(t, stays).err)
	for range 2 {
		require.NoError(t, after.Resolve(t.Context()), "its job stayed in the call, however often it is asked")
	}
	for id, there := range map[string]bool{"early": false, "late": true, "stays": true} {
		assert.Equal(t, there, placeOf(t, direct, id) == lease.Due, id)
	}
}

func TestASharedRoundTripIsSealedOnceAllItsCallersHaveLeft(t *testing.T) {
	t.Parallel()
	q, direct, c, p := countingCalls(t, holding(1, 2, 3))
	first := occupy(t, q, c)
	ctx, leave := context.WithCancel(t.Context())
	var answers []<-chan answer
	for i := range 5 {
		answers = append(answers, enqueueAside(ctx, q, reliable.Item{Kind: "k", ID: fmt.Sprint("shared", i)}))
	}
	awaitWaiting(t, q, 5)
	p.ReleaseHeld()
	for _, a := range first {
		require.NoError(t, receive(t, a).err)
	}
	awaitCalls(t, c, 3)
	leave()
	for _, a := range answers {
		var unknown *reliable.UnknownError
		require.ErrorAs(t, receive(t, a).err, &unknown)
		assert.ErrorIs(t, unknown.Resolve(t.Context()), reliable.ErrNeverRan, "the seal overtook the call")
	}
	p.Decide(nil)
	p.ReleaseHeld()
	stats, err := direct.Stats(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 4, stats.Due)
}

func TestOneCallersBadJobFailsNoOther(t *testing.T) {
	t.Parallel()
	q, direct, c, p := countingCalls(t, holding(1, 2))
	publisher := queueOn(t, redistest.Client(t), q.Name(), &reliable.QueueOptions{PayloadLimit: 100})
	_, err := publisher.Claim(t.Context(), 1, nil)
	require.NoError(t, err)
	put(t, direct, reliable.Item{Kind: "k", ID: "taken"})
	first := occupy(t, q, c)
	good := []<-chan answer{enqueueAside(t.Context(), q, reliable.Item{Kind: "k", ID: "good1"})}
	duplicate := enqueueAside(t.Context(), q, reliable.Item{Kind: "k", ID: "taken"})
	large := enqueueAside(t.Context(), q, reliable.Item{Kind: "k", ID: "large", Payload: make([]byte, 101)})
	kind := enqueueAside(t.Context(), q, reliable.Item{Kind: "no kind"})
	good = append(good, enqueueAside(t.Context(), q, reliable.Item{Kind: "k", ID: "good2"}))
	assert.ErrorContains(t, receive(t, kind).err, "kind", "told without being sent")
	awaitWaiting(t, q, 4)
	p.ReleaseHeld()
	for _, a := range first {
		require.NoError(t, receive(t, a).err)
	}
	var isDuplicate *reliable.DuplicateError
	assert.ErrorAs(t, receive(t, duplicate).err, &isDuplicate)
	var isTooLarge *reliable.TooLargeError
	assert.ErrorAs(t, receive(t, large).err, &isTooLarge)
	for _, g := range good {
		assert.NoError(t, receive(t, g).err)
	}
	assert.Len(t, c.calls(), 3, "all four in one call")
}

func TestSharedRoundTripsKeepTheByteBudget(t *testing.T) {
	t.Parallel()
	q, direct, c, p := countingCalls(t, holding(1, 2))
	first := occupy(t, q, c)
	var answers []<-chan answer
	for range 24 {
		answers = append(answers, enqueueAside(t.Context(), q, reliable.Item{Kind: "k", Payload: make([]byte, 500<<10)}))
	}
	awaitCalls(t, c, 3) // a full batch does not wait for those under way
	p.ReleaseHeld()
	for _, a := range first {
		require.NoError(t, receive(t, a).err)
	}
	for _, a := range answers {
		require.NoError(t, receive(t, a).err)
	}
	for _, size := range c.calls() {
		assert.Less(t, size, lease.MaxBytes+4096)
	}
	stats, err := direct.Stats(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 2+2+24, stats.Due)
}

func TestCloseLetsWaitingCallersGo(t *testing.T) {
	t.Parallel()
	q, _, c, p := countingCalls(t, func(int) netfault.Action { return netfault.Hold }) // repeats too
	first := occupy(t, q, c)
	var others []<-chan answer
	for range 3 {
		others = append(others, enqueueAside(t.Context(), q, job("k")))
	}
	awaitWaiting(t, q, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- q.Close(ctx) }()
	for _, a := range first {
		assert.ErrorIs(t, receive(t, a).err, reliable.ErrNeverKnown)
	}
	for _, a := range others {
		assert.ErrorIs(t, receive(t, a).err, reliable.ErrClosed)
	}
	p.Decide(nil)
	p.ReleaseHeld() // Close waits for what the client has on the wire
	require.ErrorIs(t, receive(t, closed), context.DeadlineExceeded)
}

func TestEveryCallerOfAStormLearnsTheTruth(t *testing.T) {
	t.Parallel()
	var dropped atomic.Int64
	q, direct, _, p := countingCalls(t, func(n int) netfault.Action {
		switch n % 7 {
		case 3:
			dropped.Add(1)
			return netfault.DropReply
		case 5:
			return netfault.DropRequest
		}
		return netfault.Pass
	})
	const callers, each = 40, 25
	var mu sync.Mutex
	truths := map[string]error{}
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for i := range each {
				id := fmt.Sprintf("c%d-%d", c, i)
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+(c*i)%12)*time.Millisecond)
				_, err := q.Enqueue(ctx, reliable.Item{Kind: "k", ID: id, Payload: []byte(strings.Repeat("x", 200))})
				cancel()
				var unknown *reliable.UnknownError
				if errors.As(err, &unknown) {
					err = unknown.Resolve(t.Context())
				}
				mu.Lock()
				truths[id] = err
				mu.Unlock()
			}
		})
	}
	all.Wait()
	p.Decide(nil)
	created := 0
	for id, err := range truths {
		if err == nil {
			created++
			assert.Equal(t, lease.Due, placeOf(t, direct, id), id)
			continue
		}
		assert.ErrorIs(t, err, reliable.ErrNeverRan, id)
		assert.Equal(t, lease.Nowhere, placeOf(t, direct, id), id)
	}
	t.Logf("%d of %d created, %d replies dropped", created, callers*each, dropped.Load())
	assert.Positive(t, created)
	assert.Positive(t, dropped.Load())
}
