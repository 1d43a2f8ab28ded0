package cases

import (
	"sync/atomic"
	"testing"
	"time"
)

// A standstill measures when this process gets no time to run: on a machine that starves it a lease ends, or a bound is
// missed, that nothing else would have ended or missed.
type standstill struct{ most, all atomic.Int64 }

// watchStandstill begins to measure; it ends with the test.
func watchStandstill(t *testing.T) *standstill {
	t.Helper()
	const tick = 20 * time.Millisecond
	s := &standstill{}
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(tick)
		defer ticker.Stop()
		for last := time.Now(); ; {
			select {
			case <-done:
				return
			case <-ticker.C:
				now := time.Now()
				if late := now.Sub(last) - tick; late > tick {
					s.all.Add(int64(late))
					s.most.Store(max(s.most.Load(), int64(late)))
				}
				last = now
			}
		}
	}()
	t.Cleanup(func() {
		close(done)
		<-ended
	})
	return s
}

// longest is the longest time so far for which the process stood still.
func (s *standstill) longest() time.Duration { return time.Duration(s.most.Load()) }

// A moment is one from which a bound counts.
type moment struct {
	at    time.Time
	still time.Duration
}

func (s *standstill) now() moment { return moment{time.Now(), time.Duration(s.all.Load())} }

// less is a time that counts from a moment without what the process stood still since.
func (s *standstill) less(from moment, took time.Duration) time.Duration {
	return took - (time.Duration(s.all.Load()) - from.still)
}
