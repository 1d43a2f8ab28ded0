package script

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redistest"
)

// aged makes connections of a Link's own, idle and old enough to be doubted, and returns their client.
func aged(t *testing.T, r *Runner, proxy *netfault.Proxy) *ownClient {
	t.Helper()
	var all sync.WaitGroup
	if proxy != nil {
		proxy.Delay(50 * time.Millisecond) // so that each has one of its own
		defer proxy.Delay(0)
	}
	for range spareIdle {
		all.Go(func() {
			req := &Request{Script: countScript, Args: []any{"nobody", 1, "x"}}
			r.SendFirst(t.Context(), req)
			assert.NoError(t, req.Err)
		})
	}
	all.Wait()
	l := r.link
	l.mu.Lock()
	defer l.mu.Unlock()
	require.NotNil(t, l.spare)
	l.spare.made = l.spare.made.Add(-time.Minute)
	return l.spare
}

// spareOf is the client of a Link's own connections, and how many wait for the end of their calls.
func spareOf(l *Link) (spare *ownClient, retired int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.spare, len(l.retired)
}

func TestACallIsAnsweredByItsSecondTryWhereAllConnectionsHaveDied(t *testing.T) {
	t.Parallel()
	d, proxy := faultyDesk(t, never)
	var repeated atomic.Int64
	d.OnRepeat = func(string, error) { repeated.Add(1) }
	require.NoError(t, d.Do(t.Context(), count("x")))
	before := aged(t, d.runner, proxy)
	require.GreaterOrEqual(t, proxy.Silence(), 1+spareIdle)
	began := time.Now()
	for range 2 { // the second goes out on fresh connections at once
		c := count("x")
		require.NoError(t, d.Do(t.Context(), c))
		require.NoError(t, c.Err)
	}
	if time.Since(began) < 2*silence { // else the machine stood still
		assert.EqualValues(t, 1, repeated.Load(), "tries that had no answer")
	}
	after, _ := spareOf(d.runner.link)
	assert.NotSame(t, before, after)
	assert.Equal(t, 3, d.stat(t, "x"))
	proxy.Cut()
	proxy.Restore()
}

func TestConnectionsOfOurOwnStayWhereNoFreshOnesCanBeMade(t *testing.T) {
	t.Parallel()
	o := redistest.Options(t)
	var full atomic.Bool
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if full.Load() {
			return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("cannot assign requested address")}
		}
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	d := newDesk(t, redistest.Queue(t), rdb, redistest.Client(t))
	d.closeAtEnd(t)
	require.NoError(t, d.Do(t.Context(), count("x")))
	before := aged(t, d.runner, nil)
	full.Store(true)
	req := &Request{Script: countScript, Args: []any{"nobody", 1, "x"}}
	d.runner.SendAgain(t.Context(), req)
	require.NoError(t, req.Err, "on one that is there")
	after, _ := spareOf(d.runner.link)
	require.Same(t, before, after)
	full.Store(false)
	require.Eventually(t, func() bool {
		d.runner.SendAgain(t.Context(), req)
		after, _ := spareOf(d.runner.link)
		return req.Err == nil && after != before
	}, patience, pollEvery)
}

func TestACallOnConnectionsThatWereReplacedHasItsAnswer(t *testing.T) {
	t.Parallel()
	d, proxy := faultyDesk(t, never)
	require.NoError(t, d.Do(t.Context(), count("x")))
	before := aged(t, d.runner, proxy)
	watch(proxy, countScript, func(n int, _ request) netfault.Action {
		if n == 1 {
			return netfault.Hold
		}
		return netfault.Pass
	})
	t.Cleanup(func() { proxy.ReleaseHeld() })
	held, done := &Request{Script: countScript, Args: []any{"nobody", 1, "x"}}, make(chan error, 1)
	go func() {
		d.runner.SendFirst(context.Background(), held)
		done <- held.Err
	}()
	require.Eventually(t, func() bool { return proxy.Held() == 1 }, patience, pollEvery)
	other := &Request{Script: countScript, Args: []any{"nobody", 1, "x"}}
	d.runner.SendAgain(t.Context(), other)
	require.NoError(t, other.Err)
	after, retired := spareOf(d.runner.link)
	require.NotSame(t, before, after)
	require.Equal(t, 1, retired)
	proxy.ReleaseHeld()
	require.NoError(t, next(t, done))
	_, retired = spareOf(d.runner.link)
	require.Zero(t, retired)
	require.ErrorIs(t, before.Ping(t.Context()).Err(), redis.ErrClosed, "its last call has ended")
}

func TestCloseDoesNotWaitForFreshConnectionsThatNobodyAnswers(t *testing.T) {
	t.Parallel()
	proxy := redistest.Proxy(t, redistest.Addr(t))
	rdb := through(t, proxy, never)
	partition, err := keys.New(keys.DefaultPrefix, redistest.Queue(t), 0)
	require.NoError(t, err)
	r := NewRunner(rdb, partition)
	aged(t, r, proxy)
	proxy.BlackHole(true)
	require.NotNil(t, r.link.renew())
	require.NotNil(t, r.link.renew(), "the same again")
	require.NoError(t, r.Close())
	require.Nil(t, r.link.renew(), "nothing is made any more")
	proxy.BlackHole(false)
}

func TestConnectionsOfOurOwnToAClusterAreReplaced(t *testing.T) {
	t.Parallel()
	var addrs []string
	for _, node := range redistest.Cluster(t, 2, nil) {
		addrs = append(addrs, node.Addr())
	}
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	t.Cleanup(func() { _ = rdb.Close() })
	partition, err := keys.New("p", "q", 0)
	require.NoError(t, err)
	r := NewRunner(rdb, partition)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	before := aged(t, r, nil)
	req := &Request{Script: countScript, Args: []any{"nobody", 1, "x"}}
	r.SendAgain(t.Context(), req)
	require.NoError(t, req.Err)
	after, _ := spareOf(r.link)
	require.NotSame(t, before, after)
	r.SendAgain(t.Context(), req)
	again, _ := spareOf(r.link)
	require.Same(t, after, again, "they are new")
}
