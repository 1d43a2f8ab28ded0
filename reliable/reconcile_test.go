package reliable_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/reliable"
)

// overdue is a source of n orders, closed by the jobs close:0, close:1 …
func overdue(n int) reliable.Source {
	return func(context.Context) iter.Seq2[reliable.Item, error] {
		return func(yield func(reliable.Item, error) bool) {
			for i := range n {
				if !yield(closing(i), nil) {
					return
				}
			}
		}
	}
}

func closing(i int) reliable.Item {
	return reliable.Item{ID: fmt.Sprintf("close:%d", i), Kind: "order.close"}
}

// listed is a source of these items, and of a failure behind them unless that is nil.
func listed(failure error, items ...reliable.Item) reliable.Source {
	return func(context.Context) iter.Seq2[reliable.Item, error] {
		return func(yield func(reliable.Item, error) bool) {
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if failure != nil {
				yield(reliable.Item{}, failure)
			}
		}
	}
}

func newReconcile(t *testing.T, q *reliable.Queue, source reliable.Source, o *reliable.ReconcileOptions) *reliable.Reconcile {
	t.Helper()
	r, err := reliable.NewReconcile(q, source, o)
	require.NoError(t, err)
	return r
}

func fast() *reliable.ReconcileOptions { return &reliable.ReconcileOptions{Rate: 1_000_000} }

// requireEachCountedOnce fails where an item was counted twice or not at all.
func requireEachCountedOnce(t *testing.T, p reliable.Pass) {
	t.Helper()
	sum := p.Created + p.Refused + p.Unknown + p.Unsent
	for _, n := range p.There {
		sum += n
	}
	assert.Equal(t, p.Read, sum, "%+v", p)
}

func TestAScanMakesWhatIsMissingAndLeavesTheRestWhereItIs(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	later := closing(3)
	later.Delay = time.Hour
	put(t, q, closing(1), closing(2), later)
	batch, err := q.Claim(t.Context(), 2, nil)
	require.NoError(t, err)
	require.Len(t, batch.Jobs, 2)
	require.NoError(t, batch.Jobs[1].Bury(t.Context(), errors.New("for good")))
	r := newReconcile(t, q, overdue(700), fast())

	p, err := r.Pass(t.Context())
	require.NoError(t, err)
	requireEachCountedOnce(t, p)
	require.EqualValues(t, 700, p.Read)
	require.EqualValues(t, 697, p.Created)
	require.Equal(t, map[reliable.Place]int64{reliable.Processing: 1, reliable.Dead: 1, reliable.Due: 1}, p.There)

	p, err = r.Pass(t.Context())
	require.NoError(t, err)
	require.Zero(t, p.Created)
	require.EqualValues(t, 698, p.There[reliable.Due])
}

func TestAScanRefusesItemsAndGoesOn(t *testing.T) {
	t.Parallel()
	q := newQueue(t, &reliable.QueueOptions{PayloadLimit: 10})
	r := newReconcile(t, q, listed(nil,
		reliable.Item{Kind: "order.close"},
		reliable.Item{ID: "a", Kind: "no kind"},
		reliable.Item{ID: "b", Kind: "order.close", Payload: make([]byte, 11)},
		reliable.Item{ID: "c", Kind: "order.close"},
	), nil)
	p, err := r.Pass(t.Context())
	require.NoError(t, err)
	requireEachCountedOnce(t, p)
	require.EqualValues(t, 1, p.Created)
	require.EqualValues(t, 3, p.Refused)
	require.Len(t, p.Refusals, 3)
	require.ErrorIs(t, p.Refusals[0].Err, reliable.ErrNoID)
	require.ErrorContains(t, p.Refusals[1].Err, "no kind")
	require.ErrorAs(t, p.Refusals[2].Err, new(*reliable.TooLargeError))
}

func TestAScanSendsWhatCameBeforeItsSourceFailed(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	broken := errors.New("the table is gone")
	p, err := newReconcile(t, q, listed(broken, closing(1), closing(2)), nil).Pass(t.Context())
	require.ErrorIs(t, err, broken)
	require.ErrorAs(t, err, new(*reliable.SourceError))
	requireEachCountedOnce(t, p)
	require.EqualValues(t, 2, p.Created)
}

func TestScansSideBySideWithAProducerAndAConsumerMakeEachJobOnce(t *testing.T) {
	t.Parallel()
	const n = 2000
	q := newQueue(t, nil)
	var ran, created atomic.Int64
	runConsumer(t, q, reliable.HandlerFunc(func(context.Context, *reliable.Job) error {
		ran.Add(1)
		return reliable.ReleaseAfter(time.Hour, nil) // the job stays in the queue
	}), nil)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			p, err := newReconcile(t, q, overdue(n), fast()).Pass(t.Context())
			assert.NoError(t, err)
			requireEachCountedOnce(t, p)
			created.Add(p.Created)
		})
	}
	all.Go(func() {
		for i := 0; i < n; i += 2 {
			if _, err := q.Enqueue(t.Context(), closing(i)); err == nil {
				created.Add(1)
			} else {
				assert.ErrorIs(t, err, reliable.ErrDuplicate)
			}
		}
	})
	all.Wait()
	require.EqualValues(t, n, created.Load())
	await(t, q, "every job ran", func(s reliable.Stats) bool { return s.Processing == 0 && ran.Load() >= n })
	require.EqualValues(t, n, ran.Load())
}

func TestAScanKeepsToItsRate(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	p, err := newReconcile(t, q, overdue(300), &reliable.ReconcileOptions{Rate: 500, Batch: 100}).Pass(t.Context())
	require.NoError(t, err)
	require.GreaterOrEqual(t, p.Took, 400*time.Millisecond, "two waits of 200 ms between three batches")
}

func TestReconcileOptionsThatCannotBeAreRefusedAllAtOnce(t *testing.T) {
	t.Parallel()
	_, err := reliable.NewReconcile(nil, nil, &reliable.ReconcileOptions{Interval: time.Millisecond, Rate: -1, Batch: 257})
	for _, part := range []string{"Queue is nil", "Source is nil", "Interval is 1ms", "Rate is -1", "Batch is 257"} {
		require.ErrorContains(t, err, part)
	}
}

func TestReconcileRunsOnceAtATimeAndReturnsWhenItsContextOrItsQueueEnds(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var r *reliable.Reconcile
	var passes int
	r = newReconcile(t, q, overdue(3), &reliable.ReconcileOptions{Interval: 10 * time.Millisecond, OnPass: func(p reliable.Pass, err error) {
		assert.NoError(t, err)
		assert.ErrorIs(t, r.Run(ctx), reliable.ErrRunning)
		if passes++; passes == 3 {
			cancel()
		}
	}})
	require.NoError(t, r.Run(ctx))
	require.Equal(t, 3, passes)
	require.NoError(t, q.Close(t.Context()))
	require.ErrorIs(t, newReconcile(t, q, overdue(3), nil).Run(t.Context()), reliable.ErrClosed)
}
