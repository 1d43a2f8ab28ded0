package reliable_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

// telling tells of each start, and waits for the end of the context if it is to hang.
func telling(starts chan<- string, hang bool) reliable.Handler {
	return reliable.HandlerFunc(func(ctx context.Context, job *reliable.Job) error {
		starts <- job.Kind
		if hang {
			<-ctx.Done()
		}
		return ctx.Err()
	})
}

// A queue that is paused or held back by a limit leaves its slots to the others, and has them when it may go on.
func TestAQueueThatIsHeldBackHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	starts := make(chan string, 100)
	paused, other := newQueue(t, nil), newQueue(t, nil)
	limited := newQueue(t, &reliable.QueueOptions{Concurrency: 1})
	require.NoError(t, paused.PauseFor(t.Context(), time.Hour))
	put(t, paused, jobs("paused", 10)...)
	put(t, limited, jobs("limited", 10)...)
	m, stop := runMulti(t, []reliable.Share{
		{Queue: paused, Weight: 1000, Handler: telling(starts, false)},
		{Queue: limited, Weight: 1000, Handler: telling(starts, true)},
		{Queue: other, Handler: telling(starts, true)},
	}, &reliable.MultiOptions{Consumer: reliable.ConsumerOptions{Concurrency: 5, DrainTimeout: time.Millisecond}})
	require.Equal(t, "limited", receive(t, starts))
	put(t, other, jobs("other", 3)...)
	for range 3 {
		require.Equal(t, "other", receive(t, starts))
	}
	require.NoError(t, m.Health(t.Context()))
	was, err := paused.Resume(t.Context())
	require.NoError(t, err)
	require.True(t, was)
	for range 10 {
		require.Equal(t, "paused", receive(t, starts))
	}
	require.NoError(t, stop())
}

// A queue whose server is silent or gone takes no slot: the only one there is serves the others, and that queue again when
// its server is back.
func TestAQueueWhoseRedisIsAwayHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	for _, strictly := range []bool{false, true} {
		for _, silent := range []bool{false, true} {
			t.Run(map[bool]string{true: "strict", false: "by weight"}[strictly]+", "+map[bool]string{true: "silent", false: "gone"}[silent], func(t *testing.T) {
				t.Parallel()
				rdb, proxy := behindProxy(t, 300*time.Millisecond)
				away := queueOn(t, rdb, redistest.Queue(t), nil)
				direct := queueOn(t, redistest.Client(t), away.Name(), nil)
				other := newQueue(t, nil)
				starts := make(chan string, 200)
				shares := []reliable.Share{{Queue: away, Handler: telling(starts, false)}, {Queue: other, Handler: telling(starts, false)}}
				if !strictly {
					shares[0].Weight = 1000
				}
				m, stop := runMulti(t, shares, &reliable.MultiOptions{Strict: strictly, Consumer: reliable.ConsumerOptions{Concurrency: 1}})
				put(t, direct, job("away"))
				require.Equal(t, "away", receive(t, starts))
				if silent {
					proxy.BlackHole(true)
				} else {
					proxy.Cut()
				}
				put(t, direct, jobs("away", 20)...)
				require.Eventually(t, func() bool {
					errs := m.HealthEach(t.Context())
					return errs[0] != nil && errs[1] == nil
				}, 20*time.Second, 5*time.Millisecond, "one is healthy")
				require.ErrorContains(t, m.Health(t.Context()), "queue "+away.Name()+": ")
				for range 3 { // one after the other: a claim of the other queue must not find the slot taken for long
					put(t, other, jobs("other", 20)...)
					for range 20 {
						require.Equal(t, "other", receive(t, starts))
					}
				}
				if silent {
					proxy.BlackHole(false)
				} else {
					proxy.Restore()
				}
				for range 20 {
					require.Equal(t, "away", receive(t, starts))
				}
				require.Eventually(t, func() bool { return m.Health(t.Context()) == nil }, 20*time.Second, 5*time.Millisecond)
				require.NoError(t, stop())
			})
		}
	}
}

func TestAStopReleasesWhatSeveralQueuesHaveUnfinished(t *testing.T) {
	t.Parallel()
	a, b := newQueue(t, nil), newQueue(t, nil)
	put(t, a, jobs("a", 5)...)
	put(t, b, jobs("b", 5)...)
	starts := make(chan string, 10)
	m, stop := runMulti(t, []reliable.Share{{Queue: a, Handler: telling(starts, true)}, {Queue: b, Handler: telling(starts, true)}},
		&reliable.MultiOptions{Consumer: reliable.ConsumerOptions{Concurrency: 10, DrainTimeout: 10 * time.Millisecond}})
	for range 10 {
		receive(t, starts)
	}
	require.ErrorIs(t, m.Run(t.Context()), reliable.ErrRunning)
	require.NoError(t, stop())
	require.ErrorIs(t, m.Health(t.Context()), reliable.ErrNotRunning)
	for _, q := range []*reliable.Queue{a, b} {
		s, err := q.Stats(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 5, s.Due, "%+v", s)
		require.EqualValues(t, 5, s.Counters["released"], "%+v", s)
	}
}

func TestAStopNamesTheJobsOfTheQueueThatDidNotTakeVerdicts(t *testing.T) {
	t.Parallel()
	rdb, proxy := behindProxy(t, 300*time.Millisecond)
	away, other := queueOn(t, rdb, redistest.Queue(t), nil), newQueue(t, nil)
	ids := put(t, queueOn(t, redistest.Client(t), away.Name(), nil), jobs("away", 2)...)
	put(t, other, jobs("other", 2)...)
	starts := make(chan string, 4)
	_, stop := runMulti(t, []reliable.Share{{Queue: away, Handler: telling(starts, true)}, {Queue: other, Handler: telling(starts, true)}},
		&reliable.MultiOptions{Consumer: reliable.ConsumerOptions{Concurrency: 4, DrainTimeout: 10 * time.Millisecond}})
	for range 4 {
		receive(t, starts)
	}
	proxy.BlackHole(true)
	var drain *reliable.DrainError
	require.ErrorAs(t, stop(), &drain)
	require.ElementsMatch(t, ids, drain.IDs)
	require.Equal(t, []string{away.Name(), away.Name()}, drain.Queues)
	require.ErrorContains(t, drain, "queue "+away.Name()+", 2 jobs: ")
	s, err := other.Stats(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, s.Counters["released"], "%+v", s)
}

// Nothing but a wake-up can make these start in time: the fallback is a minute.
func TestAJobForAnyQueueOfAnIdleConsumerStartsAtOnce(t *testing.T) {
	t.Parallel()
	starts := make(chan string, 10)
	queues := []*reliable.Queue{newQueue(t, nil), newQueue(t, nil), newQueue(t, nil)}
	for range 2 {
		var shares []reliable.Share
		for _, q := range queues {
			shares = append(shares, reliable.Share{Queue: q, Handler: telling(starts, false)})
		}
		runMulti(t, shares, &reliable.MultiOptions{Consumer: reliable.ConsumerOptions{Concurrency: 2, WakeFallback: time.Minute}})
	}
	for i := range 60 {
		put(t, queues[i%len(queues)], job("k"))
		receive(t, starts)
	}
	for _, q := range queues {
		put(t, q, reliable.Item{Kind: "later", Delay: 50 * time.Millisecond})
	}
	for range queues {
		receive(t, starts)
	}
}

// A process all of whose slots another queue has takes the wake-up of a job, since it began to wait first. It passes it on
// to one that has a free slot: the fallback is a minute.
func TestAFullConsumerOfSeveralQueuesPassesWakeUpsOn(t *testing.T) {
	t.Parallel()
	starts, letGo := make(chan string, 10), make(chan struct{})
	long, short := newQueue(t, nil), newQueue(t, nil)
	o := reliable.ConsumerOptions{Concurrency: 1, WakeFallback: time.Minute}
	hangs := reliable.HandlerFunc(func(context.Context, *reliable.Job) error {
		starts <- "long"
		<-letGo
		return nil
	})
	m, _ := runMulti(t, []reliable.Share{{Queue: long, Handler: hangs}, {Queue: short, Handler: telling(starts, false)}}, &reliable.MultiOptions{Consumer: o})
	require.Eventually(t, func() bool { return m.Health(t.Context()) == nil }, 20*time.Second, time.Millisecond, "both have claimed")
	for range 5 {
		put(t, long, job("long"))
		require.Equal(t, "long", receive(t, starts))
		c, err := reliable.NewConsumer(short, telling(starts, false), &o)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		require.Eventually(t, func() bool { return c.Health(t.Context()) == nil }, 20*time.Second, time.Millisecond, "it has claimed")
		put(t, short, job("short"))
		require.Equal(t, "short", receive(t, starts))
		letGo <- struct{}{}
		cancel()
		require.NoError(t, receive(t, ended))
	}
}

func TestOverdueHandlersOfSeveralQueuesAreToldOfTogether(t *testing.T) {
	t.Parallel()
	a, b := newQueue(t, nil), newQueue(t, nil)
	put(t, a, job("a"))
	put(t, b, job("b"))
	letGo := make(chan struct{})
	hangs := reliable.HandlerFunc(func(context.Context, *reliable.Job) error { <-letGo; return nil })
	m, stop := runMulti(t, []reliable.Share{{Queue: a, Handler: hangs}, {Queue: b, Handler: hangs}},
		&reliable.MultiOptions{Consumer: reliable.ConsumerOptions{Concurrency: 5, JobTimeout: time.Millisecond, NoSweep: true}})
	var overdue *reliable.OverdueError
	require.Eventually(t, func() bool {
		return errors.As(m.Health(t.Context()), &overdue) && len(overdue.Handlers) == 2
	}, 20*time.Second, 5*time.Millisecond)
	require.Equal(t, 3, overdue.Free)
	close(letGo)
	_ = stop() // their leases may have run out
}

func TestAConsumerOfSeveralQueuesRefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	name := redistest.Queue(t)
	rdb := redistest.Client(t)
	q, again, other := queueOn(t, rdb, name, nil), queueOn(t, rdb, name, nil), newQueue(t, nil)
	mux := reliable.NewMux()
	ordered, waiting := &reliable.MultiOptions{Strict: true}, &reliable.MultiOptions{Consumer: reliable.ConsumerOptions{Prefetch: 3}}
	for want, c := range map[string]struct {
		shares []reliable.Share
		o      *reliable.MultiOptions
	}{
		"0 shares: want 1 to 64":                           {},
		"65 shares: want 1 to 64":                          {shares: make([]reliable.Share, 65)},
		"share 1: the Queue is nil":                        {shares: []reliable.Share{{Queue: q, Handler: mux}, {Handler: mux}}},
		"it is the queue of share 0: want each once":       {shares: []reliable.Share{{Queue: q, Handler: mux}, {Queue: q, Handler: mux}}},
		"share 2: queue \"" + name + "\": it is the queue": {shares: []reliable.Share{{Queue: other, Handler: mux}, {Queue: q, Handler: mux}, {Queue: again, Handler: mux}}},
		"the Handler is nil":                               {shares: []reliable.Share{{Queue: q}}},
		"Weight is -1: want 1 to 1000":                     {shares: []reliable.Share{{Queue: q, Handler: mux, Weight: -1}}},
		"Weight is 1001: want 1 to 1000":                   {shares: []reliable.Share{{Queue: q, Handler: mux, Weight: 1001}}},
		"Weight is 2 with Strict: want none":               {shares: []reliable.Share{{Queue: q, Handler: mux, Weight: 2}}, o: ordered},
		"Consumer.Prefetch is 3: want 0":                   {shares: []reliable.Share{{Queue: q, Handler: mux}}, o: waiting},
		"Concurrency is -1: want 1 to 10000":               {shares: []reliable.Share{{Queue: q, Handler: mux}}, o: multi(-1)},
	} {
		_, err := reliable.NewMultiConsumer(c.shares, c.o)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "reliable.NewMultiConsumer: ")
	}
	_, err := reliable.NewMultiConsumer([]reliable.Share{{Queue: q, Handler: mux}, {Queue: other, Handler: mux, Weight: 1000}}, nil)
	require.NoError(t, err)
}
