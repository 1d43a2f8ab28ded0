package cases

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// errForGood is what a handler of S32 gives up a job with.
var errForGood = errors.New("never to be tried again")

// s32Verdicts are what handlers return once their contexts have ended.
var s32Verdicts = map[string]error{"nil": nil, "Discard": reliable.Discard(errForGood)}

// An ender is the handlers of one test of S32. They wait for the end of their context and return what the test says.
type ender struct {
	verdict error
	held    chan struct{} // nil: they return at once, otherwise when it is closed

	mu      sync.Mutex
	started map[string]int
	causes  map[string]error // the last of each job
	all     *countdown       // of ends
}

func newEnder(n int, verdict error) *ender {
	return &ender{verdict: verdict, started: map[string]int{}, causes: map[string]error{}, all: newCountdown(n)}
}

func (e *ender) start(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.started[id]++
}

func (e *ender) handle(ctx context.Context, job *reliable.Job) error {
	e.start(job.ID)
	<-ctx.Done()
	e.mu.Lock()
	e.causes[job.ID] = context.Cause(ctx)
	e.mu.Unlock()
	e.all.done()
	if e.held != nil {
		<-e.held
	}
	return e.verdict
}

// awaitStarts waits until so many jobs have begun.
func (e *ender) awaitStarts(t testing.TB, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.started) >= n
	}, time.Minute, time.Millisecond, "%d handlers are to run", n)
}

// checkCauses requires that each context has ended with this cause and none of the others, by errors.Is.
func (e *ender) checkCauses(t testing.TB, n int, want error) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	require.Len(t, e.causes, n, "contexts that ended")
	for id, cause := range e.causes {
		for _, one := range []error{reliable.ErrJobTimeout, reliable.ErrLost, reliable.ErrShutdown, reliable.ErrCancelled} {
			require.Equal(t, errors.Is(want, one), errors.Is(cause, one), "the cause of %s is %v: is that %v?", id, cause, one)
		}
	}
}

// checkDecided requires that n jobs ended as their handlers said, at their first attempt, and that nothing else was
// counted.
func checkDecided(t testing.TB, l *lane, n int, verdict error) {
	t.Helper()
	l.balanced(n)
	acked, buried := int64(n), int64(0)
	if verdict != nil {
		acked, buried = 0, int64(n)
	}
	counters := l.stats().Counters
	assert.Equal(t, acked, counters["acked"])
	assert.Equal(t, buried, counters["buried"])
	for _, none := range []string{"nacked", "expired", "refused", "cancelled_processing"} {
		assert.Zero(t, counters[none], none)
	}
	assert.Empty(t, l.members(lease.Due))
	assert.Empty(t, l.members(lease.Processing))
	dead := l.members(lease.Dead)
	require.Len(t, dead, int(buried))
	for len(dead) > 0 {
		page := dead[:min(len(dead), 500)]
		dead = dead[len(page):]
		infos, err := l.queue.Inspect(t.Context(), page...)
		require.NoError(t, err)
		for _, info := range infos {
			require.Equal(t, [2]int{1, 0}, [2]int{info.Failures, info.Expiries}, "failures and expiries of %s, dead with attempts = 1", info.ID)
			require.Len(t, info.Errors, 1)
			require.Equal(t, errForGood.Error(), info.Errors[0].Reason)
		}
	}
}

// s32Lane has a lease that no busy machine lets run out, and retries that a wrong verdict would use.
func s32Lane(t testing.TB, length time.Duration) *lane {
	t.Helper()
	return newLane(t, &reliable.QueueOptions{
		Lease: length, MaxRetries: limitOf(5), MaxExpiries: limitOf(5), Backoff: reliable.Backoff{Base: time.Millisecond, Cap: time.Millisecond},
	})
}

// A job's time is over, and its lease is held: what the handler returns decides, each time. Half of the handlers wait
// for the end of their context, the other half return around that instant without a look at it.
func TestS32_VerdictDecidesAfterTheJobsTimeIsOver(t *testing.T) {
	t.Parallel()
	for name, verdict := range s32Verdicts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const limit = 40 * time.Millisecond
			runs := 1000 // in each shape
			l := s32Lane(t, time.Minute)
			l.enqueue(numberedItems("waits", runs/2)...)
			l.enqueue(numberedItems("races", runs/2)...)
			e, decided := newEnder(runs/2, verdict), newCountdown(runs)
			note := func(context.Context, reliable.Event) { decided.done() }
			l.consume(func(ctx context.Context, job *reliable.Job) error {
				if strings.HasPrefix(job.ID, "races") {
					<-time.After(limit - 2*time.Millisecond + rand.N(4*time.Millisecond))
					return verdict
				}
				return e.handle(ctx, job)
			}, &reliable.ConsumerOptions{
				Concurrency: 250, NoSweep: true, JobTimeout: limit,
				Hooks: &reliable.Hooks{OnDone: note, OnDead: note, OnRetry: note, OnRelease: note, OnLost: note},
			})
			awaitFrom(t, decided.all, "verdicts")
			e.checkCauses(t, runs/2, reliable.ErrJobTimeout)
			checkDecided(t, l, runs, verdict)
			assert.Zero(t, l.stats().Counters["released"])
		})
	}
}

// A consumer stops, and its handlers' contexts end at the end of the drain. What they return within their half second
// decides. One that this machine let sleep longer than that is abandoned, and its job released and run again; that is
// counted, and no run of the case.
func TestS32_VerdictDecidesAtShutdown(t *testing.T) {
	t.Parallel()
	for name, verdict := range s32Verdicts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const runs, atATime = 1000, 250
			l := s32Lane(t, time.Minute)
			l.enqueue(numberedItems("J", runs)...)
			e := newEnder(runs, verdict)
			abandoned := newCountdown(0)
			rounds := 0
			for left := runs; left > 0; left = int(l.stats().Due) {
				rounds++
				require.LessOrEqual(t, rounds, 3*runs/atATime, "rounds: handlers are abandoned, or what they return does not count")
				e.mu.Lock()
				clear(e.started)
				e.mu.Unlock()
				stop := l.consume(e.handle, &reliable.ConsumerOptions{
					Concurrency: atATime, NoSweep: true, DrainTimeout: 10 * time.Millisecond,
					Hooks: &reliable.Hooks{OnOverdue: func(_ context.Context, event reliable.Event) {
						if errors.Is(event.Err, reliable.ErrShutdown) {
							abandoned.done()
						}
					}},
				})
				e.awaitStarts(t, min(left, atATime))
				stop()
			}
			awaitFrom(t, e.all.all, "ends of contexts")
			e.checkCauses(t, runs, reliable.ErrShutdown)
			checkDecided(t, l, runs, verdict)
			assert.Equal(t, abandoned.count.Load(), l.stats().Counters["released"], "only abandoned handlers' jobs are released")
			t.Logf("%d rounds, %d handlers abandoned", rounds, abandoned.count.Load())
		})
	}
}

// Redis falls silent until the local deadlines have passed, and nobody takes the leases meanwhile. They are still held
// then, so that the values decide here too.
func TestS32_VerdictDecidesAfterTheLocalDeadlineWhereTheLeaseIsStillHeld(t *testing.T) {
	t.Parallel()
	for name, verdict := range s32Verdicts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runs := shape(200, 1000)
			l := s32Lane(t, 2*time.Second)
			proxy := redistest.Proxy(t, redistest.Addr(t))
			q := newQueueOn(t, proxied(t, proxy), l.name, &reliable.QueueOptions{
				Lease: l.lease, MaxRetries: limitOf(5), MaxExpiries: limitOf(5),
			})
			l.enqueue(numberedItems("J", runs)...)
			e, decided := newEnder(runs, verdict), newCountdown(runs)
			note := func(context.Context, reliable.Event) { decided.done() }
			consumeWith(t, q, reliable.HandlerFunc(e.handle), &reliable.ConsumerOptions{
				Concurrency: runs, NoSweep: true,
				Hooks: &reliable.Hooks{OnDone: note, OnDead: note, OnRetry: note, OnRelease: note, OnLost: note},
			})
			e.awaitStarts(t, runs)
			proxy.Cut()
			awaitFrom(t, e.all.all, "ends of contexts")
			proxy.Restore()
			awaitFrom(t, decided.all, "verdicts")
			e.checkCauses(t, runs, reliable.ErrLost)
			checkDecided(t, l, runs, verdict)
		})
	}
}

// Leases are lost to another holder: the contexts end with ErrLost, and whatever is returned then is refused and
// writes nothing. All keys but counters and those of sessions are byte for byte what they were.
func TestS32_NothingIsWrittenOnceTheLeaseIsLost(t *testing.T) {
	t.Parallel()
	for name, verdict := range s32Verdicts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const runs, atATime = 1000, 250
			l := s32Lane(t, 2*time.Second)
			var e *ender // of the round; its consumer holds nothing between two
			lost, settled := newCountdown(runs), newCountdown(0)
			var mu sync.Mutex
			current := func() *ender {
				mu.Lock()
				defer mu.Unlock()
				return e
			}
			note := func(context.Context, reliable.Event) { settled.done() }
			round := func(i int) {
				mu.Lock()
				e = newEnder(atATime, verdict)
				e.held = make(chan struct{})
				mu.Unlock()
				l.enqueue(numberedItems(fmt.Sprint("J", i, "-"), atATime)...)
				e.awaitStarts(t, atATime)
				thief := l.steal(atATime)
				awaitFrom(t, e.all.all, "ends of contexts")
				e.checkCauses(t, atATime, reliable.ErrLost)

				except := []string{"stats", "sessions", "holders", "fence", "sweep", "wake"}
				before := redistest.Dump(t, l.rdb, keys.DefaultPrefix, l.name, except...)
				close(e.held)
				require.Eventually(t, func() bool { return lost.count.Load() == int64((i+1)*atATime) }, time.Minute, time.Millisecond)
				require.Equal(t, before, redistest.Dump(t, l.rdb, keys.DefaultPrefix, l.name, except...), "a refused verdict has written")
				require.EqualValues(t, (i+1)*atATime, l.stats().Counters["refused"], "each verdict is sent once, and refused")

				answers, err := l.store.Settle(t.Context(), thief) // so that the other holder's leases were good
				require.NoError(t, err)
				for _, one := range answers {
					require.NoError(t, one.Err)
				}
			}
			l.consume(func(ctx context.Context, job *reliable.Job) error { return current().handle(ctx, job) }, &reliable.ConsumerOptions{
				Concurrency: atATime, NoSweep: true,
				Hooks: &reliable.Hooks{
					OnLost: func(context.Context, reliable.Event) { lost.done() },
					OnDone: note, OnDead: note, OnRetry: note, OnRelease: note,
				},
			})
			for i := range runs / atATime {
				round(i)
			}
			assert.Zero(t, settled.count.Load(), "verdicts that were taken")
			assert.EqualValues(t, runs, l.stats().Counters["acked"], "by the other holder alone")
			l.balanced(runs)
		})
	}
}

// proxied makes a client of the shared server through a proxy.
func proxied(t testing.TB, proxy *netfault.Proxy) *redis.Client {
	t.Helper()
	o := redistest.Options(t)
	o.Addr = proxy.Addr()
	rdb := redis.NewClient(o)
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	return rdb
}

// steal has a sweeper end all leases in processing, n of them, and claims the jobs for another holder. It returns that
// holder's acks.
func (l *lane) steal(n int) []lease.Verdict {
	l.t.Helper()
	for moved := 0; moved < n; { // a heartbeat may come between the two steps
		l.setScores(lease.Processing, "1", l.members(lease.Processing)...)
		got := l.sweep(lease.MaxBatch)
		moved += got.Moved()
	}
	got, err := l.store.Claim(l.t.Context(), n, nil)
	require.NoError(l.t, err)
	require.Len(l.t, got.Jobs, n)
	acks := make([]lease.Verdict, n)
	for i, job := range got.Jobs {
		require.Equal(l.t, 1, job.Expiries, job.ID)
		acks[i] = lease.Verdict{Op: lease.Ack, ID: job.ID, Token: job.Token}
	}
	return acks
}

// A job is cancelled while it runs: a fourth cause. Whatever its handler returns removes it.
func TestS32_CancelledJobIsRemovedWhateverItsHandlerReturns(t *testing.T) {
	t.Parallel()
	for name, verdict := range s32Verdicts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runs := shape(200, 1000)
			l := s32Lane(t, 2*time.Second)
			items := numberedItems("J", runs)
			l.enqueue(items...)
			e, decided := newEnder(runs, verdict), newCountdown(runs)
			note := func(context.Context, reliable.Event) { decided.done() }
			l.consume(e.handle, &reliable.ConsumerOptions{
				Concurrency: runs, NoSweep: true,
				Hooks: &reliable.Hooks{OnDone: note, OnCancelled: note, OnDead: note, OnRetry: note, OnRelease: note, OnLost: note},
			})
			e.awaitStarts(t, runs)
			for len(items) > 0 {
				var ids []string
				page := items[:min(len(items), 200)]
				items = items[len(page):]
				for _, item := range page {
					ids = append(ids, item.ID)
				}
				removed, err := l.queue.Cancel(t.Context(), ids...)
				require.NoError(t, err)
				require.Len(t, removed, len(ids))
			}
			awaitFrom(t, decided.all, "verdicts")
			e.checkCauses(t, runs, reliable.ErrCancelled)
			stats := l.stats()
			assert.Zero(t, stats.Due+stats.Processing+stats.Dead+stats.Records)
			assert.EqualValues(t, runs, stats.Counters["acked"]+stats.Counters["cancelled_processing"])
			for _, none := range []string{"nacked", "released", "buried", "expired", "refused"} {
				assert.Zero(t, stats.Counters[none], none)
			}
			if verdict == nil {
				assert.EqualValues(t, runs, stats.Counters["acked"], "an ack counts as an ack")
			}
		})
	}
}
