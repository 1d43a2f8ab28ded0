package reliable

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/internal/wire"
	"github.com/leaseq/leaseq/lease"
)

// idleRun makes a run of a Consumer as its dispatcher finds it, without any goroutine of its own.
func idleRun(t *testing.T, rdb redis.UniversalClient, o *ConsumerOptions) *run {
	t.Helper()
	q, err := New(rdb, redistest.Queue(t), nil)
	require.NoError(t, err)
	c, err := NewConsumer(q, HandlerFunc(func(context.Context, *Job) error { return nil }), o)
	require.NoError(t, err)
	r, err := newRun(c)
	require.NoError(t, err)
	r.free, r.held, r.wait = c.opts.Concurrency, map[*work]struct{}{}, firstPause
	t.Cleanup(r.hire())
	r.flights, r.endFlight = context.WithCancel(context.Background())
	r.due, r.pause, r.silence = stoppedTimer(), stoppedTimer(), stoppedTimer()
	t.Cleanup(func() {
		r.endFlight()
		r.aside.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = r.store.Close(ctx)
	})
	return r
}

// heldWork is a job that the run holds, under a lease of the given length that began just now.
func (r *run) heldWork(t *testing.T, id string, length time.Duration) *work {
	t.Helper()
	record, err := wire.Append(nil, &wire.Envelope{Kind: "k"})
	require.NoError(t, err)
	l := &lease.Lease{ID: id, Token: "1:s-1:1", Record: record, Length: length, Deadline: time.Now().Add(length)}
	job, err := newJob(l, r.store, r.guard, r.queue)
	require.NoError(t, err)
	job.hold = r.keeper.Hold(t.Context(), l)
	w := &work{job: job}
	r.held[w] = struct{}{}
	return w
}

func TestAWakeUpThatCannotBeAnsweredWithAClaimIsPassedOnAtOnce(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]func(r *run){
		"the claim under way took the last slot": func(r *run) {
			r.free = 0 // what it claimed
			r.digest(flight{asked: 1, claimed: lease.Claimed{NextDue: -1, At: time.Now()}})
		},
		"a settle failed, and nothing is sent for a while": func(r *run) {
			r.digest(flight{settleErr: errors.New("refused"), asked: 1, claimed: lease.Claimed{NextDue: -1, At: time.Now()}})
		},
		"the claim failed": func(r *run) {
			r.digest(flight{asked: 1, claimErr: errors.New("refused")})
		},
		"the consumer stops": func(r *run) {
			r.stopping = true
			r.digest(flight{asked: 1, claimed: lease.Claimed{NextDue: -1, At: time.Now()}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Client(t)
			r := idleRun(t, rdb, &ConsumerOptions{Concurrency: 1})
			part, err := keys.New(keys.DefaultPrefix, r.queue.name, 0)
			require.NoError(t, err)
			r.flying = 1
			r.woken(true) // what was enqueued may be due only since the claim under way ran
			require.True(t, r.owed)
			r.flying = 0
			then(r)
			r.aside.Wait()
			require.False(t, r.owed)
			n, err := rdb.LLen(t.Context(), part.Key("wake")).Result()
			require.NoError(t, err)
			require.EqualValues(t, 1, n, "no other process hears of the job")
		})
	}
}

func TestAVerdictIsGivenUpAfterTenMinutesThoughRedisIsSilent(t *testing.T) {
	t.Parallel()
	redistest.NeedServer(t)
	proxy := redistest.Proxy(t, redistest.Addr(t))
	proxy.BlackHole(true)
	o := redistest.Options(t)
	o.Addr, o.ReadTimeout = proxy.Addr(), 300*time.Millisecond
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	told := make(chan Event, 10)
	r := idleRun(t, rdb, &ConsumerOptions{Hooks: &Hooks{OnError: func(_ context.Context, e Event) { told <- e }}})
	w := r.heldWork(t, "a", time.Minute)
	w.end(verdict{op: opAck})
	w.over -= settleFor - 100*time.Millisecond
	r.fly([]*work{w}, 0, nil)
	select {
	case f := <-r.landed:
		r.flying = 0
		r.digest(f)
	case <-time.After(10 * time.Second):
		require.FailNow(t, "the verdict is still being sent")
	}
	require.Empty(t, r.held)
	require.Empty(t, r.pending)
	require.Equal(t, "a", (<-told).ID)
}

func TestAConsumerSleepsThoughAJobIsDueInCenturies(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = rdb.Close() })
	r := idleRun(t, rdb, nil)
	for range 50 {
		const most = math.MaxInt64 / time.Millisecond * time.Millisecond
		require.NoError(t, r.digestClaim(flight{asked: 1, claimed: lease.Claimed{NextDue: most, At: time.Now()}}))
		select {
		case <-r.due.C:
			require.FailNow(t, "the timer of a due time in centuries fired at once")
		case <-time.After(5 * time.Millisecond):
		}
		require.Positive(t, untilDue(most))
	}
}

// badChain is an error that breaks whoever looks into it with errors.As.
type badChain struct{}

func (badChain) Error() string { return "bad" }
func (badChain) Unwrap() error { panic("unwrapped") }
func (badChain) As(any) bool   { panic("asked") }

func TestAVerdictSurvivesAnErrorThatPanicsWhenItIsLookedInto(t *testing.T) {
	t.Parallel()
	job := &Job{ID: "a", backoff: Backoff{}.withDefaults()}
	for _, returned := range []error{Release(badChain{}), ReleaseAfter(time.Second, badChain{}), Discard(badChain{}), badChain{}} {
		require.NotPanics(t, func() { job.verdict(verdictOf(returned)) })
	}
	atShutdown := decide(verdictOf(badChain{}), ending{cause: ErrShutdown})
	require.Equal(t, opRelease, atShutdown.op)
	require.NotPanics(t, func() { job.verdict(atShutdown) })
}

func TestOnlyARecordOfANewerVersionIsReleasedAsOne(t *testing.T) {
	t.Parallel()
	job := &Job{ID: "a"}
	newer := &wire.NewerVersionError{Version: 9}
	require.True(t, job.verdict(newNewerVersions(time.Now).verdictForNewerVersion(9, newer)).Newer)
	require.False(t, job.verdict(verdictOf(Release(newer))).Newer, "what a handler returns is about something else")
}

func TestAShutdownThatCameBeforeTheDeadlineCostsNothingThoughNobodyRenews(t *testing.T) {
	t.Parallel()
	e := ending{cause: ErrShutdown, state: lease.HoldOverdue, noExtend: true}
	require.Equal(t, opRelease, decide(verdictOf(errors.New("interrupted")), e).op)
}
