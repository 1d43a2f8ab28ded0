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
	return nil
}
