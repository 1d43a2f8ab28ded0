package main

import (
	"context"
	"fmt"
)

// measureMemory measures what a job that waits needs in Redis beside its payload.
func measureMemory(ctx context.Context, b *bench, _ int) error {
	for _, n := range b.plan.memory {
		figure := memoryFigure(n)
		err := b.inTurn(ctx, 0, figure, func(ctx context.Context, s *stand) error {
			return memory(ctx, s, n, figure)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func memoryFigure(n int) string { return fmt.Sprintf("memory_%d", n) }

// memory compares the empty server with the full one, both without the system's connections, whose buffers are no part
// of the jobs.
func memory(ctx context.Context, s *stand, n int, figure string) error {
	empty, err := s.bench.emptyMemory(ctx)
	if err != nil {
		return err
	}
	if err := fill(ctx, s.System, n); err != nil {
		return err
	}
	if err := s.close(ctx); err != nil {
		return err
	}
	full, err := s.server.memory(ctx)
	if err != nil {
		return err
	}
	s.add(figure, (full-empty)/float64(n)-payloadSize)
	return nil
}

// emptyMemory is what a server that was never used has allocated.
func (b *bench) emptyMemory(ctx context.Context) (used float64, err error) {
	s, err := startServer(ctx, b.aof)
	if err != nil {
		return 0, err
	}
	defer s.stop(ctx)
	return s.memory(ctx)
}
