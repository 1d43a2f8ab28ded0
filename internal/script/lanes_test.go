package script

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func (l *lanes) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.idle)
}

func TestLanesAreUsedAgainAndEndWhenNobodyNeedsThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l lanes
		ran := 0
		for range 100 {
			l.run(func() { ran++ })
			synctest.Wait()
			assert.Equal(t, 1, l.waiting(), "one goroutine has run all")
		}
		assert.Equal(t, 100, ran)
		time.Sleep(idleFor + time.Millisecond)
		synctest.Wait()
		assert.Zero(t, l.waiting())
		l.run(func() { ran++ })
		synctest.Wait()
		assert.Equal(t, 101, ran)
		l.close()
	})
}

func TestLanesRunSideBySideAndCloseWaitsForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l lanes
		var running, most, ran atomic.Int64
		for range 3 * mostIdle {
			l.run(func() {
				most.Store(max(most.Load(), running.Add(1)))
				time.Sleep(time.Second)
				running.Add(-1)
				ran.Add(1)
			})
		}
		time.Sleep(500 * time.Millisecond)
		assert.EqualValues(t, 3*mostIdle, running.Load())
		l.close()
		assert.EqualValues(t, 3*mostIdle, ran.Load())
		assert.Zero(t, l.waiting())
	})
}

func TestNothingIsLostBetweenLanesThatTireAndWorkThatComes(t *testing.T) {
	t.Parallel()
	var l lanes
	var ran atomic.Int64
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			for k := range 50 {
				l.run(func() { ran.Add(1) })
				if k%10 == i {
					time.Sleep(idleFor) // when others tire
				}
			}
		})
	}
	callers.Wait()
	l.close()
	assert.EqualValues(t, 400, ran.Load())
}
