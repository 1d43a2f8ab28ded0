package cases

import (
	"sync/atomic"
	"testing"
	"time"
)

// watchStandstill measures for how long at most this process gets no time to run: on a machine that starves it a lease
// ends that nothing else would have ended.
func watchStandstill(t *testing.T) (longest func() time.Duration) {
	t.Helper()
	const tick = 20 * time.Millisecond
	var most atomic.Int64
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
				most.Store(max(most.Load(), int64(now.Sub(last)-tick)))
				last = now
			}
		}
	}()
	t.Cleanup(func() {
		close(done)
		<-ended
	})
	return func() time.Duration { return time.Duration(most.Load()) }
}
