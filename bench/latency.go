package main

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"time"
)

// maxGap is the longest time between two jobs on an idle queue: longer than anybody's poll, and drawn at random, so that
// no poll keeps step with it.
const maxGap = 1500 * time.Millisecond

// measureLatency measures how long a job waits on an idle queue, from before the call that enqueues it to the start of
// its handler.
func measureLatency(ctx context.Context, b *bench, _ int) error {
	if b.plan.latency == 0 {
		return nil
	}
	return b.atOnce(ctx, "latency", b.variants(), func(ctx context.Context, s *stand) (err error) {
		started := make(chan int64, 1)
		w, err := beginIdle(ctx, s, func(_ context.Context, payload []byte) { started <- now() - stampOf(payload) })
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, w.stop()) }()
		var waits, list []float64
		for range b.plan.latency {
			if err := w.rest(ctx, rand.N(maxGap)); err != nil {
				return err
			}
			if err := s.Enqueue(ctx, []Job{{Payload: stamped(now())}}); err != nil {
				return err
			}
			select {
			case ns := <-started:
				waits = append(waits, float64(ns)/1e6)
			case <-w.ended:
				return errors.Join(errEnded, w.err)
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if _, ok := s.System.(*leaseqSystem); ok {
				ms, err := listPop(ctx, s.server.Addr())
				if err != nil {
					return err
				}
				list = append(list, ms)
			}
		}
		if len(list) > 0 {
			s.add("latency_list_p50", percentile(list, 50))
			s.add("latency_vs_list", percentile(waits, 50)/percentile(list, 50))
		}
		s.add("latency_p50", percentile(waits, 50))
		s.add("latency_p99", percentile(waits, 99))
		s.add("latency_max", percentile(waits, 100))
		return nil
	})
}

// listPop is how long an element takes from an RPUSH to a BLPOP that waits for it, in ms: what a wake-up costs at least.
func listPop(ctx context.Context, addr string) (float64, error) {
	waiting, pushing := newClient(addr), newClient(addr)
	defer waiting.Close()
	defer pushing.Close()
	if err := errors.Join(waiting.Ping(ctx).Err(), pushing.Ping(ctx).Err()); err != nil {
		return 0, err
	}
	popped := make(chan error, 1)
	var at int64
	go func() {
		err := waiting.BLPop(ctx, 10*time.Second, "bench:list").Err()
		at = now()
		popped <- err
	}()
	if err := sleep(ctx, 20*time.Millisecond); err != nil { // until it waits
		return 0, err
	}
	began := now()
	if err := pushing.RPush(ctx, "bench:list", "x").Err(); err != nil {
		return 0, err
	}
	err := <-popped
	return float64(at-began) / 1e6, err
}

// stamped makes a payload that begins with a time of this program's clock.
func stamped(ns int64) []byte {
	payload := newPayload()
	binary.BigEndian.PutUint64(payload, uint64(ns))
	return payload
}

// stampOf reads it.
func stampOf(payload []byte) int64 { return int64(binary.BigEndian.Uint64(payload)) }
