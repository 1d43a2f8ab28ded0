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
		var waits []float64
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
		}
		s.add("latency_p50", percentile(waits, 50))
		s.add("latency_p99", percentile(waits, 99))
		s.add("latency_max", percentile(waits, 100))
		return nil
	})
}

// stamped makes a payload that begins with a time of this program's clock.
func stamped(ns int64) []byte {
	payload := newPayload()
	binary.BigEndian.PutUint64(payload, uint64(ns))
	return payload
}

// stampOf reads it.
func stampOf(payload []byte) int64 { return int64(binary.BigEndian.Uint64(payload)) }
