package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/leaseq/leaseq/lease"
)

// A deletion is what is done to a queue, and its books.
type deletion struct {
	c      *deleteCommand
	survey *survey
	show   *progress

	jobs, ended, records int64
	name                 bool // in the registry, and taken out
}

func (d *deletion) books() string {
	text := fmt.Sprintf("%d jobs", d.jobs+d.ended)
	if d.ended > 0 {
		text += fmt.Sprintf(", %d of them in processing", d.ended)
	}
	text += fmt.Sprintf(", %d idempotency records", d.records)
	if d.name {
		text += ", the name in the registry"
	}
	return text
}

// run deletes jobs, then keys, then the name, then records; so the queue is in the registry for as long as there may be
// jobs. At the end it looks whether anything is there again.
func (d *deletion) run(ctx context.Context) error {
	partitions := slices.Sorted(maps.Keys(d.survey.partitions))
	for _, partition := range partitions {
		if err := d.deletePartition(ctx, partition); err != nil {
			return err
		}
	}
	if err := d.unregister(ctx); err != nil {
		return err
	}
	if err := d.deleteRecords(ctx); err != nil {
		return err
	}
	if d.survey.swept() && d.c.patience > 0 {
		d.show.say("A sweeper looks after the queue; waiting up to %v until it has noticed.", d.c.patience)
		begun := time.Now()
		for _, partition := range partitions {
			if err := d.awaitSweeper(ctx, partition, begun); err != nil {
				return err
			}
		}
	}
	return d.lookAgain(ctx)
}

// with has a store for one partition, whose sessions are closed afterwards.
func (d *deletion) with(partition int, do func(store *lease.Store) error) error {
	store, err := d.c.store(partition)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeBound)
		defer cancel()
		_ = store.Close(ctx)
	}()
	return do(store)
}

// call bounds one call, which a signal does not cut off: it is short.
func (d *deletion) call(ctx context.Context, do func(ctx context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.c.timeout)
	defer cancel()
	return d.c.failed(do(bounded))
}

// late is how many jobs that were enqueued meanwhile are deleted too, before producers are told to stop.
const late = 10_000

// deletePartition deletes the jobs of a partition, and then its keys.
func (d *deletion) deletePartition(ctx context.Context, partition int) error {
	return d.with(partition, func(store *lease.Store) error {
		p := d.survey.partitions[partition]
		most := p.Due + p.Processing + p.Dead + p.Done + late
		running := lease.RefuseRunning
		for begun := false; ; begun = true {
			switch {
			case d.c.force:
				running = lease.EndRunning
			case begun:
				running = lease.LeaveRunning
			}
			var got lease.Deleted
			err := d.call(ctx, func(ctx context.Context) (err error) {
				got, err = store.DeleteNext(ctx, d.c.batch, running)
				return err
			})
			if err != nil {
				return err
			}
			d.jobs, d.ended = d.jobs+int64(got.Jobs), d.ended+int64(got.Ended)
			most -= int64(got.Jobs + got.Ended)
			d.show.update(d.jobs+d.ended, "%d jobs deleted, %d left", d.jobs+d.ended, got.Left)
			switch {
			case got.Processing > 0 && running == lease.RefuseRunning && d.jobs == 0:
				return busy(d.c.queue, got.Processing)
			case got.Left > 0 && most > 0 || d.c.force && got.Processing > 0 && most > 0:
				continue
			case got.Left > 0 || got.Processing > 0:
				return inUse(got)
			}
			var left int64
			err = d.call(ctx, func(ctx context.Context) (err error) {
				left, err = store.Erase(ctx)
				return err
			})
			if err != nil || left == 0 {
				return err
			}
		}
	})
}

// inUse says that others still work on the queue.
func inUse(got lease.Deleted) error {
	return fmt.Errorf("the queue is in use: %d jobs came meanwhile, and %d are in processing; they stay whole, and the queue with them: "+
		"end its producers and consumers, and run this again", got.Left, got.Processing)
}

// unregister takes the queue's name out of the registry.
func (d *deletion) unregister(ctx context.Context) error {
	return d.with(0, func(store *lease.Store) error {
		err := d.call(ctx, store.Unregister)
		d.name = err == nil && d.survey.registered
		return err
	})
}

// deleteRecords deletes the idempotency records of all partitions.
func (d *deletion) deleteRecords(ctx context.Context) error {
	return d.c.find(ctx, func(page []lease.Found) error {
		return d.call(ctx, func(ctx context.Context) error {
			n, err := lease.DeleteRecords(ctx, d.c.rdb, page)
			d.records += n
			d.show.update(d.jobs+d.ended, "%d idempotency records deleted", d.records)
			return err
		})
	})
}

var errStillSwept = errors.New("all jobs are deleted, but a consumer or a sidecar still looks after the queue and makes keys of it: " +
	"end it, and run this again")

// awaitSweeper waits until no sweeper makes keys of a partition any more, and deletes what the last one has made.
func (d *deletion) awaitSweeper(ctx context.Context, partition int, begun time.Time) error {
	const look = 250 * time.Millisecond
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
		stats, err := d.c.stats(ctx, partition)
		if err != nil {
			return err
		}
		quiet := stats.SinceSweep < 0 && time.Since(begun) > sweeperGone || stats.SinceSweep > sweeperGone
		if !quiet && time.Since(begun) > d.c.patience {
			return errStillSwept
		}
		if !quiet {
			timer.Reset(look)
			continue
		}
		return d.with(partition, func(store *lease.Store) error {
			return d.call(ctx, func(ctx context.Context) error {
				_, err := store.Erase(ctx) // jobs that are there again are found by lookAgain
				return err
			})
		})
	}
}

// lookAgain finds what is there once more, or still.
func (d *deletion) lookAgain(ctx context.Context) error {
	s, err := d.c.survey(ctx)
	switch {
	case err != nil:
		return err
	case s.empty():
		return nil
	case s.sum.Due+s.sum.Processing+s.sum.Dead+s.sum.Done > 0:
		err := d.with(0, func(store *lease.Store) error { return d.call(ctx, store.Register) })
		return errors.Join(inUse(lease.Deleted{Left: s.sum.Due + s.sum.Dead + s.sum.Done, Processing: s.sum.Processing}), err)
	case s.sum.keys > 0 || s.registered:
		return fmt.Errorf("all jobs are deleted, but the queue is in use: %s; end its consumers, sidecars and producers, and run this again", s.rest())
	case len(s.strangers) > 0:
		return fmt.Errorf("everything of the queue is deleted; keys with its tag that are not ours stay: %s", strings.Join(s.strangers, ", "))
	}
	return fmt.Errorf("all jobs are deleted, but the queue is in use: %d idempotency records were made meanwhile; run this again", s.sum.records)
}

// rest says what is there again.
func (s *survey) rest() string {
	text := fmt.Sprintf("%d keys are there again", s.sum.keys)
	if s.sum.Sessions > 0 {
		text += fmt.Sprintf(", with %d sessions", s.sum.Sessions)
	}
	if s.registered {
		text += ", and its name is in the registry"
	}
	return text
}
