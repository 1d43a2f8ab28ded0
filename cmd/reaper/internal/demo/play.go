package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/reliable"
)

// perform plays all acts and computes the ledger. Without a ledger the error says why there is none; what goes wrong
// once there are jobs stands in the ledger.
func (s *stage) perform(ctx context.Context) (*ledger, error) {
	for _, act := range []func(context.Context) error{s.startWorkers, s.awaitSweepers, s.enqueueMost} {
		if err := act(ctx); err != nil {
			return nil, err
		}
	}
	var err error
	for _, act := range []func(context.Context) error{s.killOne, s.enqueueRest, s.freezeOne, s.awaitEnd} {
		if err = act(ctx); err != nil {
			break
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		s.story.say("This goes wrong: %v", err)
	}
	err = errors.Join(err, s.crew.dismiss(stopBound))
	s.story.end()
	book, missing := s.settleBooks(ctx)
	if missing != nil {
		return nil, errors.Join(err, fmt.Errorf("there is no ledger: %w", missing))
	}
	if err != nil {
		book.Problems = append([]string{err.Error()}, book.Problems...)
	}
	return book, nil
}

func (s *stage) startWorkers(ctx context.Context) error {
	var names []string
	for range workers {
		w, err := s.hire()
		if err != nil {
			return err
		}
		names = append(names, w.String())
	}
	err := s.until(ctx, "all workers are up", func() (bool, error) { return len(s.up) >= workers, nil })
	if err == nil {
		s.story.say("Workers %s are up.", strings.Join(names, ", "))
		s.story.say("Each runs %d jobs at a time, under leases of %v, and puts back jobs whose leases expired.", slots, leaseLength)
		s.story.say("Side effects go through the guard: one that is done is not done again, and of one that was cut off the next worker is told.")
	}
	return err
}

func (s *stage) hire() (*worker, error) {
	w, err := s.crew.hire()
	if err == nil && s.options.onWorker != nil {
		s.options.onWorker(w.pid())
	}
	return w, err
}

// awaitSweepers waits for the end of the grace that a queue's first sweep begins: for one lease nothing expires, since
// nobody knows yet whether the holders were cut off or dead. A kill within it would be swept up later than usual.
func (s *stage) awaitSweepers(ctx context.Context) error {
	partition, err := keys.New(keyPrefix, s.queue.Name(), 0)
	if err != nil {
		return err
	}
	s.story.say("The first sweep of a queue spares all holders for one lease: the demo waits for that.")
	return s.until(ctx, "the first sweep's grace is over", func() (bool, error) {
		grace, err := s.server.rdb.HGet(ctx, partition.Key("sweep"), "grace").Int64()
		if err != nil {
			return false, exceptNil(err)
		}
		now, err := s.server.rdb.Time(ctx).Result()
		return err == nil && grace > 0 && now.UnixMilli() > grace+50, err
	})
}

// exceptNil is the error of a read, if it is more than that nothing is there.
func exceptNil(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

// enqueueMost is the producer before the kill, and enqueueRest after it: so there are long jobs to be interrupted for
// both the kill and the freeze, however busy the machine is.
func (s *stage) enqueueMost(ctx context.Context) error {
	from, to := s.heldBack()
	if err := s.enqueue(ctx, slices.Concat(s.orders[:from], s.orders[to:])); err != nil {
		return err
	}
	delayed := 0
	for i := range s.orders {
		if s.orders[i].DelayMs > 0 {
			delayed++
		}
	}
	s.story.say("%d jobs of a web shop are enqueued, and more will follow; %d of all are for later.", len(s.enqueued), delayed)
	return nil
}

func (s *stage) enqueueRest(ctx context.Context) error {
	from, to := s.heldBack()
	err := s.enqueue(ctx, s.orders[from:to])
	if err == nil {
		s.story.say("%d more jobs are enqueued.", to-from)
	}
	return err
}

// heldBack is the part of the sample that is enqueued after the kill: about a third, with half of the long jobs.
func (s *stage) heldBack() (from, to int) { return len(s.orders) / 5, len(s.orders) / 2 }

func (s *stage) enqueue(ctx context.Context, orders []order) error {
	s.settled = false
	for chunk := range slices.Chunk(orders, enqueueChunk) {
		var items []reliable.Item
		for i := range chunk {
			items = append(items, chunk[i].item())
		}
		results, err := s.queue.EnqueueMany(ctx, items)
		for i := range results {
			s.enqueued = append(s.enqueued, results[i].ID)
			err = errors.Join(err, results[i].Err)
		}
		if err != nil {
			return fmt.Errorf("enqueue: %w", err)
		}
	}
	return nil
}

func (s *stage) awaitEnd(ctx context.Context) error {
	err := s.until(ctx, "all jobs are acked or dead", func() (bool, error) { return s.settled, nil })
	if err == nil {
		s.story.say("Nothing is due and nothing runs any more: the workers are asked to end.")
	}
	return err
}
