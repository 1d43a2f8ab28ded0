package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

// Producers that do not stop, at every step of a deletion: their jobs go, or stay whole, and the queue with them.
func TestAJobThatIsEnqueuedDuringADeletionGoesOrStaysWhole(t *testing.T) {
	t.Parallel()
	for what, stays := range map[string]bool{"delete": false, "erase": false, "srem": true, "unlink": true} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			rdb := redistest.Client(t)
			require.NoError(t, load(t))
			put := func(id string) {
				_, err := s.q.Enqueue(context.Background(), reliable.Item{Kind: "k", ID: id, Payload: []byte("of " + id)})
				assert.NoError(t, err)
			}
			put("before")
			require.NoError(t, rdb.HSet(t.Context(), s.key(t, 0, "guard:x"), "owner", "y").Err())
			proxy := redistest.Proxy(t, redistest.Addr(t))
			at(proxy, what, 1, func() netfault.Action {
				put("meanwhile")
				return netfault.Pass
			})
			code, out, errOut := invoke(t, nil, s.args("redis://"+proxy.Addr(), "queue", "delete", s.queue, "--yes", "--wait", "0")...)
			proxy.Decide(nil)
			if !stays {
				require.Zero(t, code, errOut)
				assert.Contains(t, out, "Deleted: 2 jobs")
				assert.Empty(t, everything(t, rdb, s.prefix, s.queue))
				return
			}
			assert.Equal(t, exitFailure, code)
			assert.Contains(t, errOut, "the queue is in use: 1 jobs came meanwhile, and 0 are in processing; they stay whole")
			assert.Equal(t, "of meanwhile", string(s.look(t, "meanwhile").Payload))
			assert.True(t, registered(t, rdb, s.prefix, s.queue), "with its jobs it is in the registry")
			redistest.CheckQueue(t, rdb, s.prefix, s.queue)
			code, _, errOut = invoke(t, nil, s.args(serverURL(t), "queue", "delete", s.queue, "--yes")...)
			require.Zero(t, code, errOut)
		})
	}
}

func TestAJobThatIsClaimedDuringADeletionStays(t *testing.T) {
	t.Parallel()
	rdb, prefix, queue := redistest.Client(t), newPrefix(), redistest.Queue(t)
	require.NoError(t, load(t))
	store := newStore(t, rdb, prefix, queue, time.Minute)
	enqueue(t, store, "a", "b", "c", "d", "e")
	proxy := redistest.Proxy(t, redistest.Addr(t))
	var held []lease.Lease
	at(proxy, "delete", 2, func() netfault.Action {
		for try := 0; try < 10 && len(held) < 2; try++ { // an answer that comes too late is followed by a claim of fewer
			got, err := store.Claim(context.Background(), 2-len(held), nil)
			if !assert.NoError(t, err) {
				break
			}
			held = append(held, got.Jobs...)
		}
		return netfault.Pass
	})
	args := []string{"queue", "delete", queue, "--yes", "--prefix", prefix, "--batch", "1", "--wait", "0", "--redis"}
	code, _, errOut := invoke(t, nil, append(args, "redis://"+proxy.Addr())...)
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, errOut, "0 jobs came meanwhile, and 2 are in processing; they stay whole, and the queue with them")
	assert.Contains(t, errOut, "(deleted so far: 3 jobs, 0 idempotency records)")
	require.Len(t, held, 2)
	for i := range held {
		settle(t, store, lease.Ack, &held[i])
	}
	code, _, errOut = invoke(t, nil, append(args, serverURL(t))...)
	require.Zero(t, code, errOut)
	assert.Empty(t, everything(t, rdb, prefix, queue))
}

// Nobody stops for a deletion: consumers lose what they hold, and go on.
func TestConsumersAndProducersGoOnBesideADeletion(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ctx, end := context.WithCancel(t.Context())
	var work sync.WaitGroup
	defer work.Wait()
	defer end()
	var handled atomic.Int64
	wanted := make(chan struct{})
	handler := reliable.HandlerFunc(func(ctx context.Context, job *reliable.Job) error {
		if string(job.Payload) != "of "+job.ID {
			t.Errorf("job %s came with the payload %q", job.ID, job.Payload)
		}
		if job.ID == "wanted" {
			close(wanted)
		}
		if handled.Add(1)%3 == 0 {
			return errors.New("once more")
		}
		return nil
	})
	for range 2 {
		c, err := reliable.NewConsumer(s.q, handler, &reliable.ConsumerOptions{Concurrency: 5})
		require.NoError(t, err)
		work.Go(func() { assert.NoError(t, c.Run(ctx)) })
	}
	producing, stop := context.WithCancel(ctx)
	defer stop()
	var producers sync.WaitGroup
	for p := range 2 {
		producers.Go(func() {
			for i := 0; producing.Err() == nil; i++ {
				id := fmt.Sprintf("p%d-%d", p, i)
				_, err := s.q.Enqueue(context.Background(), reliable.Item{Kind: "k", ID: id, Payload: []byte("of " + id), Delay: time.Duration(i%2) * time.Millisecond})
				var unknown *reliable.UnknownError
				if err != nil && !errors.As(err, &unknown) {
					t.Errorf("enqueue %s: %v", id, err)
				}
			}
		})
	}
	rdb := redistest.Client(t)
	for i := range 6 {
		before := handled.Load()
		require.Eventually(t, func() bool { return handled.Load() > before+50 }, within, time.Millisecond, "they do not go on")
		args := s.args(serverURL(t), "queue", "delete", s.queue, "--yes", "--batch", "50", "--wait", "0")
		if i%2 == 0 {
			args = append(args, "--force")
		}
		code, _, errOut := invoke(t, nil, args...)
		if code != 0 { // as good as always, since somebody always works
			assert.Equal(t, exitFailure, code)
			assert.Regexp(t, "in use|in processing", errOut)
		}
		redistest.CheckQueue(t, rdb, s.prefix, s.queue)
	}
	stop()
	producers.Wait()
	_, err := s.q.Enqueue(t.Context(), reliable.Item{Kind: "k", ID: "wanted", Payload: []byte("of wanted")})
	require.NoError(t, err)
	select {
	case <-wanted:
	case <-time.After(within):
		t.Error("the consumers do not go on")
	}
}

func TestADeletionWaitsForSweepersThatEnd(t *testing.T) {
	t.Parallel()
	rdb, prefix, queue := redistest.Client(t), newPrefix(), redistest.BrokenQueue(t)
	store := newStore(t, rdb, prefix, queue, 200*time.Millisecond)
	enqueue(t, store, "a", "b")
	sweeper, err := lease.NewSweeper(store, nil)
	require.NoError(t, err)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = sweeper.Run(ctx) // always nil
	}()
	defer func() {
		end()
		<-ended
	}()
	require.Eventually(t, func() bool {
		stats, err := store.Stats(t.Context())
		return err == nil && stats.SinceSweep >= 0
	}, within, 5*time.Millisecond)

	args := []string{"queue", "delete", queue, "--yes", "--prefix", prefix, "--redis", serverURL(t)}
	code, _, errOut := invoke(t, nil, append(args, "--wait", "100ms")...)
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, errOut, "a consumer or a sidecar still looks after the queue and makes keys of it: end it, and run this again")
	assert.Contains(t, errOut, "(deleted so far: 2 jobs, 0 idempotency records, the name in the registry)")

	enqueue(t, store, "c")
	p := launch(t, nil, append(args, "--wait", "1m")...)
	p.err.await(t, "A sweeper looks after the queue; waiting up to 1m0s")
	end()
	<-ended
	require.Zero(t, p.wait(t), &p.err)
	assert.Empty(t, everything(t, rdb, prefix, queue), "what the last sweep made is deleted too")
}
