package main

import (
	"context"
	"errors"
	"sync"
	"time"
)

// measureDelayed measures how late jobs start that were enqueued with a delay.
func measureDelayed(ctx context.Context, b *bench, _ int) error {
	if b.plan.delayed.jobs == 0 {
		return nil
	}
	return b.atOnce(ctx, "delayed", b.variants(), delayed)
}

func delayed(ctx context.Context, s *stand) (err error) {
	plan := s.bench.plan.delayed
	var mu sync.Mutex
	var late []float64
	left := newCountdown(plan.jobs)
	w, err := beginIdle(ctx, s, func(_ context.Context, payload []byte) {
		ms := float64(now()-stampOf(payload)) / 1e6
		mu.Lock()
		late = append(late, ms)
		mu.Unlock()
		left.count()
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	began := now()
	for i := range plan.jobs {
		// The due time counts from before the call: a start before it is too early by any clock of this machine.
		due := began + int64(plan.lead) + int64(plan.over)*int64(i)/int64(plan.jobs)
		delay := time.Duration(due - now())
		if delay <= 0 {
			return errors.New("enqueueing took longer than the first delay")
		}
		if err := s.Enqueue(ctx, []Job{{Payload: stamped(due), Delay: delay}}); err != nil {
			return err
		}
	}
	if err := w.wait(ctx, left.all); err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	s.add("late_p50", percentile(late, 50))
	s.add("late_p99", percentile(late, 99))
	s.add("late_min", percentile(late, 0))
	return nil
}
