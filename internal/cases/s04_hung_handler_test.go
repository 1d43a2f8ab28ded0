package cases

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/reliable"
)

// The handler of the other process notes its start and is done.
var _ = crashHandler("s04", func(w *crashWorker) reliable.Handler {
	return reliable.HandlerFunc(func(_ context.Context, job *reliable.Job) error {
		w.mark("start", job, "")
		return nil
	})
})

// hung is the situation of S04: of two slots of a consumer, one has a handler that never looks at its context; another
// process is up. The job may run for three leases.
type hung struct {
	*crashSite
	consumer *reliable.Consumer
	log      lineLog
	running  chan struct{} // H has been started
	unblock  chan struct{}
	busy     chan struct{} // the other slot is taken by a job that goes on until free is closed
	free     chan struct{}

	mu        sync.Mutex
	started   time.Time
	cancelled time.Time
	cause     error
	extended  []time.Time // extends of H that were sent
	overdue   []reliable.Event
	lost      []reliable.Event
}

// handle blocks with H, whatever becomes of its context; that is watched beside it.
func (s *hung) handle(ctx context.Context, job *reliable.Job) error {
	s.mark("start", job)
	if job.Kind == "busy" {
		s.busy <- struct{}{}
		<-s.free
	}
	if job.ID != "H" {
		return nil
	}
	s.mu.Lock()
	s.started = time.Now()
	s.mu.Unlock()
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cancelled, s.cause = time.Now(), context.Cause(ctx)
	})
	close(s.running)
	<-s.unblock
	return nil
}

func (s *hung) mark(what string, job *reliable.Job) {
	putMark(s.Marks, mark{What: what, ID: job.ID, Attempt: job.Attempt, Clock: redisClock(s.beside)})
}

// see notes extends of H.
func (s *hung) see(cmd []string) netfault.Action {
	if call, ok := scriptIn(cmd); ok && call.Name == "extend" && slices.Contains(call.Args, "H") {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.extended = append(s.extended, time.Now())
	}
	return netfault.Pass
}

func (s *hung) note(list *[]reliable.Event) func(context.Context, reliable.Event) {
	return func(_ context.Context, e reliable.Event) {
		s.mu.Lock()
		defer s.mu.Unlock()
		*list = append(*list, e)
	}
}

func newHung(t *testing.T) *hung {
	t.Helper()
	s := &hung{running: make(chan struct{}), unblock: make(chan struct{}), busy: make(chan struct{}, 1), free: make(chan struct{})}
	s.crashSite = newCrashSite(t, crashConfig{
		// The other process has to start, and the other slot to be taken, before four leases are over.
		Handler: "s04", Concurrency: 2, Lease: 2 * time.Second, MaxRetries: 5, MaxExpiries: 5,
	})
	d := detourTo(t, nil)
	d.Decide(s.see)
	var err error
	s.consumer, err = reliable.NewConsumer(newQueueOn(t, d.rdb, s.Queue, s.queueOptions()), reliable.HandlerFunc(s.handle),
		&reliable.ConsumerOptions{
			Concurrency: 2, JobTimeout: 3 * s.Lease, WakeFallback: 50 * time.Millisecond, Logger: s.log.logger(),
			Hooks: &reliable.Hooks{OnOverdue: s.note(&s.overdue), OnLost: s.note(&s.lost)},
		})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.consumer.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-ended)
	})
	return s
}

// A handler hangs and ignores its context. The heartbeat does not keep its job alive for ever: it ends with the job's
// timeout, the job is done elsewhere, and what the handler returns at last settles nothing. Meanwhile the other slot
// works, and log, hook and Health name the handler.
func TestS04_TheHeartbeatOfAHungHandlerEndsWithTheJobsTimeout(t *testing.T) {
	t.Parallel()
	s := newHung(t)
	s.awaitSwept(t)
	s.enqueue(reliable.Item{ID: "H", Kind: "case", Payload: []byte("of H")})
	awaitFrom(t, s.running, "the start of H")
	other := s.worker(t, nil)
	s.enqueue(numberedItems("quick", 20)...)
	s.awaitCount(t, "acked", 20)
	require.NoError(t, s.consumer.Health(t.Context()), "before the timeout nothing is wrong")

	busy := s.takeOtherSlot(t)
	expiry := s.lastExpiry(t)
	starts := s.awaitMarks(t, "start", 22+busy)
	again := starts[len(starts)-1]
	require.Equal(t, "H", again.ID)
	s.awaitCount(t, "acked", int64(21+busy-1))
	close(s.free)
	s.awaitCount(t, "acked", int64(21+busy))
	assert.Equal(t, other.Process.Pid, again.PID, "it is delivered elsewhere")
	assert.Equal(t, 2, again.Attempt)
	late := time.UnixMicro(again.Clock).Sub(time.UnixMilli(expiry))
	assert.GreaterOrEqual(t, late, time.Duration(0), "started before the stored expiry")
	assert.LessOrEqual(t, late, reclaimBound+sweepBound, "started after the stored expiry")

	s.checkTimeout(t)
	s.checkNamed(t)

	<-time.After(time.Until(s.started.Add(6 * s.Lease)))
	s.mu.Lock()
	extends := len(s.extended)
	s.mu.Unlock()
	close(s.unblock)
	require.Eventually(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.lost) == 1 }, 20*time.Second, time.Millisecond)
	assert.Equal(t, "H", s.lost[0].ID)
	assert.ErrorIs(t, s.lost[0].Err, reliable.ErrLost, "the late return")
	require.Eventually(t, func() bool { return s.consumer.Health(t.Context()) == nil }, 20*time.Second, time.Millisecond, "true again by itself")
	assert.Len(t, s.extended, extends)
	assert.EqualValues(t, 21+busy, s.count(t, "acked"))
	assert.EqualValues(t, 1, s.count(t, "expired"))
	assert.EqualValues(t, 1, s.count(t, "refused"))
	assert.Zero(t, s.count(t, "nacked")+s.count(t, "buried")+s.count(t, "released"))
	assert.Len(t, marksOf(readMarks(t, s.Marks), "start"), 22+busy)
	s.balanced(21 + busy)
	other.finish(t)
}

// takeOtherSlot has the consumer's other slot taken, two leases after the start of H, so that H can only be delivered
// elsewhere. It returns how many jobs that took: the other process may have the first ones.
func (s *hung) takeOtherSlot(t *testing.T) (jobs int) {
	t.Helper()
	<-time.After(time.Until(s.started.Add(2 * s.Lease)))
	for {
		jobs++
		s.enqueue(reliable.Item{ID: fmt.Sprint("busy", jobs), Kind: "busy"})
		s.awaitMarks(t, "start", 21+jobs)
		select {
		case <-s.busy:
			return jobs
		case <-time.After(20 * time.Millisecond): // the start is noted before that
		}
	}
}

// lastExpiry watches the lease of H until it has ended, and returns its last stored expiry, in ms.
func (s *hung) lastExpiry(t *testing.T) (last int64) {
	t.Helper()
	token := s.rdb.HGet(t.Context(), s.keys.Key("leases"), "H").Val()
	require.NotEmpty(t, token, "the machine was too slow: H's lease has ended before its other slot was taken")
	require.Eventually(t, func() bool {
		pipe := s.rdb.TxPipeline()
		score := pipe.ZScore(t.Context(), s.keys.Key("processing"), "H")
		now := pipe.HGet(t.Context(), s.keys.Key("leases"), "H")
		_, _ = pipe.Exec(t.Context()) // each holds its own answer
		if now.Val() != token {
			return true
		}
		last = int64(score.Val())
		return false
	}, 10*s.Lease+20*time.Second, 5*time.Millisecond, "the lease of H never ends")
	return last
}

// checkTimeout requires that context and heartbeat ended with the timeout: extends at most one beat later.
func (s *hung) checkTimeout(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	lag := shape(500*time.Millisecond, 250*time.Millisecond)
	timeout, beat := 3*s.Lease, s.Lease/3
	require.NotEmpty(t, s.extended)
	assert.GreaterOrEqual(t, len(s.extended), 3, "extends until then")
	assert.LessOrEqual(t, s.extended[len(s.extended)-1].Sub(s.started), timeout+beat+lag, "the last extend")
	assert.ErrorIs(t, s.cause, reliable.ErrJobTimeout)
	assert.GreaterOrEqual(t, s.cancelled.Sub(s.started), timeout-lag, "the end of the context")
	assert.LessOrEqual(t, s.cancelled.Sub(s.started), timeout+lag, "the end of the context")
}

// checkNamed requires that hook, log and Health name the handler that is overdue, and the slot that it holds.
func (s *hung) checkNamed(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	require.Len(t, s.overdue, 1)
	assert.Equal(t, "H", s.overdue[0].ID)
	s.mu.Unlock()
	named := slices.ContainsFunc(s.log.lines(), func(line string) bool {
		return strings.Contains(line, `msg="job overdue"`) && strings.Contains(line, "id=H")
	})
	assert.True(t, named, "no line of the log names it:\n%s", s.log.String())
	var overdue *reliable.OverdueError
	require.ErrorAs(t, s.consumer.Health(t.Context()), &overdue)
	require.Len(t, overdue.Handlers, 1)
	assert.Equal(t, "H", overdue.Handlers[0].ID)
	assert.Equal(t, 1, overdue.Free, "slots that are not held")
}
