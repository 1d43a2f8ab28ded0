//go:build unix

package cases

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

// The bounds of the case, for one process.
const (
	idleCommands = 20.0 // a second
	idleCPU      = 0.02 // of a core
	downDials    = 5.0  // a second
	downCPU      = 0.05 // of a core
	pollBound    = reliablePoll + 250*time.Millisecond
	reliablePoll = time.Second // the default of WakeFallback
)

// idleFleet is a fleet with little to do, each process behind a proxy of its own, with a pool of one of these sizes (0:
// go-redis' default).
type idleFleet struct {
	*crashSite
	names     []string
	processes []*process
	proxies   []*netfault.Proxy
}

func newIdleFleet(t *testing.T, workers, sidecars int, pools ...int) (f *idleFleet, stopServer func()) {
	t.Helper()
	redistest.NeedServer(t)
	server := redistest.Server(t, nil)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	f = &idleFleet{crashSite: &crashSite{
		crashConfig: crashConfig{Marks: marksFile(t), Queue: "idle"}, lane: laneOn(t, "idle", rdb, nil), beside: rdb,
	}}
	for i := range workers + sidecars {
		proxy := redistest.Proxy(t, server.Addr())
		c := idleConfig{Server: serverAt{Addr: proxy.Addr()}, Queue: f.Queue, Marks: f.Marks, Pool: pools[i%len(pools)], Sidecar: i >= workers}
		p := startChild(t, "idle-process", c)
		require.Equal(t, "ready", <-p.Lines)
		f.names = append(f.names, map[bool]string{false: "worker", true: "sidecar"}[c.Sidecar])
		f.processes, f.proxies = append(f.processes, p), append(f.proxies, proxy)
	}
	// All have begun when a job was worked off and all sidecars have read the registry.
	f.pickUp(t, "begin")
	for i, name := range f.names {
		if name == "sidecar" {
			require.Eventually(t, func() bool { return f.proxies[i].Commands() > 5 }, time.Minute, 10*time.Millisecond)
		}
	}
	return f, func() {
		for _, proxy := range f.proxies {
			require.NoError(t, proxy.Close()) // so that every dial of these processes is refused, as by a machine without a server
		}
		closeBounded(t, f.queue.Close, f.store.Close)
		require.NoError(t, server.Kill())
	}
}

// watch returns what each process has used within a window.
func (f *idleFleet) watch(t *testing.T, window time.Duration) (use []idleUse, commands []int64) {
	t.Helper()
	before, sent := make([]idleUse, len(f.processes)), make([]int64, len(f.processes))
	for i, p := range f.processes {
		before[i], sent[i] = p.used(t), f.proxies[i].Commands()
	}
	<-time.After(window)
	for i, p := range f.processes {
		now := p.used(t)
		use = append(use, idleUse{CPU: now.CPU - before[i].CPU, Dials: now.Dials[len(before[i].Dials):]})
		commands = append(commands, f.proxies[i].Commands()-sent[i])
	}
	return use, commands
}

// requireIdle watches, and holds each process to the bounds of an idle one.
func (f *idleFleet) requireIdle(t *testing.T, when string, window time.Duration) {
	t.Helper()
	use, commands := f.watch(t, window)
	for i, name := range f.names {
		rate, cpu := float64(commands[i])/window.Seconds(), use[i].CPU.Seconds()/window.Seconds()
		assert.LessOrEqual(t, rate, idleCommands, "%s: commands a second of %s %d", when, name, i)
		assert.LessOrEqual(t, cpu, idleCPU, "%s: share of a core of %s %d", when, name, i)
		assert.LessOrEqual(t, len(use[i].Dials), 2, "%s: new connections of %s %d", when, name, i) // for calls that happen to meet
		t.Logf("%s: %s %d: %.1f commands/s, %.2f %% of a core", when, name, i, rate, 100*cpu)
	}
}

// pickUp makes a job, and returns how long after it was due it was claimed.
func (f *idleFleet) pickUp(t *testing.T, id string) time.Duration {
	t.Helper()
	asked := f.serverTime()
	f.enqueue(reliable.Item{ID: id, Kind: "idle"})
	var claimed time.Time
	require.Eventually(t, func() bool {
		for _, start := range startsOf(readMarks(t, f.Marks), id) {
			claimed = time.UnixMicro(start.Fence) // Redis' clock at the claim
			return true
		}
		return false
	}, time.Minute, 5*time.Millisecond, "nobody starts the job")
	return claimed.Sub(asked)
}

// requireQuickPickUp makes single jobs now and then, and holds their start to the documented bound.
func (f *idleFleet) requireQuickPickUp(t *testing.T, when string) {
	t.Helper()
	var longest time.Duration
	for i := range 5 {
		wait := f.pickUp(t, fmt.Sprintf("%s-%d", when, i))
		assert.Less(t, wait, pollBound, "%s: from the enqueue to the claim", when)
		longest = max(longest, wait)
		f.awaitAckedAll(t)
	}
	t.Logf("%s: a new job was claimed after %v at the longest", when, longest)
}

func (f *idleFleet) awaitAckedAll(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		stats := f.stats()
		return stats.Counters["acked"] == stats.Counters["claimed"] && stats.Processing == 0
	}, time.Minute, 5*time.Millisecond)
}

// Workers and sidecars at their defaults have nothing to do: first no jobs, then many that are due in days. Neither
// keeps them busy, and a new job is started at once all the same.
func TestS74_IdleProcessesCostNextToNothing(t *testing.T) {
	t.Parallel()
	window := shape(3*time.Second, time.Minute)
	f, _ := newIdleFleet(t, shape(2, 10), shape(1, 3), 0)
	f.requireIdle(t, "an empty queue", window)
	f.requireQuickPickUp(t, "empty")

	const days = 7 * 24 * time.Hour
	many := shape(20_000, 1_000_000)
	for from := 0; from < many; from += 20_000 {
		items := numberedItems(fmt.Sprintf("far-%d-", from), 20_000)
		for i := range items {
			items[i].Delay = days
		}
		f.enqueue(items...)
	}
	f.requireIdle(t, "jobs due in a week", window)
	f.requireQuickPickUp(t, "future")
	require.EqualValues(t, many, f.stats().Due)
}

// Redis is gone. Processes try to connect after pauses that grow, and not the more often the more connections their
// clients may have.
func TestS74_WithoutRedisProcessesDialNowAndThen(t *testing.T) {
	t.Parallel()
	f, stopServer := newIdleFleet(t, shape(2, 10), shape(1, 3), 0, 500, 0) // small: one sidecar, which has the default
	stopServer()
	f.requireFewDials(t)
}

// fewDials are how many dials are timed: more than the five that go-redis makes for one command, 100 ms apart, which may
// come at any time.
const fewDials = 10

// requireFewDials watches twice after the server has gone.
func (f *idleFleet) requireFewDials(t *testing.T) {
	t.Helper()
	window := shape(4*time.Second, 30*time.Second)
	first, _ := f.watch(t, window)
	second, _ := f.watch(t, window)
	for i, name := range f.names {
		early, late := float64(len(first[i].Dials))/window.Seconds(), float64(len(second[i].Dials))/window.Seconds()
		cpu := (first[i].CPU + second[i].CPU).Seconds() / (2 * window).Seconds()
		t.Logf("without Redis: %s %d: %.1f dials/s at first, %.1f then, %.2f %% of a core", name, i, early, late, 100*cpu)
		// go-redis tries five times for one command: those of one more may fall into a window, and at first pauses are short.
		edge := 5 / window.Seconds()
		assert.LessOrEqual(t, early, downDials+2*edge, "dials a second of %s %d at first", name, i)
		assert.LessOrEqual(t, late, downDials+edge, "dials a second of %s %d later on", name, i)
		if assert.NotEmpty(t, second[i].Dials, "%s %d has given up", name, i) {
			all := slices.Concat(first[i].Dials, second[i].Dials)
			if assert.GreaterOrEqual(t, len(all), 2*fewDials, "dials of %s %d", name, i) {
				assert.Less(t, all[fewDials-1]-all[0], all[len(all)-1]-all[len(all)-fewDials],
					"the time that the first and the last %d dials of %s %d took: pauses are to grow", fewDials, name, i)
			}
		}
		assert.Less(t, cpu, downCPU, "share of a core of %s %d", name, i)
	}
}
