package reliable_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

// behindProxy makes a client that goes through a proxy of the test's own.
func behindProxy(t *testing.T, readTimeout time.Duration) (*redis.Client, *netfault.Proxy) {
	t.Helper()
	redistest.NeedServer(t)
	proxy := redistest.Proxy(t, redistest.Addr(t))
	o := redistest.Options(t)
	o.Addr, o.ReadTimeout, o.DialTimeout = proxy.Addr(), readTimeout, readTimeout
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb, proxy
}

// shaOf is the digest of a script of the lease package.
func shaOf(t *testing.T, name string) string {
	t.Helper()
	for _, s := range lease.Scripts() {
		if s.Name == name {
			return s.SHA()
		}
	}
	require.FailNow(t, "no script is called "+name)
	return ""
}

// holdScript keeps every call of a script from its server, and tells of it.
func holdScript(sha string, held chan<- struct{}) func(cmd []string) netfault.Action {
	return func(cmd []string) netfault.Action {
		if len(cmd) > 1 && cmd[1] == sha {
			held <- struct{}{}
			return netfault.Hold
		}
		return netfault.Pass
	}
}

func TestADeadBlockingConnectionDelaysAJobByTheFallbackAtMost(t *testing.T) {
	t.Parallel()
	name := redistest.Queue(t)
	direct := queueOn(t, redistest.Client(t), name, nil)
	rdb, proxy := behindProxy(t, 3*time.Second)
	blocked := make(chan struct{}, 100)
	proxy.Decide(func(cmd []string) netfault.Action {
		if cmd[0] == "blpop" {
			blocked <- struct{}{}
			return netfault.Hold
		}
		return netfault.Pass
	})
	t.Cleanup(func() { proxy.ReleaseHeld() })
	started := make(chan time.Time, 1)
	runConsumer(t, queueOn(t, rdb, name, nil), reliable.HandlerFunc(func(context.Context, *reliable.Job) error {
		started <- time.Now()
		return nil
	}), &reliable.ConsumerOptions{WakeFallback: 300 * time.Millisecond})
	receive(t, blocked)
	before := time.Now()
	put(t, direct, job("k"))
	require.Less(t, receive(t, started).Sub(before), 1500*time.Millisecond, "nothing was looked for while the connection was silent")
}

// failing reports the first call of a client that fails.
type failing struct {
	told chan struct{}
	once atomic.Bool
}

func (f *failing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *failing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err != nil && cmd.Name() == "evalsha" && f.once.CompareAndSwap(false, true) {
			close(f.told)
		}
		return err
	}
}

func (f *failing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestAStopWhileRedisIsDownIsCleanWhereNothingIsHeld(t *testing.T) {
	t.Parallel()
	name := redistest.Queue(t)
	rdb, proxy := behindProxy(t, 300*time.Millisecond)
	q, err := reliable.New(rdb, name, nil)
	require.NoError(t, err)
	done := make(chan struct{}, 1)
	stop := runConsumer(t, q, reliable.HandlerFunc(func(context.Context, *reliable.Job) error { return nil }), &reliable.ConsumerOptions{
		DrainTimeout: 50 * time.Millisecond, WakeFallback: 50 * time.Millisecond, NoSweep: true,
		Hooks: &reliable.Hooks{OnDone: func(context.Context, reliable.Event) { done <- struct{}{} }},
	})
	put(t, q, job("k"))
	receive(t, done)
	failed := &failing{told: make(chan struct{})}
	rdb.AddHook(failed)
	proxy.Cut()
	receive(t, failed.told) // a claim is under way
	before := time.Now()
	require.NoError(t, stop(), "nothing was held, so nothing was left unsettled")
	require.Less(t, time.Since(before), 3*time.Second)
	proxy.Restore()
	require.NoError(t, q.Close(t.Context()))
}

func TestAWakeUpThatCannotBePassedOnDelaysAStopByASecondAtMost(t *testing.T) {
	t.Parallel()
	name := redistest.Queue(t)
	direct := queueOn(t, redistest.Client(t), name, nil)
	rdb, proxy := behindProxy(t, 3*time.Second)
	passing := make(chan struct{}, 100)
	proxy.Decide(holdScript(shaOf(t, "wake"), passing))
	t.Cleanup(func() { proxy.ReleaseHeld() })
	started := make(chan struct{}, 10)
	stop := runConsumer(t, queueOn(t, rdb, name, nil), reliable.HandlerFunc(func(ctx context.Context, _ *reliable.Job) error {
		started <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}), &reliable.ConsumerOptions{Concurrency: 1, WakeFallback: time.Minute, DrainTimeout: 20 * time.Millisecond})
	// The first is claimed at its due time, while the blocking connection waits; the second wakes a consumer that is full.
	put(t, direct, reliable.Item{Kind: "k", Delay: 200 * time.Millisecond})
	receive(t, started)
	put(t, direct, job("k"))
	receive(t, passing)
	before := time.Now()
	require.NoError(t, stop())
	require.Less(t, time.Since(before), 10*time.Second)
}

func TestAJobWhoseTimeIsOverAndWhoseLeaseRanOutHasFailedIfItSaysSo(t *testing.T) {
	t.Parallel()
	o := quick()
	o.Lease, o.MaxRetries = 150*time.Millisecond, intp(0)
	q := newQueue(t, o)
	runConsumer(t, q, reliable.HandlerFunc(func(_ context.Context, j *reliable.Job) error {
		<-j.Context().Done() // later than its time: until its lease has run out
		return errors.New("too slow")
	}), &reliable.ConsumerOptions{JobTimeout: 20 * time.Millisecond, NoSweep: true})
	ids := put(t, q, job("k"))
	await(t, q, "dead", func(s reliable.Stats) bool { return s.Dead == 1 || s.Counters["released"] > 0 })
	infos, err := q.Inspect(t.Context(), ids...)
	require.NoError(t, err)
	require.Equal(t, reliable.Dead, infos[0].Place, "a job that is too slow must not go round for ever")
	require.Contains(t, infos[0].Errors[0].Reason, "lease ran out")
}

func TestHooksOfOneJobAreCalledOneAfterTheOther(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	var inOverdue atomic.Bool
	together := make(chan bool, 1)
	overdue, returned, goOn := make(chan struct{}), make(chan struct{}), make(chan struct{})
	runConsumer(t, q, reliable.HandlerFunc(func(context.Context, *reliable.Job) error {
		<-overdue
		close(returned)
		return nil
	}), &reliable.ConsumerOptions{
		JobTimeout: 20 * time.Millisecond,
		Hooks: &reliable.Hooks{
			OnOverdue: func(context.Context, reliable.Event) {
				inOverdue.Store(true)
				close(overdue)
				<-goOn
				inOverdue.Store(false)
			},
			OnDone: func(context.Context, reliable.Event) { together <- inOverdue.Load() },
		},
	})
	put(t, q, job("k"))
	receive(t, returned)
	require.Never(t, func() bool { return len(together) > 0 }, 300*time.Millisecond, 20*time.Millisecond, "OnDone was called while OnOverdue ran")
	close(goOn)
	require.False(t, receive(t, together))
}

func TestHandlersThatCouldOnlyPanicAreRefused(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	for _, h := range []reliable.Handler{nil, (*reliable.Mux)(nil), reliable.HandlerFunc(nil)} {
		_, err := reliable.NewConsumer(q, h, nil)
		require.ErrorContains(t, err, "the Handler is nil", "%T", h)
	}
}

func TestATimeoutOfAKindLongerThanALeaseThatNobodyExtendsIsRefused(t *testing.T) {
	t.Parallel()
	q := newQueue(t, quick())
	mux := reliable.NewMux()
	handler := func(context.Context, *reliable.Job) error { return nil }
	require.NoError(t, mux.HandleFunc("short", handler, &reliable.HandleOptions{Timeout: 300 * time.Millisecond}))
	require.NoError(t, mux.HandleFunc("long", handler, &reliable.HandleOptions{Timeout: time.Second}))
	_, err := reliable.NewConsumer(q, mux, &reliable.ConsumerOptions{NoExtend: true})
	require.ErrorContains(t, err, `Timeout of 1s for kind "long": longer than the lease of 300ms`)
	require.NotContains(t, err.Error(), "short")
	_, err = reliable.NewConsumer(q, mux, nil)
	require.NoError(t, err)
}
