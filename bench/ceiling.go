package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	ceilingConcurrency = 200 // where the share of the ceiling is measured
	ceilingCalls       = 100_000
	ceilingPipe        = 16
	ceilingClients     = 4
)

// ceilingScript is what a script that moves one job costs at least: one write to each of the three structures.
var ceilingScript = redis.NewScript(`redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2])
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
return redis.call('ZREM', KEYS[1], ARGV[2])`)

// measureShare measures, on the server that has just worked, how many calls a second it takes of the smallest script of
// the kind, and how much of that a rate of jobs is.
func measureShare(ctx context.Context, s *stand, rate float64) error {
	rdb := newClient(s.server.Addr())
	defer rdb.Close()
	if err := ceilingScript.Load(ctx, rdb).Err(); err != nil {
		return err
	}
	errs := make(chan error, ceilingClients)
	began := time.Now()
	var clients sync.WaitGroup
	for client := range ceilingClients {
		clients.Go(func() {
			if err := callCeiling(ctx, rdb, client); err != nil {
				errs <- err
			}
		})
	}
	clients.Wait()
	select {
	case err := <-errs:
		return err
	default:
	}
	ceiling := ceilingCalls / time.Since(began).Seconds()
	s.add("ceiling", ceiling)
	s.add("ceiling_share", rate/ceiling)
	return rdb.Del(ctx, "bench:ceiling:due", "bench:ceiling:jobs").Err()
}

func callCeiling(ctx context.Context, rdb *redis.Client, client int) error {
	payload := newPayload()
	for i := 0; i < ceilingCalls/ceilingClients; i += ceilingPipe {
		pipe := rdb.Pipeline()
		for k := range ceilingPipe {
			id := fmt.Sprintf("%d-%d", client, i+k)
			ceilingScript.EvalSha(ctx, pipe, []string{"bench:ceiling:due", "bench:ceiling:jobs"}, i+k, id, payload)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}
