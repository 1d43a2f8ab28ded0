package main

import (
	"context"
	"time"
)

// measureEnqueue measures how many jobs a second are stored while nobody works.
func measureEnqueue(ctx context.Context, b *bench, round int) error {
	for _, way := range []struct {
		figure                 string
		jobs, goroutines, each int
	}{
		{"enqueue_1", b.plan.enqueueOne, 1, 1},
		{"enqueue_50", b.plan.enqueueMany, producers, 1},
		{"enqueue_batch", b.plan.enqueueBatch, 1, batchSize},
	} {
		if way.jobs == 0 {
			continue
		}
		err := b.inTurn(ctx, round, way.figure, func(ctx context.Context, s *stand) error {
			if _, ok := s.System.(Batcher); !ok && way.each > 1 {
				return nil
			}
			// The first calls load scripts and open connections.
			if err := enqueue(ctx, s, way.goroutines*way.each, way.goroutines, way.each); err != nil {
				return err
			}
			before, err := readUsage(ctx, s.server)
			if err != nil {
				return err
			}
			started := time.Now()
			if err := enqueue(ctx, s, way.jobs, way.goroutines, way.each); err != nil {
				return err
			}
			s.add(way.figure, float64(way.jobs)/time.Since(started).Seconds())
			after, err := readUsage(ctx, s.server)
			if err != nil {
				return err
			}
			s.addCosts(way.figure, before, after, way.jobs)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
