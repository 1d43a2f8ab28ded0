package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// measureProcess measures how many jobs a second are worked off by handlers that do nothing. The jobs are there before
// the worker starts.
func measureProcess(ctx context.Context, b *bench, round int) error {
	for _, load := range b.plan.process {
		figure := fmt.Sprintf("process_%d", load.concurrency)
		err := b.inTurn(ctx, round, figure, func(ctx context.Context, s *stand) error {
			if err := fill(ctx, s.System, load.jobs); err != nil {
				return err
			}
			return process(ctx, s, load, figure)
		})
		if err != nil {
			return err
		}
	}
	return measurePrefetch(ctx, b, round)
}

// prefetched is how many jobs may wait in a worker with one handler.
const prefetched = 100

// measurePrefetch measures one handler again, in the systems that can let jobs wait in the worker; the others do what they
// do without, so that there is something of the same moment to compare with.
func measurePrefetch(ctx context.Context, b *bench, round int) error {
	if len(b.plan.process) == 0 || b.plan.process[0].concurrency != 1 {
		return nil
	}
	for i := range b.systems {
		system := b.systems[(i+round)%len(b.systems)]()
		load := load{concurrency: 1, jobs: b.plan.process[0].jobs}
		if _, ok := system.(Prefetcher); ok {
			load.jobs *= 8
		}
		err := b.stand(ctx, system, Options{Prefetch: prefetched}, "process_1_prefetch", func(ctx context.Context, s *stand) error {
			if err := fill(ctx, s.System, load.jobs); err != nil {
				return err
			}
			return process(ctx, s, load, "process_1_prefetch")
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// process measures from the call of Work to the return of the last handler. The costs go on to the end of Work, so that
// the last acks are in them.
func process(ctx context.Context, s *stand, load load, figure string) error {
	left := newCountdown(load.jobs)
	before, err := readUsage(ctx, s.server)
	if err != nil {
		return err
	}
	started := time.Now()
	w := begin(ctx, s, load.concurrency, func(context.Context, []byte) { left.count() })
	err = w.wait(ctx, left.all)
	took := time.Since(started)
	if err = errors.Join(err, w.stop()); err != nil {
		return err
	}
	after, err := readUsage(ctx, s.server)
	if err != nil {
		return err
	}
	s.add(figure, float64(load.jobs)/took.Seconds())
	s.addCosts(figure, before, after, load.jobs)
	if _, ok := s.System.(*leaseqSystem); ok && load.concurrency == ceilingConcurrency {
		return measureShare(ctx, s, float64(load.jobs)/took.Seconds())
	}
	return nil
}
