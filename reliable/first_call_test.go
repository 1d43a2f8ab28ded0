package reliable_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redisproc"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

func TestTheFirstEnqueueOfAProcessWaitsAnOutageOut(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, &redisproc.Options{AppendOnly: true, AppendFsync: "always"})
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), DialerRetries: 1, MaxRetries: -1})
	t.Cleanup(func() { _ = rdb.Close() })
	require.NoError(t, server.Kill())
	q := queueOn(t, rdb, "orders", nil)
	first := enqueueAside(context.Background(), q, job("k"))
	many := make(chan error, 1)
	go func() {
		_, err := q.EnqueueMany(context.Background(), jobs("k", 3))
		many <- err
	}()
	select {
	case a := <-first:
		require.FailNow(t, "it did not wait", "%v", a.err)
	case err := <-many:
		require.FailNow(t, "it did not wait", "%v", err)
	case <-time.After(2 * time.Second): // several tries
	}
	require.NoError(t, server.Restart(t.Context()))
	require.NoError(t, receive(t, first).err)
	require.NoError(t, receive(t, many))
	stats, err := q.Stats(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 4, stats.Due)

	early, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	<-early.Done()
	other := queueOn(t, rdb, "mail", nil)
	_, err = other.Enqueue(early, job("k"))
	require.ErrorIs(t, err, reliable.ErrNeverRan)
}

func TestCloseDoesNotWaitForAFirstEnqueueInAnOutage(t *testing.T) {
	t.Parallel()
	name, o := redistest.Queue(t), redistest.Options(t)
	proxy := redistest.Proxy(t, o.Addr)
	o.Addr = proxy.Addr()
	var dials atomic.Int64
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	proxy.Cut()
	q, err := reliable.New(rdb, name, nil)
	require.NoError(t, err)
	var waiting []<-chan answer
	for range 3 {
		waiting = append(waiting, enqueueAside(context.Background(), q, job("k")))
	}
	require.Eventually(t, func() bool { return dials.Load() > 2 }, 20*time.Second, time.Millisecond, "they try")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = q.Close(ctx) // its error depends on how far they have come
	}()
	receive(t, closed)
	for _, a := range waiting {
		require.ErrorIs(t, receive(t, a).err, reliable.ErrClosed)
	}
}

func TestCloseDoesNotWaitForConnectionsThatWouldHaveToBeDialled(t *testing.T) {
	t.Parallel()
	name, o := redistest.Queue(t), redistest.Options(t)
	proxy := redistest.Proxy(t, o.Addr)
	o.Addr, o.PoolSize, o.MinIdleConns = proxy.Addr(), 4, 4
	nowhere, over := make(chan struct{}), make(chan struct{})
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		select {
		case <-nowhere:
			select { // as a network that swallows every packet
			case <-ctx.Done():
			case <-over:
			}
			return nil, &net.OpError{Op: "dial", Net: network, Err: context.DeadlineExceeded}
		default:
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}
	}
	rdb := redis.NewClient(o)
	t.Cleanup(func() {
		close(over)
		_ = rdb.Close()
	})
	q, err := reliable.New(rdb, name, nil)
	require.NoError(t, err)
	put(t, q, job("k"))
	require.Eventually(t, func() bool { return rdb.PoolStats().IdleConns == 4 }, 20*time.Second, time.Millisecond)
	close(nowhere)
	proxy.Cut()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err = q.Enqueue(ctx, job("k"))
	require.Error(t, err)
	ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	_ = q.Close(ctx)
	require.Less(t, time.Since(began), 15*time.Second, "five dials of five seconds")
}
