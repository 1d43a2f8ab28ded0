package cases

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

// leaseAtStart reads, in one MULTI, how long a job's lease still lasts by Redis' clock; negative: it has run out, and
// ok is false where the job is not in processing at all.
func (l *lane) leaseAtStart(id string) (left time.Duration, ok bool) {
	pipe := l.rdb.TxPipeline()
	now := pipe.Time(context.Background())
	expiry := pipe.ZScore(context.Background(), l.keys.Key("processing"), id)
	_, err := pipe.Exec(context.Background())
	if err != nil {
		return 0, false
	}
	return time.UnixMilli(int64(expiry.Val())).Sub(now.Val()), true
}

// A startLog notes each start outside the product: what the lease had left, and which attempt it was.
type startLog struct {
	mu       sync.Mutex
	starts   []string
	problems []string
}

func (s *startLog) note(l *lane, job *reliable.Job) {
	left, ok := l.leaseAtStart(job.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starts = append(s.starts, job.ID)
	if !ok || left <= 0 {
		s.problems = append(s.problems, fmt.Sprintf("%s attempt %d: in processing %v, lease left %v", job.ID, job.Attempt, ok, left))
	}
}

func (s *startLog) eachOnce(t testing.TB, n int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Empty(t, s.problems, "starts under a lease that had run out")
	require.Len(t, s.starts, n)
	slices.Sort(s.starts)
	require.Len(t, slices.Compact(s.starts), n, "one ID was started twice")
}

// bufferShape is n jobs of length each, under a lease much shorter than all of them together.
func bufferShape() (n int, length time.Duration, leaseLength time.Duration) {
	return shape(25, 50), shape(60*time.Millisecond, 200*time.Millisecond), shape(time.Second, 2*time.Second)
}

// workFor is a handler's work of a given length.
func workFor(ctx context.Context, length time.Duration) {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// A Consumer claims only for free slots, so nothing ages in its memory.
func TestS19_AConsumerStartsEveryJobOnceUnderALiveLease(t *testing.T) {
	t.Parallel()
	n, length, leaseLength := bufferShape()
	l := newLane(t, &reliable.QueueOptions{Lease: leaseLength})
	l.enqueue(numberedItems("j", n)...)
	l.sweepOn(nil)
	var log startLog
	stop := l.consume(func(ctx context.Context, job *reliable.Job) error {
		log.note(l, job)
		workFor(ctx, length)
		return nil
	}, &reliable.ConsumerOptions{Concurrency: 1})
	require.Eventually(t, func() bool { return l.stats().Counters["acked"] == int64(n) }, time.Minute, 20*time.Millisecond)
	stop()
	log.eachOnce(t, n)
	require.Zero(t, l.stats().Counters["expired"])
	require.EqualValues(t, n, l.stats().Counters["claimed"])
	l.balanced(n)
}

// A batch claimed by hand waits in memory for much longer than a lease: kept alive, all of it stays held.
func TestS19_ABatchThatIsKeptAliveOutlivesItsLeaseInMemory(t *testing.T) {
	t.Parallel()
	n, length, leaseLength := bufferShape()
	l := newLane(t, &reliable.QueueOptions{Lease: leaseLength})
	l.enqueue(numberedItems("j", n)...)
	l.sweepOn(nil)
	batch, err := l.queue.Claim(t.Context(), n, &reliable.ClaimOptions{KeepAlive: true})
	require.NoError(t, err)
	require.Len(t, batch.Jobs, n)
	begun := time.Now()
	var log startLog
	for _, job := range batch.Jobs {
		require.NoError(t, job.Context().Err())
		require.True(t, time.Now().Before(job.Deadline()))
		log.note(l, job)
		workFor(job.Context(), length)
		require.NoError(t, job.Ack(t.Context()))
	}
	require.Greater(t, time.Since(begun), leaseLength, "the case was not met: nothing waited for longer than a lease")
	log.eachOnce(t, n)
	require.Zero(t, l.stats().Counters["expired"])
	require.EqualValues(t, n, l.stats().Counters["acked"])
	l.balanced(n)
}

// Without renewal the leases of a batch run out in memory. Their holder is told in time, and nothing that is started
// then has a lease that ran out.
func TestS19_ABatchThatIsNotKeptAliveTellsItsHolderAndIsDroppedUnstarted(t *testing.T) {
	t.Parallel()
	const n = 20
	l := newLane(t, &reliable.QueueOptions{Lease: shape(200*time.Millisecond, 2*time.Second)})
	l.enqueue(numberedItems("j", n)...)
	l.sweepOn(nil)
	aged := l.claimExactly(n)
	for _, job := range aged {
		select {
		case <-job.Context().Done():
		case <-time.After(30 * time.Second):
			require.FailNow(t, "the holder was never told")
		}
		require.ErrorIs(t, context.Cause(job.Context()), reliable.ErrLost)
		require.False(t, time.Now().Before(job.Deadline()), "told before the lease was over")
	}
	require.Eventually(t, func() bool { return l.stats().Due == n }, 30*time.Second, 10*time.Millisecond)
	again, err := l.queue.Claim(t.Context(), n, &reliable.ClaimOptions{Lease: time.Minute})
	require.NoError(t, err)
	require.Len(t, again.Jobs, n)
	for _, job := range again.Jobs {
		require.Equal(t, 2, job.Attempt)
		require.Equal(t, 1, job.Expiries)
		require.ErrorIs(t, aged[job.ID].Ack(t.Context()), reliable.ErrLost)
		require.NoError(t, job.Ack(t.Context()))
	}
	require.EqualValues(t, n, l.stats().Counters["expired"])
	l.balanced(n)
}

// A claim's answer that was on its way for longer than the lease brings jobs that may be somebody else's by now.
func TestS19_AJobWhoseLeaseRanOutOnItsWayToTheWorkerIsNotStarted(t *testing.T) {
	t.Parallel()
	const n = 8
	const leaseLength = 500 * time.Millisecond // and 200 ms: less than a claim waits for its answer
	name := redistest.Queue(t)
	rdb := redistest.Client(t)
	late := &lateAnswer{delay: leaseLength + 200*time.Millisecond}
	rdb.AddHook(late)
	q, err := reliable.New(rdb, name, &reliable.QueueOptions{Lease: leaseLength})
	require.NoError(t, err)
	t.Cleanup(func() { closeBounded(t, q.Close) })
	l := laneOn(t, name, redistest.Client(t), &reliable.QueueOptions{Lease: leaseLength})
	l.enqueue(numberedItems("j", n)...)
	l.sweepOn(nil)
	var log startLog
	notStarted := make(chan string, 1000)
	none := func(_ context.Context, e reliable.Event) { notStarted <- e.ID }
	given := func(_ context.Context, e reliable.Event) { notStarted <- e.Err.Error() } // a busy machine: not waited for
	stop := consumeWith(t, q, reliable.HandlerFunc(func(_ context.Context, job *reliable.Job) error {
		log.note(l, job)
		return nil
	}), &reliable.ConsumerOptions{Concurrency: n, NoSweep: true, Hooks: &reliable.Hooks{OnLost: none, OnRelease: none, OnError: given}})
	require.Eventually(t, func() bool { return l.stats().Counters["acked"] == n }, time.Minute, 20*time.Millisecond)
	stop()
	require.True(t, late.done(), "the case was not met: no claim was late")
	require.NotEmpty(t, notStarted, "the case was not met: no job came too late")
	log.eachOnce(t, n)
	l.balanced(n)
}

// A lateAnswer holds back the first answer that brings jobs.
type lateAnswer struct {
	redis.Hook
	delay time.Duration
	mu    sync.Mutex
	over  bool
}

func (h *lateAnswer) done() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.over
}

func (h *lateAnswer) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *lateAnswer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		h.hold(cmd)
		return err
	}
}

func (h *lateAnswer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			h.hold(cmd)
		}
		return err
	}
}

func (h *lateAnswer) hold(cmd redis.Cmder) {
	value, ok := cmd.(interface{ Val() any })
	if !ok || !isScript(cmd) {
		return
	}
	answer, _ := value.Val().([]any)
	if len(answer) < 11 { // a claim's answer with a job has seven elements, and four more a job
		return
	}
	if text, _ := answer[4].(string); text == "" {
		return
	} else if _, err := strconv.ParseInt(text, 10, 64); err != nil {
		return
	}
	h.mu.Lock()
	first := !h.over
	h.over = true
	h.mu.Unlock()
	if first {
		workFor(context.Background(), h.delay)
	}
}
