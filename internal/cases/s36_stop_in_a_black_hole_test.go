package cases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/reaper"
	"github.com/leaseq/leaseq/reliable"
)

// stopConfig is what the process is told that is stopped in S36.
type stopConfig struct {
	Server, Beside serverAt // behind the proxy, and on a direct connection
	Queue          string
	Program        string // consumer, hand or sidecar
	Handler        string // cancelled: works until its context ends; gated: until the gate beside the queue opens; "": is done at once
	Gate           string
	Marks          string
	Lease          time.Duration
	Stop           time.Duration // the time that Stop may take, as the program says it
	Read, Dial     time.Duration // timeouts of the client
	Jobs           int
}

// stopReport is what it says of its end.
type stopReport struct {
	Took       time.Duration
	Error      string
	IDs        []string // not settled, as the error says
	Goroutines []string // of ours, when the stop had returned
}

var _ = child("s36", func(config []byte) int {
	var c stopConfig
	if err := json.Unmarshal(config, &c); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	o := &redis.Options{
		Addr: c.Server.Addr, Username: c.Server.Username, Password: c.Server.Password, DB: c.Server.DB,
		ReadTimeout: c.Read, WriteTimeout: c.Read, DialTimeout: c.Dial,
	}
	rdb, beside := redis.NewClient(o), c.Beside.client(1)
	defer rdb.Close()
	defer beside.Close()
	stopping := make(chan time.Time, 1)
	context.AfterFunc(ctx, func() { stopping <- time.Now() })
	err := map[string]func(context.Context, *redis.Client, *redis.Client) error{
		"consumer": c.consume, "hand": c.byHand, "sidecar": c.sweep,
	}[c.Program](ctx, rdb, beside)
	report := stopReport{Goroutines: oursLeft()}
	if ctx.Err() != nil { // else it ended by itself, and says why
		report.Took = time.Since(<-stopping)
	}
	if err != nil {
		report.Error = err.Error()
	}
	var drain *reliable.DrainError
	if errors.As(err, &drain) {
		report.IDs = drain.IDs
	}
	line, _ := json.Marshal(report)
	fmt.Println(string(line))
	return 0
})

func (c *stopConfig) handler(beside *redis.Client) reliable.HandlerFunc {
	return func(ctx context.Context, job *reliable.Job) error {
		putMark(c.Marks, mark{What: "start", ID: job.ID, Attempt: job.Attempt})
		switch c.Handler {
		case "cancelled":
			<-ctx.Done()
			return context.Cause(ctx)
		case "gated":
			return beside.BLPop(context.Background(), 0, c.Gate).Err()
		}
		return nil
	}
}

func (c *stopConfig) consume(ctx context.Context, rdb, beside *redis.Client) error {
	q, err := reliable.New(rdb, c.Queue, &reliable.QueueOptions{Lease: c.Lease})
	if err != nil {
		return err
	}
	worker, err := reliable.NewConsumer(q, c.handler(beside), &reliable.ConsumerOptions{
		Concurrency: 2 * c.Jobs, DrainTimeout: c.Stop, NoSweep: true,
	})
	if err != nil {
		return err
	}
	return worker.Run(ctx)
}

// byHand holds jobs that were claimed by hand and acks them, each in a goroutine, when the gate opens. It stops as such a
// program does: it closes its Queue, and then every ack must end.
func (c *stopConfig) byHand(ctx context.Context, rdb, beside *redis.Client) error {
	q, err := reliable.New(rdb, c.Queue, &reliable.QueueOptions{Lease: c.Lease})
	if err != nil {
		return err
	}
	batch, err := q.Claim(ctx, c.Jobs, &reliable.ClaimOptions{KeepAlive: true})
	if err != nil || len(batch.Jobs) != c.Jobs {
		return fmt.Errorf("claimed %v: %w", batch, err)
	}
	var acks sync.WaitGroup
	results := make(chan error, c.Jobs)
	for _, job := range batch.Jobs {
		acks.Go(func() {
			if err := c.handler(beside)(job.Context(), job); err != nil {
				results <- err
				return
			}
			if err := job.Ack(context.Background()); err != nil {
				results <- &reliable.DrainError{IDs: []string{job.ID}, Cause: err}
			}
		})
	}
	<-ctx.Done()
	bounded, cancel := context.WithTimeout(context.Background(), c.Stop)
	defer cancel()
	err = q.Close(bounded)
	acks.Wait()
	close(results)
	drain := &reliable.DrainError{Cause: err}
	for err := range results {
		var one *reliable.DrainError
		if !errors.As(err, &one) || !errors.Is(err, reliable.ErrNeverKnown) {
			return fmt.Errorf("an ack ended with %w", err)
		}
		drain.IDs = append(drain.IDs, one.IDs...)
	}
	return drain
}

func (c *stopConfig) sweep(ctx context.Context, rdb, _ *redis.Client) error {
	r, err := reaper.New(rdb, &reaper.Options{RefreshEvery: 50 * time.Millisecond})
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// oursLeft lists the goroutines of this process in which code of leaseq is, but for this one.
func oursLeft() []string {
	text := make([]byte, 1<<20)
	text = text[:runtime.Stack(text, true)]
	var left []string
	for i, one := range strings.Split(string(text), "\n\n") {
		if strings.Contains(one, ":\nruntime.goexit1(") {
			continue // its function has returned, and it is just being taken away
		}
		if i > 0 && strings.Contains(one, "github.com/leaseq/leaseq/") && !strings.Contains(one, "cases.runChild") {
			left = append(left, one)
		}
	}
	return left
}

// stopSite is one process that is to be stopped, behind a proxy of its own, with five jobs in flight.
type stopSite struct {
	*lane
	stopConfig
	d     *detour
	p     *process
	mu    sync.Mutex
	calls map[string]int // by script or command, as they passed the proxy
}

const stopJobs = 5

func newStopSite(t *testing.T, c stopConfig) *stopSite {
	t.Helper()
	s := &stopSite{stopConfig: c, calls: map[string]int{}}
	s.Lease, s.Jobs = shape(3*time.Second, 2*time.Second), stopJobs
	s.Stop = shape(300*time.Millisecond, 3*time.Second)
	s.Read, s.Dial = shape(400*time.Millisecond, 3*time.Second), shape(400*time.Millisecond, 5*time.Second)
	s.lane = newLane(t, &reliable.QueueOptions{Lease: s.Lease})
	require.Empty(t, s.claim(1)) // publishes the policy
	sidecar(t, s.name)
	s.Queue, s.Marks, s.Gate = s.name, marksFile(t), "case:"+s.name+":gate"
	s.Beside = sharedAt(t)
	s.d = detourTo(t, nil)
	s.Server = s.Beside
	s.Server.Addr = s.d.Addr()
	s.d.Decide(s.decide)
	s.enqueue(numberedItems("j", stopJobs)...)
	s.p = startChild(t, "s36", s.stopConfig)
	return s
}

// decide counts calls, and holds those that the moment of the stop is about.
func (s *stopSite) decide(cmd []string) netfault.Action {
	name := scriptName(cmd)
	if name == "" {
		name = strings.ToLower(cmd[0])
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[name]++
	if strings.HasPrefix(name, "settle") || s.calls["hold "+name] > 0 {
		return netfault.Hold
	}
	return netfault.Pass
}

// hold has further calls of a sort held, and waits for n of them.
func (s *stopSite) hold(t *testing.T, name string, n int) {
	t.Helper()
	s.mu.Lock()
	s.calls["hold "+name] = 1
	s.calls[name] = 0
	s.mu.Unlock()
	s.await(t, name, n)
}

func (s *stopSite) await(t *testing.T, name string, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.calls[name] >= n
	}, 30*time.Second, time.Millisecond, "%d calls of %s", n, name)
}

// started waits for so many starts in all.
func (s *stopSite) started(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return len(marksOf(readMarks(t, s.Marks), "start")) >= n }, 30*time.Second, 2*time.Millisecond)
}

// openGate lets all handlers return.
func (s *stopSite) openGate(t *testing.T) {
	t.Helper()
	beside := s.Beside.client(1)
	defer beside.Close()
	for range stopJobs {
		require.NoError(t, beside.RPush(t.Context(), s.Gate, 1).Err())
	}
}

// stops are the programs and the moments in which they are stopped.
var stops = []struct {
	Name   string
	Config stopConfig
	Moment func(t *testing.T, s *stopSite)
}{
	{"a consumer in a blocking read", stopConfig{Program: "consumer", Handler: "cancelled"}, func(t *testing.T, s *stopSite) {
		s.started(t, stopJobs)
		s.await(t, "blpop", 1)
	}},
	{"a consumer whose acks are repeated", stopConfig{Program: "consumer", Handler: "gated"}, func(t *testing.T, s *stopSite) {
		s.started(t, stopJobs)
		s.openGate(t)
		s.await(t, "settle", 2)
	}},
	{"a consumer in a heartbeat", stopConfig{Program: "consumer", Handler: "cancelled"}, func(t *testing.T, s *stopSite) {
		s.started(t, stopJobs)
		s.hold(t, "extend", 1)
	}},
	{"a program that acks by hand", stopConfig{Program: "hand", Handler: "gated"}, func(t *testing.T, s *stopSite) {
		s.started(t, stopJobs)
		s.openGate(t)
		s.await(t, "settle", stopJobs+1)
	}},
}

// Every program is stopped at its moment while packets vanish and nobody is told. It is back within the time that it was
// given and what its documentation adds to that, names the jobs that it could not settle, and leaves no goroutine. The
// sidecar has them back in due within the reclaim bound, and when the network is back another worker does them.
func TestS36_AStopEndsInTimeThoughRedisIsSilentAndNamesWhatItCouldNotSettle(t *testing.T) {
	t.Parallel()
	sites := make([]*stopSite, len(stops))
	for i, one := range stops {
		sites[i] = newStopSite(t, one.Config)
	}
	expiries := make([]map[string]float64, len(stops))
	for i, one := range stops {
		s := sites[i]
		one.Moment(t, s)
		s.d.BlackHole(true)
		expiries[i] = s.expiries(t)
		require.Len(t, expiries[i], stopJobs, one.Name)
		require.NoError(t, s.p.Process.Signal(syscall.SIGTERM))
	}
	for i, one := range stops {
		s := sites[i]
		report := s.ended(t, one.Name)
		slices.Sort(report.IDs)
		assert.Equal(t, []string{"j0", "j1", "j2", "j3", "j4"}, report.IDs, "%s: not settled, as it says", one.Name)
		assert.Contains(t, report.Error, "5 jobs not settled", one.Name)
		s.backInDue(t, one.Name, expiries[i])
		s.d.Decide(nil)
		s.d.BlackHole(false)
	}
	for i, one := range stops {
		sites[i].finishedByAnother(t, one.Name)
	}
}

// expiries are the stored ends of the leases.
func (s *stopSite) expiries(t *testing.T) map[string]float64 {
	t.Helper()
	all, err := s.rdb.ZRangeWithScores(t.Context(), s.keys.Key("processing"), 0, -1).Result()
	require.NoError(t, err)
	out := map[string]float64{}
	for _, z := range all {
		out[z.Member.(string)] = z.Score
	}
	return out
}

// documentedStop is what Run's documentation adds to DrainTimeout.
const documentedStop = 3500 * time.Millisecond

// ended waits for the process and checks what it says of its end.
func (s *stopSite) ended(t *testing.T, name string) stopReport {
	t.Helper()
	var report stopReport
	require.NoError(t, json.Unmarshal([]byte(awaitFrom(t, s.p.Lines, "the report: "+name)), &report))
	require.Equal(t, 0, s.p.Wait(), name)
	t.Logf("%s: stopped in %v: %s", name, report.Took.Round(time.Millisecond), report.Error)
	bound := s.Stop + s.Read + s.Dial + time.Second // the last is for a busy machine
	if s.Program == "consumer" {
		bound += documentedStop
	}
	assert.Less(t, report.Took, bound, name)
	assert.Empty(t, report.Goroutines, name)
	return report
}

// backInDue requires that the sidecar has put all jobs back within the reclaim bound, by Redis' clock: the time at which
// a job is due again is when its lease was ended.
func (s *stopSite) backInDue(t *testing.T, name string, expiries map[string]float64) {
	t.Helper()
	require.Eventually(t, func() bool { return s.stats().Due == stopJobs }, 30*time.Second, 5*time.Millisecond, name)
	due, err := s.rdb.ZRangeWithScores(t.Context(), s.keys.Key("due"), 0, -1).Result()
	require.NoError(t, err)
	for _, z := range due {
		late := time.Duration(z.Score-expiries[z.Member.(string)]) * time.Millisecond
		assert.GreaterOrEqual(t, late, time.Duration(0), "%s: %v before its expiry", name, z.Member)
		assert.LessOrEqual(t, late, reclaimBound+sweepBound, "%s: %v after its expiry", name, z.Member)
	}
}

// finishedByAnother has a new worker do what is left.
func (s *stopSite) finishedByAnother(t *testing.T, name string) {
	t.Helper()
	c := s.stopConfig
	c.Program, c.Handler = "consumer", ""
	s.p = startChild(t, "s36", c)
	require.Eventually(t, func() bool { return s.stats().Counters["acked"] == stopJobs }, 30*time.Second, 5*time.Millisecond, name)
	require.NoError(t, s.p.Process.Signal(syscall.SIGTERM))
	assert.Empty(t, s.ended(t, name+": another").Error)
	starts := marksOf(readMarks(t, s.Marks), "start")
	assert.Len(t, starts, 2*stopJobs, name)
	stats := s.stats()
	assert.EqualValues(t, stopJobs, stats.Counters["expired"], name)
	assert.Zero(t, stats.Processing+stats.Due+stats.Dead, name)
}

// A sidecar has nothing to settle: it returns nil, and waits for one call at most.
func TestS36_ASidecarStopsThoughRedisIsSilent(t *testing.T) {
	t.Parallel()
	s := newStopSite(t, stopConfig{Program: "sidecar"})
	s.await(t, "expire", 3)
	s.await(t, "smembers", 3)
	s.d.BlackHole(true)
	require.NoError(t, s.p.Process.Signal(syscall.SIGTERM))
	report := s.ended(t, "a sidecar")
	assert.Empty(t, report.Error)
	for _, job := range s.claim(stopJobs) {
		require.NoError(t, job.Ack(t.Context()))
	}
}
