package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// steadyProducers enqueue, one job a call, while steadyConcurrency handlers work. They pause while steadyBacklog jobs
// wait: otherwise producers would take the processors from a slower worker, and that would be no steady state. It is more
// than any system works off while it is between two polls.
const (
	steadyProducers   = 10
	steadyConcurrency = 50
	steadyBacklog     = 20_000
)

// measureSteady measures how many jobs a second go through while producers and a worker run.
func measureSteady(ctx context.Context, b *bench, round int) error {
	if b.plan.steady == 0 {
		return nil
	}
	return b.inTurn(ctx, round, "steady", steady)
}

func steady(ctx context.Context, s *stand) (err error) {
	var started, stored atomic.Int64
	w := begin(ctx, s, steadyConcurrency, func(context.Context, []byte) { started.Add(1) })
	defer func() { err = errors.Join(err, w.stop()) }()
	producing, stop := context.WithCancelCause(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer stop(nil)
	for range steadyProducers {
		all.Go(func() {
			jobs := []Job{{Payload: newPayload()}}
			for producing.Err() == nil {
				if stored.Load()-started.Load() >= steadyBacklog {
					_ = sleep(producing, time.Millisecond)
					continue
				}
				// A call that is broken off may or may not have stored its job: none is.
				if err := s.Enqueue(context.WithoutCancel(producing), jobs); err != nil {
					stop(err)
					return
				}
				stored.Add(1)
			}
		})
	}
	if err := w.rest(producing, s.bench.plan.settle); err != nil { // until everybody has begun
		return err
	}
	startedBefore, storedBefore, at := started.Load(), stored.Load(), time.Now()
	if err := w.rest(producing, s.bench.plan.steady); err != nil {
		return err
	}
	seconds := time.Since(at).Seconds()
	s.add("steady", float64(started.Load()-startedBefore)/seconds)
	s.add("steady_enqueued", float64(stored.Load()-storedBefore)/seconds)
	return nil
}
