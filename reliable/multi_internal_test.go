package reliable

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
)

// gated is a consumer of several queues whose handlers tell of their start, and wait until they are let go.
type gated struct {
	*MultiConsumer
	queues []*Queue
	starts chan int // the queue's place
	letGo  chan struct{}
	stop   func() error
}

func runGated(t *testing.T, queues, slots int, weight func(i int) int, o *MultiOptions) *gated {
	t.Helper()
	g := &gated{starts: make(chan int), letGo: make(chan struct{})}
	var shares []Share
	for i := range queues {
		q, err := New(redistest.Client(t), redistest.Queue(t), &QueueOptions{Lease: 5 * time.Second})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, q.Close(context.Background())) })
		g.queues = append(g.queues, q)
		shares = append(shares, Share{Queue: q, Weight: weight(i), Handler: HandlerFunc(func(ctx context.Context, _ *Job) error {
			select {
			case g.starts <- i:
			case <-ctx.Done():
				return ctx.Err()
			}
			select {
			case <-g.letGo:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})})
	}
	o.Consumer.Concurrency, o.Consumer.DrainTimeout = slots, time.Millisecond
	var err error
	g.MultiConsumer, err = NewMultiConsumer(shares, o)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	g.stop = func() error { cancel(); return <-ended }
	return g
}

func (g *gated) put(t *testing.T, i, n int) {
	t.Helper()
	for range n {
		_, err := g.queues[i].Enqueue(t.Context(), Item{Kind: "k"})
		require.NoError(t, err)
	}
}

// started waits for the next start.
func (g *gated) started(t *testing.T) int {
	t.Helper()
	select {
	case i := <-g.starts:
		return i
	case <-time.After(20 * time.Second):
		require.FailNow(t, "no job begins")
		return 0
	}
}

// waiting waits until a queue has something to claim, and no slot for it.
func (g *gated) waiting(t *testing.T, i int) {
	t.Helper()
	require.Eventually(t, func() bool {
		r := g.consumers[i].current.Load()
		return r != nil && r.waits.Load()
	}, 20*time.Second, time.Millisecond, "queue %d waits for a slot", i)
}

func equal(int) int   { return 1 }
func inOrder(int) int { return 0 }
func heavy(i int) int { return 1 + 99*i }

func TestAQueueHasAllSlotsWhileTheOthersHaveNothingDue(t *testing.T) {
	t.Parallel()
	for _, o := range []*MultiOptions{{}, {Strict: true}} {
		t.Run(fmt.Sprintf("strict=%v", o.Strict), func(t *testing.T) {
			t.Parallel()
			weight := heavy
			if o.Strict {
				weight = inOrder
			}
			g := runGated(t, 2, 5, weight, o)
			g.put(t, 0, 5)
			for range 5 {
				require.Zero(t, g.started(t))
			}
			require.NoError(t, g.stop())
		})
	}
}

// The slots that become free go to a queue that had nothing due until then by its weight, not by what it missed.
func TestAQueueThatBecomesBusyGetsItsShareWithTheNextSlots(t *testing.T) {
	t.Parallel()
	g := runGated(t, 2, 2, equal, &MultiOptions{})
	g.put(t, 0, 20)
	g.started(t)
	g.started(t)
	for range 6 {
		g.letGo <- struct{}{}
		require.Zero(t, g.started(t))
	}
	g.put(t, 1, 20)
	var begun [2]int
	for range 10 {
		g.waiting(t, 0)
		g.waiting(t, 1)
		g.letGo <- struct{}{}
		begun[g.started(t)]++
	}
	require.Equal(t, [2]int{5, 5}, begun)
	require.NoError(t, g.stop())
}

func TestInStrictOrderTheFirstQueueThatHasWorkComesFirst(t *testing.T) {
	t.Parallel()
	g := runGated(t, 4, 1, inOrder, &MultiOptions{Strict: true})
	g.put(t, 3, 1) // has the slot until all have jobs
	require.Equal(t, 3, g.started(t))
	want := []int{0, 0, 0, 1, 1, 1, 2, 2, 2} // of those before it a queue sees less than fairTurns begin
	for _, i := range want {
		g.put(t, 2-i, 1)
	}
	for i := range want {
		for later := want[i]; later < 3; later++ {
			g.waiting(t, later)
		}
		g.letGo <- struct{}{}
		require.Equal(t, want[i], g.started(t), "job %d", i)
	}
	require.NoError(t, g.stop())
}

// While the first queue always has work, one job after ten of its own is another's, if a second has passed.
func TestInStrictOrderAQueueThatWaitsLongGetsASlot(t *testing.T) {
	t.Parallel()
	g := runGated(t, 2, 1, inOrder, &MultiOptions{Strict: true})
	g.put(t, 0, 40)
	require.Zero(t, g.started(t))
	g.put(t, 1, 5)
	g.waiting(t, 1)
	slots := g.consumers[0].current.Load().share.slots
	for round := range 3 {
		for n := 0; ; n++ {
			g.waiting(t, 0)
			g.waiting(t, 1)
			for range longWait + 1 {
				slots.tick() // a second passes with each job
			}
			g.letGo <- struct{}{}
			if g.started(t) == 1 {
				if round > 0 { // before, it may have waited since its first claim
					require.Equal(t, fairTurns, n, "jobs of the first queue")
				}
				break
			}
			require.Less(t, n, fairTurns)
		}
	}
	require.NoError(t, g.stop())
}

func TestNoSlotOfSeveralQueuesIsLostWhateverHandlersDo(t *testing.T) {
	t.Parallel()
	const n, slots = 100, 4
	zero := 0
	var shares []Share
	var running, most atomic.Int64
	for range 2 {
		q, err := New(redistest.Client(t), redistest.Queue(t), &QueueOptions{MaxRetries: &zero})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, q.Close(context.Background())) })
		items := make([]Item, n)
		for i := range items {
			items[i] = Item{ID: fmt.Sprintf("job-%d", i), Kind: "k"}
		}
		_, err = q.EnqueueMany(t.Context(), items)
		require.NoError(t, err)
		shares = append(shares, Share{Queue: q, Handler: HandlerFunc(func(ctx context.Context, j *Job) error {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			return unruly(ctx, j)
		})})
	}
	m, err := NewMultiConsumer(shares, &MultiOptions{Consumer: ConsumerOptions{Concurrency: slots, JobTimeout: 20 * time.Millisecond}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	require.Eventually(t, func() bool {
		for _, s := range shares {
			stats, err := s.Queue.Stats(t.Context())
			if err != nil || stats.Due+stats.Processing > 0 {
				return false
			}
		}
		return true
	}, 60*time.Second, 10*time.Millisecond)
	a := m.consumers[0].current.Load().share.slots
	require.Eventually(t, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.free == slots || a.free+a.sharers[0].asked+a.sharers[1].asked == slots
	}, 20*time.Second, time.Millisecond, "all slots are free, or in a claim")
	require.LessOrEqual(t, most.Load(), int64(slots))
	cancel()
	require.NoError(t, <-ended)
}

func TestErrorsOfSeveralQueuesNameEach(t *testing.T) {
	t.Parallel()
	m := &MultiConsumer{consumers: []*Consumer{{queue: &Queue{name: "a"}}, {queue: &Queue{name: "b"}}, {queue: &Queue{name: "c"}}}}
	require.NoError(t, m.joinDrains(make([]error, 3)))
	cause := errors.New("it was away")
	err := m.joinDrains([]error{&DrainError{IDs: []string{"1", "2"}, Cause: cause}, nil, &DrainError{IDs: []string{"1"}, Cause: cause}})
	var drain *DrainError
	require.ErrorAs(t, err, &drain)
	require.Equal(t, []string{"1", "2", "1"}, drain.IDs)
	require.Equal(t, []string{"a", "a", "c"}, drain.Queues)
	require.ErrorIs(t, err, cause)
	require.ErrorContains(t, err, "queue a, 2 jobs: it was away\nqueue c, 1 jobs: it was away")
}
