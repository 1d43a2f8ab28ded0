package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/internal/wire"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

const (
	shortLease = 20 * time.Millisecond // of jobs that are to run out
	longLease  = time.Hour             // at least, of those that are not
	spread     = time.Hour             // due times lie in the last hour, put back ones in the next
	loadBatch  = lease.MaxBatch
	loaders    = 4 // goroutines that load at once
	kind       = "bench"
	queueName  = "scale"
)

// A crowd is a queue with many jobs, in due or in processing. Due times and expiries are spread at random, so that what
// is put in goes anywhere between what is there.
type crowd struct {
	server *server
	rdb    *redis.Client
	store  *lease.Store
	record []byte // the envelope of every job
	size   int    // of the payload in it
	newID  func() string
	held   []lease.Held
	loaded int
}

// newCrowd opens an empty queue on a new server.
func newCrowd(ctx context.Context, payload int, newID func() string) (*crowd, error) {
	record, err := wire.Append(nil, &wire.Envelope{Kind: kind, Payload: bytes.Repeat([]byte("x"), payload), EnqueuedAt: time.Now()})
	if err != nil {
		return nil, err
	}
	s, err := startServer(ctx)
	if err != nil {
		return nil, err
	}
	c := &crowd{server: s, rdb: redis.NewClient(&redis.Options{Addr: s.Addr()}), record: record, size: payload, newID: newID}
	if c.store, err = lease.NewStore(c.rdb, queueName, nil); err != nil {
		return nil, errors.Join(err, c.close(ctx))
	}
	often := 1 << 20 // nothing dies
	_, err = c.store.Publish(ctx, &lease.Policy{Lease: shortLease, MaxRetries: &often, MaxExpiries: &often})
	if err != nil {
		return nil, errors.Join(err, c.close(ctx))
	}
	return c, nil
}

// leave closes the queue, and leaves the server and the jobs.
func (c *crowd) leave(ctx context.Context) error {
	if c.rdb == nil {
		return nil
	}
	var err error
	if c.store != nil {
		err = c.store.Close(context.WithoutCancel(ctx))
	}
	err = errors.Join(err, c.rdb.Close())
	c.rdb = nil
	return err
}

func (c *crowd) close(ctx context.Context) error {
	return errors.Join(c.leave(ctx), c.server.stop(ctx))
}

// idOf makes IDs of so many bytes.
func idOf(size int) func() string {
	if size == idSize {
		return reliable.NewID
	}
	if size > idSize {
		tail := strings.Repeat("x", size-idSize)
		return func() string { return reliable.NewID() + tail }
	}
	var n atomic.Int64
	return func() string { return fmt.Sprintf("%0*x", size, n.Add(1)) }
}

// items makes n jobs that are due, since any time of the last hour.
func (c *crowd) items(n int) []lease.Item {
	items, now := make([]lease.Item, n), time.Now()
	for i := range items {
		items[i] = lease.Item{ID: c.newID(), Record: c.record, Size: c.size, At: now.Add(-rand.N(spread))}
	}
	return items
}

func (c *crowd) enqueue(ctx context.Context, items []lease.Item) error {
	results, err := c.store.Enqueue(ctx, items)
	return errors.Join(append(results, err)...)
}

// fill enqueues until n jobs were loaded, call by call. The jobs of the next call are made meanwhile.
func (c *crowd) fill(ctx context.Context, m *meter, n int) error {
	next, stop := make(chan []lease.Item, loaders), make(chan struct{})
	defer close(stop)
	from := c.loaded
	go func() {
		defer close(next)
		for at := from; at < n; at += loadBatch {
			select {
			case next <- c.items(min(loadBatch, n-at)):
			case <-stop:
				return
			}
		}
	}()
	for items := range next {
		if err := m.call(ctx, opLoad, loadBatch, func() error { return c.enqueue(ctx, items) }); err != nil {
			return err
		}
	}
	c.loaded = max(c.loaded, n)
	return nil
}

// hold enqueues and claims, from several goroutines, until n jobs are in processing.
func (c *crowd) hold(ctx context.Context, _ *meter, n int) error {
	var mu sync.Mutex
	err := c.load(ctx, n, func(ctx context.Context, n int) error {
		if err := c.enqueue(ctx, c.items(n)); err != nil {
			return err
		}
		got, err := c.store.Claim(ctx, n, &lease.ClaimOptions{Lease: longLease + rand.N(spread)})
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		c.keep(got.Jobs)
		return nil
	})
	if err == nil && len(c.held) < n {
		return fmt.Errorf("%d jobs are in processing: want %d", len(c.held), n)
	}
	return err
}

func (c *crowd) keep(jobs []lease.Lease) {
	for i := range jobs {
		// Copies: the texts that came with an answer would keep all of it in memory.
		c.held = append(c.held, lease.Held{ID: strings.Clone(jobs[i].ID), Token: strings.Clone(jobs[i].Token)})
	}
}

// load calls put from several goroutines, until n jobs in all were loaded.
func (c *crowd) load(ctx context.Context, n int, put func(ctx context.Context, n int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	next.Store(int64(c.loaded))
	var all sync.WaitGroup
	for range loaders {
		all.Go(func() {
			for ctx.Err() == nil {
				from := int(next.Add(loadBatch)) - loadBatch
				if from >= n {
					return
				}
				if err := put(ctx, min(loadBatch, n-from)); err != nil {
					cancel(err)
				}
			}
		})
	}
	all.Wait()
	c.loaded = max(c.loaded, n)
	return context.Cause(ctx)
}

// take removes n leases from those that are held, any of them.
func (c *crowd) take(n int) []lease.Held {
	out := make([]lease.Held, n)
	for i := range out {
		at := rand.N(len(c.held))
		out[i] = c.held[at]
		c.held[at] = c.held[len(c.held)-1]
		c.held = c.held[:len(c.held)-1]
	}
	return out
}

// some are n leases of those that are held, which stay there.
func (c *crowd) some(n int) []lease.Held {
	out := c.take(n)
	c.held = append(c.held, out...)
	return slices.Clone(out)
}
