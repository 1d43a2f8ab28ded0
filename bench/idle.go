package main

import (
	"context"
	"errors"
	"time"
)

// calmConcurrency is how many handlers may run where few do.
const calmConcurrency = 10

// measureIdle measures what a worker sends that has nothing to do.
func measureIdle(ctx context.Context, b *bench, _ int) error {
	if b.plan.idle == 0 {
		return nil
	}
	return b.atOnce(ctx, "idle", b.variants(), func(ctx context.Context, s *stand) (err error) {
		w, err := beginIdle(ctx, s, func(context.Context, []byte) {})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, w.stop()) }()
		n, err := countCommands(ctx, s.server.Addr(), b.plan.idle)
		if err != nil {
			return err
		}
		s.add("idle_commands", float64(n)/b.plan.idle.Seconds())
		return nil
	})
}

// beginIdle starts a worker, sees it work on one job, and leaves it alone until it is idle.
func beginIdle(ctx context.Context, s *stand, handle Handler) (*work, error) {
	first := newCountdown(1)
	w := begin(ctx, s, calmConcurrency, func(ctx context.Context, payload []byte) {
		if len(payload) == 0 { // the one below
			first.count()
			return
		}
		handle(ctx, payload)
	})
	err := s.Enqueue(ctx, []Job{{}})
	if err == nil {
		err = w.wait(ctx, first.all)
	}
	if err == nil {
		err = w.rest(ctx, s.bench.plan.settle)
	}
	if err != nil {
		return nil, errors.Join(err, w.stop())
	}
	return w, nil
}

// clock is what times in payloads count from: it is not set while the program runs.
var clock = time.Now()

// now is the time in ns on that clock.
func now() int64 { return int64(time.Since(clock)) }
