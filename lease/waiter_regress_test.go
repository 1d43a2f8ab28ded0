package lease

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
)

func TestEveryListenerIsServedThoughOthersLeaveAfterTheirs(t *testing.T) {
	t.Parallel()
	redistest.NeedServer(t)
	b := onRedis(t)
	w, err := NewWaiter(b.Store, time.Minute, nil)
	require.NoError(t, err)
	t.Cleanup(w.Close)
	const n = 4
	served := make(chan bool, n)
	armed := make(chan struct{}, n)
	go func() {
		var all sync.WaitGroup
		for range n {
			all.Go(func() {
				leave := w.Listen()
				defer leave()
				w.Arm()
				armed <- struct{}{}
				select {
				case took := <-w.C():
					served <- took
				case <-t.Context().Done():
				}
			})
		}
		all.Wait()
	}()
	for range n {
		<-armed
	}
	for range n {
		require.NoError(t, b.Wake(t.Context()))
		select {
		case took := <-served:
			require.True(t, took)
		case <-time.After(5 * time.Second):
			require.FailNow(t, "nobody waits for the wake-up, though somebody listens")
		}
	}
}

func TestCloseOfAWaiterDoesNotWaitForAConnectionThatIsBeingMade(t *testing.T) {
	t.Parallel()
	dialing, release := make(chan struct{}, 100), make(chan struct{})
	rdb := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1",
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			dialing <- struct{}{}
			select { // a host that is gone answers nothing
			case <-ctx.Done():
			case <-release:
			}
			return nil, context.DeadlineExceeded
		},
	})
	t.Cleanup(func() { _ = rdb.Close() })
	t.Cleanup(func() { close(release) })
	store, err := NewStore(rdb, "q", nil)
	require.NoError(t, err)
	w, err := NewWaiter(store, 0, nil)
	require.NoError(t, err)
	defer w.Listen()()
	w.Arm()
	<-dialing
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		w.Close()
	}()
	select {
	case <-closed:
	case <-time.After(2 * time.Second):
		require.FailNow(t, "Close waits for the dial")
	}
}
