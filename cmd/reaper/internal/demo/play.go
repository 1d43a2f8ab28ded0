package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/reliable"
)

// perform plays all acts and computes the ledger. Without a ledger the error says why there is none; what goes wrong
// once there are jobs stands in the ledger.
func (s *stage) perform(ctx context.Context) (*ledger, error) {
	for _, act := range []func(context.Context) error{s.startWorkers, s.awaitSweepers, s.enqueue} {
		if err := act(ctx); err != nil {
			return nil, err
		}
	}
	var err error
	for _, act := range []func(context.Context) error{s.killOne, s.freezeOne, s.awaitEnd} {
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

// enqueue is the producer: it sends the jobs in the order of the sample.
func (s *stage) enqueue(ctx context.Context) error {
	delayed := 0
	s.settled = false
	for from := 0; from < len(s.orders); from += enqueueChunk {
		var items []reliable.Item
		for i := from; i < min(from+enqueueChunk, len(s.orders)); i++ {
			items = append(items, s.orders[i].item())
			if s.orders[i].DelayMs > 0 {
				delayed++
			}
		}
		results, err := s.queue.EnqueueMany(ctx, items)
		for i := range results {
			err = errors.Join(err, results[i].Err)
		}
		if err != nil {
			return fmt.Errorf("enqueue: %w", err)
		}
	}
	s.story.say("%d jobs of a web shop are enqueued, %d of them for later.", len(s.orders), delayed)
	return nil
}

// choose waits until a worker is in the middle of a job that goes on for some time, so that it still is when the signal
// arrives. There are only a few long jobs: soon it takes one that goes on for at least a given time.
func (s *stage) choose(ctx context.Context, least time.Duration) (*worker, error) {
	const long, picky = 300 * time.Millisecond, 300 * time.Millisecond
	began := time.Now()
	var chosen *worker
	err := s.until(ctx, "a worker is in the middle of a job", func() (bool, error) {
		enough := long
		if time.Since(began) > picky {
			enough = least
		}
		most := time.Duration(0)
		for _, w := range s.crew.atWork() {
			for _, l := range s.running[w.pid()] {
				if o := s.byID[l.ID]; o == nil || o.left(l.Time) < enough {
					continue
				} else if left := o.left(l.Time); chosen == nil || left > most {
					chosen, most = w, left
				}
			}
		}
		if chosen == nil && s.settled {
			return false, errors.New("all jobs were done before a worker was seen in the middle of one: the machine is too busy")
		}
		return chosen != nil, nil
	})
	return chosen, err
}

// killOne ends a worker with SIGKILL in the middle of jobs, and starts another in its place.
func (s *stage) killOne(ctx context.Context) error {
	const inFullSwing = 10
	err := s.until(ctx, "some jobs are acked", func() (bool, error) { return s.acked >= inFullSwing, nil })
	if err != nil {
		return err
	}
	w, err := s.choose(ctx, 20*time.Millisecond)
	if err != nil {
		return err
	}
	before, err := s.inTheMiddle(ctx, w, "killed")
	if err != nil {
		return err
	}
	if err := w.kill(); err != nil {
		return err
	}
	// What it ended between the look and the signal was not interrupted, and what it began in between was. Its leases
	// can only have been extended meanwhile, so the later look tells the expiry that counts.
	after, err := s.inTheMiddle(ctx, w, "killed")
	if err != nil {
		return err
	}
	s.broken = append(s.broken, after...)
	s.story.say("%s is in the middle of %d jobs, by its own lines: SIGKILL.", w, len(before))
	if len(after) == 0 {
		return fmt.Errorf("the kill missed: worker %s held no running job when it died", w)
	}
	s.story.say("  It held the leases of %s, which last up to %v more.", listIDs(after), leaseLength)
	replacement, err := s.hire()
	if err != nil {
		return err
	}
	s.story.say("%s is started in its place.", replacement)
	return nil
}

// freezeOne stops a worker in the middle of jobs until all its leases were taken away, and lets it go on.
func (s *stage) freezeOne(ctx context.Context) error {
	if !canFreeze {
		s.story.say("This system cannot freeze a process (no SIGSTOP): that step is left out.")
		return nil
	}
	w, caught, err := s.catch(ctx)
	if err != nil {
		return err
	}
	s.broken = append(s.broken, caught...)
	s.story.say("%s is in the middle of %d jobs: SIGSTOP.", w, len(caught))
	err = s.until(ctx, "the frozen worker's leases run out", func() (bool, error) {
		for _, b := range caught {
			if !b.ended {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	if err := w.thaw(); err != nil {
		return err
	}
	s.froze = true
	s.story.say("All leases of %s have run out: SIGCONT. It goes on where it stood.", w)
	return s.until(ctx, "the thawed worker comes late with a verdict", func() (bool, error) {
		return s.refused[w.pid()] > 0 && s.counters["refused"] > 0, nil
	})
}

// catch freezes a worker that is in the middle of jobs. One that was not is let go, and another is chosen.
func (s *stage) catch(ctx context.Context) (*worker, []*interrupted, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, actBound, errors.New("no worker could be frozen in the middle of a job"))
	defer cancel()
	for {
		w, err := s.choose(ctx, -time.Hour) // any that runs: it can be tried again
		if err != nil {
			return nil, nil, err
		}
		if err := w.freeze(); err != nil {
			return nil, nil, err
		}
		// What was on its way to Redis has arrived when it is asked a little later.
		stopped := time.Now()
		err = s.until(ctx, "the frozen worker stands still", func() (bool, error) { return time.Since(stopped) > sampleEvery, nil })
		var caught []*interrupted
		if err == nil {
			caught, err = s.inTheMiddle(ctx, w, "frozen")
		}
		if err != nil || len(caught) > 0 {
			return w, caught, err
		}
		if err := w.thaw(); err != nil {
			return nil, nil, err
		}
	}
}

func (s *stage) awaitEnd(ctx context.Context) error {
	err := s.until(ctx, "all jobs are acked or dead", func() (bool, error) { return s.settled, nil })
	if err == nil {
		s.story.say("Nothing is due and nothing runs any more: the workers are asked to end.")
	}
	return err
}

// listIDs names the jobs of interrupted deliveries.
func listIDs(list []*interrupted) string {
	ids := make([]string, len(list))
	for i, b := range list {
		ids[i] = b.ID
	}
	return strings.Join(ids, ", ")
}
