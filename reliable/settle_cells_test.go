package reliable_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

const (
	cellDelay = time.Hour        // what RetryAfter is given
	far       = 1000 * time.Hour // back-offs: nothing that was put back is started again
)

// A row is one row of the table as it is played: six jobs, one for each column, held by one consumer.
type row struct {
	cause string
	want  error // the cause of the handlers' contexts
	queue string
	q     *reliable.Queue // on a connection that nothing happens to
	store *lease.Store    // as a sweeper elsewhere
	proxy *netfault.Proxy // between the consumer and Redis, if there is one
	ids   map[string]string
	stop  func() error // the consumer

	goOn   chan struct{} // closed: handlers may return
	finish chan struct{} // closed: those that never return do

	mu     sync.Mutex
	starts map[string][]reliable.Job // by column
	causes map[string]error
	began  chan struct{}
}

func TestEveryCellOfTheTableHappens(t *testing.T) {
	t.Parallel()
	redistest.NeedServer(t)
	table := reliable.ReadSettleTable(t, "../docs/consumer.md")
	plays := map[string]func(t *testing.T, r *row){
		"nothing": playNothing, "the job's timeout": playTimeout, "shutdown": playShutdown,
		"the local deadline": playDeadline, "the local deadline, where nobody extends": playNoExtend,
		"a lost lease": playLost, "a cancel": playCancel,
	}
	require.Len(t, table, len(plays))
	for cause, cells := range table {
		t.Run(cause, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, plays, cause)
			r := newRow(t, cause)
			plays[cause](t, r)
			r.check(t, cells)
		})
	}
}

func newRow(t *testing.T, cause string) *row {
	r := &row{
		cause: cause, queue: redistest.Queue(t), ids: map[string]string{},
		starts: map[string][]reliable.Job{}, causes: map[string]error{}, began: make(chan struct{}, 100),
		goOn: make(chan struct{}), finish: make(chan struct{}),
	}
	r.q = queueOn(t, redistest.Client(t), r.queue, cellQueue())
	var err error
	r.store, err = lease.NewStore(redistest.Client(t), r.queue, nil)
	require.NoError(t, err)
	for column := range reliable.ReturnedValues(0, nil) {
		r.ids[column] = put(t, r.q, job(column2kind(column)))[0]
	}
	r.ids[reliable.NeverReturned] = put(t, r.q, job(column2kind(reliable.NeverReturned)))[0]
	return r
}

func cellQueue() *reliable.QueueOptions {
	return &reliable.QueueOptions{
		Lease:   1500 * time.Millisecond,
		Backoff: reliable.Backoff{Base: far, Cap: far}, ExpiryBackoff: reliable.Backoff{Base: far, Cap: far},
	}
}

// column2kind makes a kind of a column's head.
func column2kind(column string) string {
	return strings.Map(func(r rune) rune {
		if r == ' ' || r == '`' || r == '(' || r == ')' {
			return '-'
		}
		return r
	}, column)
}

var errCell = errors.New("an error like any other")

// handle is the handler of all six jobs. A job that was released is put off when it comes a second time.
func (r *row) handle(ctx context.Context, j *reliable.Job) error {
	column := ""
	for c, id := range r.ids {
		if id == j.ID {
			column = c
		}
	}
	r.mu.Lock()
	r.starts[column] = append(r.starts[column], reliable.Job{Attempt: j.Attempt, DueAt: j.DueAt})
	again := len(r.starts[column]) > 1
	r.mu.Unlock()
	if again {
		return reliable.ReleaseAfter(far, nil)
	}
	r.began <- struct{}{}
	var cause error
	switch {
	case r.want == nil:
	case errors.Is(r.want, reliable.ErrLost):
		<-j.Context().Done() // where nobody extends the timeout may come in the same moment
		cause = context.Cause(j.Context())
	default:
		<-ctx.Done()
		cause = context.Cause(ctx)
	}
	r.mu.Lock()
	r.causes[column] = cause
	r.mu.Unlock()
	if column == reliable.NeverReturned {
		<-r.finish
		return nil
	}
	<-r.goOn
	return reliable.ReturnedValues(cellDelay, errCell)[column]
}

// run starts the consumer, on a client of its own, and waits until all six handlers have begun.
func (r *row) run(t *testing.T, want error, o *reliable.ConsumerOptions) {
	t.Helper()
	r.want, o.Concurrency = want, len(r.ids)
	options := redistest.Options(t)
	options.ReadTimeout = 500 * time.Millisecond
	if r.proxy != nil {
		options.Addr = r.proxy.Addr()
	}
	rdb := redis.NewClient(options)
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	r.stop = runConsumer(t, queueOn(t, rdb, r.queue, cellQueue()), reliable.HandlerFunc(r.handle), o)
	t.Cleanup(func() { close(r.finish) })
	for range r.ids {
		receive(t, r.began)
	}
}

// allEnded waits until the contexts of all handlers have ended.
func (r *row) allEnded(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.causes) == len(r.ids)
	}, 20*time.Second, 5*time.Millisecond)
}

// settled waits until so many verdicts were taken, or refused.
func (r *row) settled(t *testing.T, n int64) {
	t.Helper()
	await(t, r.q, "settled", func(s reliable.Stats) bool {
		c := s.Counters
		return c["acked"]+c["nacked"]+c["buried"]+c["released"]+c["cancelled_processing"]+c["refused"] >= n
	})
}

// sweep is a sweeper elsewhere that ends what has run out, until so many jobs were expired or removed.
func (r *row) sweep(t *testing.T, counter string, n int64) {
	t.Helper()
	await(t, r.q, counter, func(s reliable.Stats) bool {
		if s.Counters[counter] < n {
			_, err := r.store.Expire(context.Background(), 100, true)
			assert.NoError(t, err)
		}
		return s.Counters[counter] == n
	})
}

func playNothing(t *testing.T, r *row) {
	close(r.goOn)
	r.run(t, nil, &reliable.ConsumerOptions{})
	r.settled(t, 6) // the released one twice
	first, err := r.q.Inspect(t.Context(), r.ids[reliable.NeverReturned])
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		now, err := r.q.Inspect(t.Context(), r.ids[reliable.NeverReturned])
		return err == nil && now[0].At.Sub(first[0].At) > cellQueue().Lease
	}, 20*time.Second, 10*time.Millisecond, "its lease is extended beyond where it would have ended")
}

func playTimeout(t *testing.T, r *row) {
	close(r.goOn)
	r.run(t, reliable.ErrJobTimeout, &reliable.ConsumerOptions{JobTimeout: 100 * time.Millisecond})
	r.settled(t, 6)
	await(t, r.q, "expired", func(s reliable.Stats) bool { return s.Counters["expired"] == 1 })
}

func playShutdown(t *testing.T, r *row) {
	close(r.goOn)
	r.run(t, reliable.ErrShutdown, &reliable.ConsumerOptions{DrainTimeout: 50 * time.Millisecond})
	require.NoError(t, r.stop())
}

func playDeadline(t *testing.T, r *row) {
	close(r.goOn)
	r.proxy = redistest.Proxy(t, redistest.Addr(t))
	r.run(t, reliable.ErrLost, &reliable.ConsumerOptions{NoSweep: true})
	r.proxy.BlackHole(true)
	r.allEnded(t)
	r.proxy.BlackHole(false)
	r.settled(t, 7) // the released ones twice
	r.sweep(t, "expired", 1)
}

func playNoExtend(t *testing.T, r *row) {
	close(r.goOn)
	r.run(t, reliable.ErrLost, &reliable.ConsumerOptions{NoSweep: true, NoExtend: true})
	r.allEnded(t)
	r.settled(t, 6)
	r.sweep(t, "expired", 1)
}

// playLost ends the leases while their holder lives, as after a step of the server's clock.
func playLost(t *testing.T, r *row) {
	r.run(t, reliable.ErrLost, &reliable.ConsumerOptions{NoSweep: true})
	partition, err := keys.New(keys.DefaultPrefix, r.queue, 0)
	require.NoError(t, err)
	processing := partition.Key("processing")
	rdb := redistest.Client(t)
	await(t, r.q, "expired", func(s reliable.Stats) bool { // the holder extends meanwhile
		for _, id := range r.ids {
			assert.NoError(t, rdb.ZAddArgs(context.Background(), processing, redis.ZAddArgs{XX: true, Members: []redis.Z{{Score: 1, Member: id}}}).Err())
		}
		_, err := r.store.Expire(context.Background(), 100, true)
		assert.NoError(t, err)
		return s.Counters["expired"] == int64(len(r.ids))
	})
	r.allEnded(t)
	beside := []string{"stats", "sessions", "fence", "holders", "wake"} // the consumer claims on, and opens sessions
	before := redistest.Dump(t, rdb, keys.DefaultPrefix, r.queue, beside...)
	close(r.goOn)
	await(t, r.q, "refused", func(s reliable.Stats) bool { return s.Counters["refused"] == 5 })
	require.Equal(t, before, redistest.Dump(t, rdb, keys.DefaultPrefix, r.queue, beside...), "nothing was written")
}

func playCancel(t *testing.T, r *row) {
	close(r.goOn)
	r.run(t, reliable.ErrCancelled, &reliable.ConsumerOptions{NoSweep: true})
	var ids []string
	for _, id := range r.ids {
		ids = append(ids, id)
	}
	_, err := r.q.Cancel(t.Context(), ids...)
	require.NoError(t, err)
	r.settled(t, 5)
	r.sweep(t, "cancelled_processing", 5)
}

// A fate is what a cell says becomes of its job.
type fate struct {
	place              reliable.Place
	failures, expiries int
	from, to           time.Duration // until it is due
	counter            string
	reason             string
	again              bool // it was started again by this consumer, which then put it off
}

// fateOf says what a cell means in Redis.
func (r *row) fateOf(t *testing.T, returned, does string) fate {
	t.Helper()
	const soon = -time.Hour // due since some time
	reason := errCell.Error()
	if strings.HasSuffix(r.cause, "where nobody extends") {
		reason = "lease ran out: " + reason
	}
	switch does {
	case "ack":
		return fate{place: reliable.Nowhere, counter: "acked"}
	case "bury":
		return fate{place: reliable.Dead, failures: 1, counter: "buried", reason: errCell.Error()}
	case "nack, due after d":
		return fate{place: reliable.Due, failures: 1, from: cellDelay - time.Minute, to: cellDelay, counter: "nacked", reason: errCell.Error()}
	case "nack, with back-off":
		return fate{place: reliable.Due, failures: 1, to: far, counter: "nacked", reason: reason}
	case "release":
		if r.cause == "shutdown" {
			return fate{place: reliable.Due, from: soon, counter: "released"}
		}
		return fate{place: reliable.Due, from: far - time.Hour, to: far, counter: "released", again: true}
	case "the lease runs out":
		return fate{place: reliable.Due, expiries: 1, from: far - time.Hour, to: far, counter: "expired"}
	case "refused":
		return fate{place: reliable.Due, expiries: 1, from: far - time.Hour, to: far, counter: "refused"}
	case "nothing":
		return fate{place: reliable.Due, expiries: 1, from: far - time.Hour, to: far}
	case "removed":
		return fate{place: reliable.Nowhere, counter: "cancelled_processing"}
	case "extended until the timeout":
		return fate{place: reliable.Processing, from: soon, to: time.Minute}
	}
	require.FailNow(t, "a cell that this test does not know", "%s, %s: %s", r.cause, returned, does)
	return fate{}
}

// check compares what is in Redis with what the cells of the row say.
func (r *row) check(t *testing.T, cells map[string]string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	counters := map[string]int64{}
	for returned, does := range cells {
		want := r.fateOf(t, returned, does)
		infos, err := r.q.Inspect(t.Context(), r.ids[returned])
		require.NoError(t, err)
		got, what := infos[0], r.cause+", "+returned+": "+does
		require.Equal(t, want.place, got.Place, what)
		require.Equal(t, want.failures, got.Failures, what)
		require.Equal(t, want.expiries, got.Expiries, what)
		if want.place == reliable.Due || want.place == reliable.Processing {
			require.GreaterOrEqual(t, got.In, want.from, what)
			require.LessOrEqual(t, got.In, want.to+time.Millisecond, what) // due times are rounded up, Redis' now is not
		}
		if want.reason != "" {
			require.Equal(t, want.reason, got.Errors[len(got.Errors)-1].Reason, what)
		}
		counters[want.counter]++
		r.checkStarts(t, returned, want, counters, what)
	}
	r.checkCounters(t, counters)
}

func (r *row) checkStarts(t *testing.T, returned string, want fate, counters map[string]int64, what string) {
	t.Helper()
	starts := r.starts[returned]
	require.Equal(t, 1, starts[0].Attempt, what)
	if r.want == nil {
		require.NoError(t, r.causes[returned], what)
	} else {
		require.ErrorIs(t, r.causes[returned], r.want, what)
	}
	if !want.again {
		require.Len(t, starts, 1, what)
		return
	}
	counters["released"]++
	require.Len(t, starts, 2, what)
	require.Equal(t, 1, starts[1].Attempt, "a release counts nothing: %s", what)
	require.Equal(t, starts[0].DueAt, starts[1].DueAt, "and keeps the place: %s", what)
}

func (r *row) checkCounters(t *testing.T, want map[string]int64) {
	t.Helper()
	s, err := r.q.Stats(t.Context())
	require.NoError(t, err)
	if r.cause == "a lost lease" {
		want["expired"] = int64(len(r.ids)) // by the test's own hand
	}
	names := []string{"acked", "buried", "nacked", "released", "expired", "refused", "cancelled_processing"}
	for name := range want {
		require.True(t, name == "" || slices.Contains(names, name), name)
	}
	for _, name := range names {
		require.Equal(t, want[name], s.Counters[name], "%s: %s", r.cause, name)
	}
}
