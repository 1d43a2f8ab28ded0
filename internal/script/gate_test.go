package script

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redistest"
)

var refusedDial = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}

func TestAServerThatCannotBeReachedIsDialledByOneCallAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := gate{most: lastDialWait}
		probe, err := g.enter(time.Now())
		require.NoError(t, err)
		require.False(t, probe)
		g.leave(time.Now(), refusedDial)
		dials, began := 0, time.Now()
		for time.Since(began) < time.Minute { // ten loops that try all the time
			for range 10 {
				probe, err := g.enter(time.Now())
				if err != nil {
					require.Equal(t, refusedDial, err)
					continue
				}
				require.True(t, probe)
				dials++
				g.leave(time.Now(), refusedDial)
			}
			time.Sleep(5 * time.Millisecond)
		}
		assert.InDelta(t, 60/(0.875*lastDialWait.Seconds()), dials, 60)

		time.Sleep(lastDialWait)
		probe, err = g.enter(time.Now())
		require.NoError(t, err)
		require.True(t, probe)
		g.leave(time.Now(), errors.New("LOADING")) // it can be reached
		for range 10 {
			probe, err := g.enter(time.Now())
			require.NoError(t, err)
			require.False(t, probe)
		}
	})
}

func TestCallsWorkOnConnectionsThatAreThereWhileDialsFail(t *testing.T) {
	t.Parallel()
	o := redistest.Options(t)
	var full atomic.Bool
	var dials atomic.Int64
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials.Add(1)
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
	full.Store(true)
	aside := &Request{Script: countScript, Args: []any{"nobody", 1, "x"}}
	d.runner.SendFirst(t.Context(), aside)
	require.True(t, isDial(aside.Err), "%v", aside.Err)
	for range 20 {
		c := count("x")
		require.NoError(t, d.Do(t.Context(), c))
		require.NoError(t, c.Err)
	}
	full.Store(false)
	require.Eventually(t, func() bool {
		d.runner.SendFirst(t.Context(), aside)
		return aside.Err == nil
	}, patience, pollEvery)
}

func TestRunnersOfOneLinkShareItsConnections(t *testing.T) {
	t.Parallel()
	o := redistest.Options(t)
	var dials atomic.Int64
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	link := NewLink(rdb)
	queue := redistest.Queue(t)
	for p := range 5 {
		partition, err := keys.New(keys.DefaultPrefix, queue, p)
		require.NoError(t, err)
		r := NewRunnerOn(link, partition)
		req := &Request{Script: countScript, Args: []any{"nobody", 1, "x"}}
		r.SendFirst(t.Context(), req)
		require.NoError(t, req.Err)
		require.NoError(t, r.Close())
	}
	assert.EqualValues(t, 1, dials.Load())
	require.NoError(t, link.Close())
	require.NoError(t, link.Close(), "again")
	req := &Request{Script: countScript, Args: []any{"nobody", 1, "x"}}
	partition, err := keys.New(keys.DefaultPrefix, queue, 0)
	require.NoError(t, err)
	NewRunnerOn(link, partition).SendFirst(t.Context(), req)
	require.NoError(t, req.Err, "on the client's own connections")
}
