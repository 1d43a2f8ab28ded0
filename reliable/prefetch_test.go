package reliable_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/reliable"
)

func TestPrefetchedJobsWaitUnderTheirLeasesAndGoBackUncountedAtTheStop(t *testing.T) {
	t.Parallel()
	o := quick()
	o.Lease = 2 * time.Second // it must outlive a moment in which this process stands still
	q := newQueue(t, o)
	put(t, q, jobs("k", 20)...)
	started, goOn := make(chan string, 20), make(chan struct{})
	stop := runConsumer(t, q, reliable.HandlerFunc(func(_ context.Context, j *reliable.Job) error {
		started <- j.ID
		<-goOn
		return nil
	}), &reliable.ConsumerOptions{Concurrency: 1, Prefetch: 10})
	receive(t, started)
	await(t, q, "one runs, and ten wait", func(s reliable.Stats) bool { return s.Processing == 11 })
	time.Sleep(o.Lease * 3 / 2)
	s := await(t, q, "they are extended", func(s reliable.Stats) bool { return s.Processing == 11 })
	require.Zero(t, s.Counters["expired"])
	require.Empty(t, started, "one handler at a time")
	go func() {
		await(t, q, "what has not started goes back at once", func(s reliable.Stats) bool { return s.Processing == 1 && s.Due == 19 })
		close(goOn)
	}()
	require.NoError(t, stop())
	s = await(t, q, "settled", func(s reliable.Stats) bool { return s.Processing == 0 })
	assert.EqualValues(t, 1, s.Counters["acked"])
	assert.EqualValues(t, 10, s.Counters["released"])
	assert.EqualValues(t, 19, s.Due)

	page, err := q.List(t.Context(), reliable.Due, 100, nil)
	require.NoError(t, err)
	for _, info := range page.Jobs {
		assert.Zero(t, info.Failures+info.Expiries, info.ID)
	}
}

func TestPrefetchedJobsAreAllWorkedOffInTurn(t *testing.T) {
	t.Parallel()
	q := newQueue(t, quick())
	var running, most, ran atomic.Int64
	runConsumer(t, q, reliable.HandlerFunc(func(context.Context, *reliable.Job) error {
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		ran.Add(1)
		return nil
	}), &reliable.ConsumerOptions{Concurrency: 1, Prefetch: 100})
	put(t, q, jobs("k", 1000)...)
	await(t, q, "acked", func(s reliable.Stats) bool { return s.Counters["acked"] == 1000 })
	assert.EqualValues(t, 1, most.Load())
	assert.EqualValues(t, 1000, ran.Load())
}

func TestPrefetchAndBatchesThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	h := reliable.HandlerFunc(func(context.Context, *reliable.Job) error { return nil })
	for want, o := range map[string]*reliable.ConsumerOptions{
		"Prefetch is -1: want 0 to 10000":                                           {Prefetch: -1},
		"Prefetch is 10001: want 0 to 10000":                                        {Prefetch: 10_001},
		"NoExtend with a Prefetch of 1: the leases of jobs that wait would run out": {Prefetch: 1, NoExtend: true},
	} {
		_, err := reliable.NewConsumer(q, h, o)
		require.ErrorContains(t, err, want)
	}
	_, err := reliable.NewConsumer(q, h, &reliable.ConsumerOptions{Prefetch: 10_000})
	require.NoError(t, err)

	mux := reliable.NewMux()
	require.NoError(t, insert(mux))
	_, err = reliable.NewConsumer(q, mux, &reliable.ConsumerOptions{Concurrency: 99})
	require.ErrorContains(t, err, `batches of 100 jobs of kind "row.insert" with a Concurrency of 99: they are never full; want at least as much`)
	_, err = reliable.NewConsumer(q, mux, &reliable.ConsumerOptions{Concurrency: 100})
	require.NoError(t, err)
}

func TestEachHandlerThatRunsTooLongIsFoundInItsTime(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	goOn, started := make(chan struct{}), make(chan string, 10)
	deaf := func(_ context.Context, j *reliable.Job) error {
		started <- j.Kind
		<-goOn
		return nil
	}
	mux := reliable.NewMux()
	kinds := map[string]time.Duration{"long": 600 * time.Millisecond, "short": 100 * time.Millisecond, "never": 0}
	for kind, timeout := range kinds {
		require.NoError(t, mux.HandleFunc(kind, deaf, &reliable.HandleOptions{Timeout: timeout}))
	}
	overdue := make(chan reliable.Event, 10)
	runConsumer(t, q, mux, &reliable.ConsumerOptions{NoSweep: true, Hooks: &reliable.Hooks{
		OnOverdue: func(_ context.Context, e reliable.Event) { overdue <- e },
	}})
	put(t, q, job("never"), job("long"))
	receive(t, started)
	receive(t, started)
	put(t, q, job("short")) // whose time is over first, though it began last
	for _, kind := range []string{"short", "long"} {
		e := receive(t, overdue)
		assert.Equal(t, kind, e.Kind)
		assert.Equal(t, reliable.ErrJobTimeout, e.Err)
		assert.GreaterOrEqual(t, e.RunTime, kinds[kind])
	}
	close(goOn)
	await(t, q, "acked", func(s reliable.Stats) bool { return s.Counters["acked"] == 3 })
	require.Empty(t, overdue)
}
