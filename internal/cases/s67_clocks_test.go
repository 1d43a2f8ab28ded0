//go:build unix

package cases

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reaper"
)

// A sidecar process that says in its log what it does.
var _ = child("logging-sidecar", func(config []byte) int {
	var c crashConfig
	if err := json.Unmarshal(config, &c); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	rdb := c.Server.client(0)
	defer rdb.Close()
	r, err := reaper.New(rdb, &reaper.Options{Queues: []string{c.Queue}, Logger: slog.New(slog.NewTextHandler(os.Stdout, nil))})
	if err == nil {
		err = r.Run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
})

// requireSkewInLog waits for the next line of a child's log and requires that it is stamped with a time that is off by
// so much.
func requireSkewInLog(t *testing.T, p *process, skew time.Duration) {
	t.Helper()
	line := p.awaitLine(t, "time=")
	at, _, _ := strings.Cut(strings.TrimPrefix(line, "time="), " ")
	stamp, err := time.Parse("2006-01-02T15:04:05.000Z07:00", at)
	require.NoError(t, err, line)
	require.InDelta(t, skew, time.Until(stamp), float64(2*time.Minute), "the skew in the log: %s", line)
}

// Of two workers one is ten minutes ahead and the other one ten minutes behind; the sidecar is an hour ahead. In the
// middle of its jobs the first one's clock steps an hour forward and two back, and forward again. Nobody's clock but that of Redis
// means anything: each job is started once, never before it is due, and no lease runs out.
func TestS67_WrongClocksOfWorkersAndSidecarsChangeNothing(t *testing.T) {
	t.Parallel()
	n, later, length := shape(40, 200), shape(time.Second, 10*time.Second), shape(1200*time.Millisecond, 5*time.Second)
	s := newDeploySite(t, deployConfig{
		crashConfig: crashConfig{Lease: length, MaxRetries: 0, MaxExpiries: 0, Concurrency: 20, Fallback: 50 * time.Millisecond},
		Drain:       20 * time.Second,
	})
	sidecar, _ := startShifted(t, "logging-sidecar", s.crashConfig, time.Hour)
	requireSkewInLog(t, sidecar, time.Hour)
	s.awaitSwept(t)
	a, clock := s.shiftedWorker(t, "A", 10*time.Minute)
	b, _ := s.shiftedWorker(t, "B", -10*time.Minute)

	const long = 10
	due, isLong := map[string]int64{}, map[string]bool{} // due in ms
	for i := range n {
		item := deployJob{Work: shape(200*time.Millisecond, time.Second)}.item(fmt.Sprintf("J%03d", i))
		if i%2 == 1 {
			item.Delay = later
		}
		if i < 2*long && i%2 == 0 {
			isLong[item.ID] = true
			item = deployJob{After: true}.item(item.ID) // these run until their worker is asked to stop
		}
		before := s.serverTime()
		s.enqueue(item)
		due[item.ID] = before.Add(item.Delay).UnixMilli()
	}
	// A's clock steps first while jobs come and go, and then while it only extends what it has, for longer than a lease
	// each time.
	s.awaitMarksOf(t, "start", a, 1)
	s.awaitMarksOf(t, "start", b, 1)
	clock.step(t, 10*time.Minute+time.Hour)
	s.awaitCount(t, "acked", int64(n-long))
	for _, skew := range []time.Duration{10*time.Minute - time.Hour, 10*time.Minute + time.Hour} {
		clock.step(t, skew)
		<-time.After(length * 4 / 3)
		require.Len(t, s.members(lease.Processing), long)
	}
	requireSkewInLogAtEnd(t, a, 10*time.Minute+time.Hour)
	requireSkewInLogAtEnd(t, b, -10*time.Minute)
	sidecar.finish(t)
	require.EqualValues(t, n, s.count(t, "acked"))

	starts := marksOf(readMarks(t, s.Marks), "start")
	require.Len(t, starts, n)
	skews, kept := map[string]int{}, 0
	for _, start := range starts {
		assert.Equal(t, 1, start.Attempt, "attempt of %s", start.ID)
		assert.GreaterOrEqual(t, start.Fence/1000, due[start.ID], "%s was claimed before it was due", start.ID) // a fence is Redis' clock
		name := map[int]string{a.Process.Pid: "A", b.Process.Pid: "B"}[start.PID]
		if start.PID == a.Process.Pid && isLong[start.ID] {
			kept++
		}
		skews[fmt.Sprint(name, " by ", (time.Duration(start.At-start.Clock)*time.Microsecond).Round(5*time.Minute))]++
	}
	assert.NotZero(t, kept, "A held no job during its steps: the case was not met")
	assert.NotZero(t, skews["A by 10m0s"], "starts of A with its first skew")
	assert.NotZero(t, skews["B by -10m0s"], "starts of B")
	assert.EqualValues(t, n, s.count(t, "claimed"))
	// Refused extends do not count: a heartbeat may still have been on its way when its job was acked.
	for _, counter := range []string{"expired", "nacked", "released", "refused", "died"} {
		assert.Zero(t, s.count(t, counter), counter)
	}
	t.Logf("starts, by what their worker's clock was off: %v", skews)
}

// shiftedWorker starts a worker whose wall clock is off.
func (s *deploySite) shiftedWorker(t *testing.T, holder string, by time.Duration) (*process, *wallClock) {
	t.Helper()
	config := deployConfig{crashConfig: s.crashConfig, Drain: s.Drain}
	config.Holder = holder
	p, clock := startShifted(t, "deploy-worker", config, by)
	require.Equal(t, "ready", <-p.Lines, "the first line of a worker")
	s.awaitHolder(t, holder)
	return p, clock
}

// requireSkewInLogAtEnd ends a worker, which says so in its log.
func requireSkewInLogAtEnd(t *testing.T, p *process, skew time.Duration) {
	t.Helper()
	for len(p.Lines) > 0 {
		<-p.Lines
	}
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	requireSkewInLog(t, p, skew)
	require.Equal(t, 0, p.Wait(), "exit code")
}

// awaitMarksOf waits for marks of one process.
func (s *crashSite) awaitMarksOf(t testing.TB, what string, p *process, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		got := 0
		for _, m := range marksOf(readMarks(t, s.Marks), what) {
			if m.PID == p.Process.Pid {
				got++
			}
		}
		return got >= n
	}, time.Minute, 5*time.Millisecond, "want %d times %s of process %d", n, what, p.Process.Pid)
}

// How long a job had been due when it was started is told to hooks and the log. It is the difference of two readings of
// one clock, whatever that of the worker shows.
func TestS67_HowLongAJobHadBeenDueIsToldByRedisClock(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
		t.Run(skew.String(), func(t *testing.T) {
			t.Parallel()
			s := newDeploySite(t, deployConfig{crashConfig: crashConfig{Lease: 5 * time.Second, Concurrency: 1}, Drain: time.Second})
			p, _ := s.shiftedWorker(t, "shifted", skew)
			begun := time.Now()
			s.enqueue(deployJob{Work: 500 * time.Millisecond}.item("first"), deployJob{Work: time.Millisecond}.item("second"))
			s.awaitCount(t, "acked", 2)
			took := time.Since(begun) + time.Millisecond // a due time is a whole millisecond, the one that has begun
			p.finish(t)
			told, started := map[string]time.Duration{}, map[string]int64{}
			for _, m := range marksOf(readMarks(t, s.Marks), "start") {
				started[m.ID] = m.At
			}
			// The way of the request counts twice: Redis knows when the claim ran, and the worker when it asked for it. The
			// second claim goes with the first job's ack.
			way := time.Duration(started["second"]-started["first"])*time.Microsecond - 500*time.Millisecond
			for _, m := range marksOf(readMarks(t, s.Marks), "due for") {
				wait, err := time.ParseDuration(m.Note)
				require.NoError(t, err)
				told[m.ID] = wait
			}
			require.Len(t, told, 2)
			assert.LessOrEqual(t, told["first"], took, "how long the first one had been due")
			assert.GreaterOrEqual(t, told["second"], 500*time.Millisecond, "how long the second one had been due")
			assert.LessOrEqual(t, told["second"], took+way, "how long the second one had been due")
		})
	}
}
