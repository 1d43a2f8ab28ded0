package cases

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/leaseq/leaseq/internal/netfault"
)

// failingSite is a loopSite whose calls fail in one way.
type failingSite struct {
	*loopSite
	failure
	times      int // how many calls fail in a row
	cons, side *failer
}

// impatient has a call fail soon that is not answered, and the client repeat nothing, so that each error reaches our
// loops.
func impatient(o *redis.Options) { o.ReadTimeout, o.MaxRetries = 300*time.Millisecond, -1 }

// failingSites makes one site for each way in which a call can fail, and one where three connections are lost in a row.
func failingSites(t *testing.T) []*failingSite {
	t.Helper()
	var sites []*failingSite
	all := append([]failure{{Name: "three disconnects in a row", Action: netfault.DropRequest}}, failures...)
	for i, one := range all {
		s := &failingSite{failure: one, times: 1, loopSite: newLoopSite(t, one.Name, impatient)}
		if i == 0 {
			s.times = 3
		}
		s.cons, s.side = newFailer(s.cut, loops), newFailer(s.aft, loops)
		s.heal = func() { s.injectAll(0) }
		sites = append(sites, s)
	}
	return sites
}

// injectAll has the next n calls of every loop fail; 0 ends that.
func (s *failingSite) injectAll(n int) {
	for loop := range consumerLoops {
		s.cons.arm(loop, s.Action, n)
	}
	for _, loop := range append([]string{"trim", "wake"}, consumerStarts...) {
		s.cons.arm(loop, s.Action, n)
	}
	for loop := range sidecarLoops {
		s.side.arm(loop, s.Action, n)
	}
	s.side.arm("trim", s.Action, n)
}

// alive waits until so many calls of a loop have failed and one went through behind them. With full numbers it requires
// that this comes within two intervals, what the client itself waits for an answer, and a second.
func (s *failingSite) alive(t *testing.T, f *failer, loop string, failed int, interval time.Duration) {
	t.Helper()
	from := s.still.now()
	if !assert.Eventually(t, func() bool { return f.failures(loop) >= failed && f.passes(loop) > 0 }, 30*time.Second, 5*time.Millisecond,
		"%s: the loop of %s has ended", s.Name, loop) {
		return
	}
	client := 300 * time.Millisecond
	if loop == "blpop" {
		client = loopFallback + 2*time.Second // a blocking read is given up later
	}
	bound := 2*interval + client + time.Second
	assert.LessOrEqual(t, s.still.less(from, f.pause(loop)), shape(2*recoverBound, bound), "%s: %s, until it works again", s.Name, loop)
}

// sideBySide does something with all sites at one time.
func sideBySide(sites []*failingSite, do func(s *failingSite)) {
	var all sync.WaitGroup
	for _, s := range sites {
		all.Go(func() { do(s) })
	}
	all.Wait()
}

// Every loop of a consumer and of a sidecar meets every error: at its start, then alone, then once a second together
// with all others, at last without a break. It goes on each time: it works again two intervals after the last fault, no
// job has lost its lease for single errors, and a thousand jobs finish.
func TestS43_NoErrorEndsALoop(t *testing.T) {
	t.Parallel()
	sites := failingSites(t)
	for _, s := range sites {
		s.injectAll(s.times)
		s.run(t)
	}
	sideBySide(sites, func(s *failingSite) {
		for _, first := range consumerStarts {
			s.alive(t, s.cons, first, s.times, time.Second)
		}
		s.startsAfter(t, time.Now())
	})
	sideBySide(sites, func(s *failingSite) { s.eachOnce(t) })
	sideBySide(sites, func(s *failingSite) { s.onceASecond(t) })
	for _, s := range sites {
		assert.Zero(t, s.stats().Counters["expired"], "%s: leases that ran out", s.Name)
		lost := s.lost.Load()
		assert.EqualValues(t, 1+lost, s.longs.Load(), "%s: starts of the job that is held: the first, and one for each lease that was over", s.Name)
		if pause := s.still.longest(); pause < loopLease/3 { // else heartbeats that failed once may have come too late, without a fault of ours
			assert.Zero(t, lost, "%s: leases that were over; this process stood still for %v", s.Name, pause)
		}
	}
	sideBySide(sites, func(s *failingSite) { s.withoutABreak(t) })
	for _, s := range sites {
		s.add(t, shape(70, 1000)) // there are 15 of them
	}
	for _, s := range sites {
		s.finishes(t)
		stats := s.stats()
		for _, other := range []string{"nacked", "buried", "died", "missing"} {
			assert.Zero(t, stats.Counters[other], "%s: %s", s.Name, other)
		}
	}
}

// eachOnce injects the failure into one loop after the other.
func (s *failingSite) eachOnce(t *testing.T) {
	for loop, interval := range consumerLoops {
		s.cons.arm(loop, s.Action, s.times)
		s.alive(t, s.cons, loop, s.times, interval)
	}
	for loop, interval := range sidecarLoops {
		s.side.arm(loop, s.Action, s.times)
		s.alive(t, s.side, loop, s.times, interval)
	}
	s.healthySoon(t)
}

// onceASecond injects it into all loops at once, again and again.
func (s *failingSite) onceASecond(t *testing.T) {
	tick := time.NewTicker(shape(500*time.Millisecond, time.Second))
	defer tick.Stop()
	for range shape(3, 60) {
		s.injectAll(1)
		<-tick.C
	}
	for loop, interval := range consumerLoops {
		s.alive(t, s.cons, loop, 1, interval)
	}
	for loop, interval := range sidecarLoops {
		s.alive(t, s.side, loop, 1, interval)
	}
	s.healthySoon(t)
}

// withoutABreak has every call of every loop fail for a while. Health says so meanwhile, and every loop works within five
// seconds from the end.
func (s *failingSite) withoutABreak(t *testing.T) {
	s.injectAll(math.MaxInt)
	<-time.After(shape(1500*time.Millisecond, 15*time.Second))
	s.unhealthySoon(t)
	end := s.still.now()
	s.injectAll(0)
	assert.LessOrEqual(t, s.still.less(end, s.startsAfter(t, end.at)), recoverBound, "%s: until a job is started", s.Name)
	assert.Eventually(t, func() bool {
		for loop := range consumerLoops {
			if s.cons.passes(loop) == 0 {
				return false
			}
		}
		for loop := range sidecarLoops {
			if s.side.passes(loop) == 0 {
				return false
			}
		}
		return true
	}, 30*time.Second, 5*time.Millisecond, "%s: a loop has ended", s.Name)
	took := s.still.less(end, time.Since(end.at))
	assert.LessOrEqual(t, took, recoverBound+shape(5*time.Second, 0), "%s: until every loop works", s.Name)
	s.healthySoon(t)
}
