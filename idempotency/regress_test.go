package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/idempotency"
	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redistest"
)

// behindProxy makes a guard whose calls go through a proxy, and one beside it that does not.
func behindProxy(t *testing.T, o *idempotency.Options, readTimeout time.Duration) (far, near *idempotency.Guard, proxy *netfault.Proxy, name string) {
	t.Helper()
	proxy = redistest.Proxy(t, redistest.Addr(t))
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ReadTimeout: readTimeout})
	t.Cleanup(func() { _ = rdb.Close() })
	name = redistest.Queue(t)
	far, near = guardOn(t, rdb, name, o), guardOn(t, redistest.Client(t), name, o)
	require.NoError(t, begin(t, far, "a session is open").Permit.Abort(t.Context()))
	return far, near, proxy, name
}

// freed waits until a key can be begun.
func freed(t *testing.T, g *idempotency.Guard, key string) *idempotency.Answer {
	t.Helper()
	var a *idempotency.Answer
	require.Eventually(t, func() bool {
		var err error
		if a, err = g.Begin(t.Context(), key, nil); err != nil {
			require.ErrorAs(t, err, new(*idempotency.InFlightError))
		}
		return err == nil
	}, 10*time.Second, 5*time.Millisecond)
	return a
}

// Whatever became of its commit, Do keeps no key alive when it has returned.
func TestDoKeepsNothingInFlightAfterItsCommitFailed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		o    *idempotency.DoOptions[string]
		want error
	}{
		"the result is too large": {nil, idempotency.ErrRan},
		"a commit of the caller's own fails": {&idempotency.DoOptions[string]{
			Commit: func(context.Context, []byte) error { return errDownstream },
		}, idempotency.ErrRan},
		"a commit of the caller's own is elsewhere": {&idempotency.DoOptions[string]{
			Commit: func(context.Context, []byte) error { return nil },
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := short()
			o.ResultLimit = 10
			rdb, queue := redistest.Client(t), redistest.Queue(t)
			g, other := guardOn(t, rdb, queue, o), guardOn(t, rdb, queue, o)
			_, err := idempotency.Do(t.Context(), g, "k", func(context.Context) (string, error) { return strings.Repeat("x", 100), nil }, c.o)
			require.ErrorIs(t, err, c.want)
			require.True(t, freed(t, other, "k").InDoubt)
		})
	}
}

func TestARecordThatIsNoHashEndsNoOtherPermit(t *testing.T) {
	t.Parallel()
	rdb, name := redistest.Client(t), redistest.Queue(t)
	g := guardOn(t, rdb, name, short())
	good, bad := begin(t, g, "good"), begin(t, g, "bad")
	record := "leaseq:v1:{" + name + "}:guard:bad"
	require.NoError(t, rdb.Set(t.Context(), record, "x", time.Minute).Err())
	<-bad.Permit.Context().Done()
	require.ErrorIs(t, context.Cause(bad.Permit.Context()), idempotency.ErrNotOwner)
	began := time.Now()
	require.Eventually(t, func() bool {
		require.NoError(t, good.Permit.Context().Err())
		return time.Since(began) > 3*short().Lease
	}, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, rdb.Del(t.Context(), record).Err())
}

func TestAnEffectsFieldThatCannotBeReadIsNotFresh(t *testing.T) {
	t.Parallel()
	rdb, name := redistest.Client(t), redistest.Queue(t)
	g := guardOn(t, rdb, name, short())
	require.NoError(t, begin(t, g, "k").Permit.Abandon(t.Context()))
	require.NoError(t, rdb.HSet(t.Context(), "leaseq:v1:{"+name+"}:guard:k", "e:", "x").Err())
	_, err := g.Begin(t.Context(), "k", nil)
	require.ErrorContains(t, err, "cannot be read")
}

// The reply to a Begin is lost, and Redis away for longer than the lease: the key is somebody else's by now.
func TestABeginThatIsAnsweredAfterItsLeaseBeginsNothing(t *testing.T) {
	t.Parallel()
	far, near, proxy, _ := behindProxy(t, short(), 100*time.Millisecond)
	var ran, silent atomic.Bool
	silent.Store(true)
	proxy.Decide(func(cmd []string) netfault.Action {
		switch {
		case cmd[0] != "evalsha" || !silent.Load():
			return netfault.Pass
		case !ran.Swap(true):
			return netfault.DropReply
		}
		return netfault.DropRequest
	})
	taken := make(chan *idempotency.Answer, 1)
	go func() {
		for !ran.Load() {
			time.Sleep(time.Millisecond)
		}
		for {
			if a, err := near.Begin(context.Background(), "k", nil); err == nil {
				taken <- a
				silent.Store(false)
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	_, err := idempotency.Do(t.Context(), far, "k", func(context.Context) (int, error) {
		t.Error("it runs, though somebody else has the key")
		return 1, nil
	}, nil)
	require.ErrorIs(t, err, idempotency.ErrNotOwner)
	a := <-taken
	require.True(t, a.InDoubt)
	require.NoError(t, a.Permit.Commit(t.Context(), nil))
}

// The first Begin that ran at all came after an outage: its lease counts from then.
func TestABeginThatHadToWaitHasAWholeLease(t *testing.T) {
	t.Parallel()
	far, _, proxy, _ := behindProxy(t, short(), 100*time.Millisecond)
	proxy.Cut()
	time.AfterFunc(2*short().Lease, proxy.Restore)
	a := begin(t, far, "k")
	require.NoError(t, a.Permit.Context().Err())
	require.NoError(t, a.Permit.Commit(t.Context(), nil))
}

// A connection dies without a word, with the beat that was in it: others go beside it.
func TestOneDeadConnectionCostsNoPermit(t *testing.T) {
	t.Parallel()
	o := &idempotency.Options{Lease: 1200 * time.Millisecond}
	far, _, proxy, _ := behindProxy(t, o, 10*time.Second)
	keep := ""
	for _, s := range idempotency.Scripts() {
		if s.Name == "keep" {
			keep = s.SHA()
		}
	}
	var held, beats atomic.Int64
	proxy.Decide(func(cmd []string) netfault.Action {
		if len(cmd) > 1 && cmd[1] == keep && beats.Add(1) == 2 {
			held.Add(1)
			return netfault.Hold
		}
		return netfault.Pass
	})
	a := begin(t, far, "k")
	require.Eventually(t, func() bool { return held.Load() == 1 }, 10*time.Second, time.Millisecond)
	began := time.Now()
	require.Eventually(t, func() bool {
		require.NoError(t, a.Permit.Context().Err(), "%v", context.Cause(a.Permit.Context()))
		return time.Since(began) > 2*o.Lease
	}, 10*time.Second, 10*time.Millisecond)
	proxy.Decide(nil)
	proxy.ReleaseHeld()
	require.NoError(t, a.Permit.Commit(t.Context(), nil))
}

// A name that only guards use has no sweepers: guards forget the sessions of those that are long gone.
func TestGuardsForgetTheSessionsOfProcessesThatAreLongGone(t *testing.T) {
	t.Parallel()
	rdb, name := redistest.Client(t), redistest.Queue(t)
	sessions := "leaseq:v1:{" + name + "}:sessions"
	old := time.Now().Add(-2 * time.Hour).UnixMilli()
	for i := range 300 {
		require.NoError(t, rdb.HSet(t.Context(), sessions, fmt.Sprintf("1-%04x", i), fmt.Sprintf("1 %d n", old)).Err())
	}
	g := guardOn(t, rdb, name, nil)
	require.NoError(t, begin(t, g, "k").Permit.Abort(t.Context()))
	require.Eventually(t, func() bool {
		n, err := rdb.HLen(t.Context(), sessions).Result()
		return err == nil && n == 1
	}, 10*time.Second, 5*time.Millisecond)
}

// Abandoning is told at once, also where the record rides on a job's lease.
func TestAnAbandonedKeyIsInDoubtAtOnce(t *testing.T) {
	t.Parallel()
	g := newGuard(t, nil)
	_, err := idempotency.Do(t.Context(), g, "k", func(context.Context) (int, error) { return 0, errors.New("timeout") }, nil)
	require.Error(t, err)
	a := begin(t, g, "k")
	assert.True(t, a.InDoubt)
	require.NoError(t, a.Permit.Abandon(t.Context()))
	require.ErrorIs(t, a.Permit.Commit(t.Context(), nil), idempotency.ErrNotOwner, "who abandons owns nothing")
}
