//go:build unix

package cases

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

var errGaveUp = errors.New("the lease was lost while I worked")

// The handler of the process that is frozen works for a long time and looks at its context before it has an effect. A
// job with an odd last digit says that all went well nevertheless, one with an even digit fails.
var _ = crashHandler("s18", func(w *crashWorker) reliable.Handler {
	go w.markAwake()
	return reliable.HandlerFunc(func(ctx context.Context, job *reliable.Job) error {
		w.mark("start", job, "")
		if job.ID == "new" {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * w.Lease):
			w.mark("effect", job, "")
			return w.beside.HIncrBy(ctx, w.key("effects"), job.ID, 1).Err()
		}
		w.mark("ended", job, strconv.FormatInt(time.Now().UnixMicro(), 10))
		w.mark("cancelled", job, context.Cause(ctx).Error())
		w.mark("extend", job, refusal(job.Extend(context.Background(), 0)))
		if (job.ID[len(job.ID)-1]-'0')%2 == 1 {
			return nil
		}
		return errGaveUp
	})
})

// markAwake notes when this process runs again after it did not for more than two leases.
func (w *crashWorker) markAwake() {
	last := time.Now()
	for range time.Tick(5 * time.Millisecond) {
		if time.Since(last) > 2*w.Lease {
			putMark(w.Marks, mark{What: "awake"})
		}
		last = time.Now()
	}
}

// refusal says in a word what a call on a lease that is gone gave.
func refusal(err error) string {
	switch {
	case errors.Is(err, reliable.ErrLost):
		return "lost"
	case err == nil:
		return "extended"
	}
	return err.Error()
}

// A whole process is stopped in the middle of its jobs, as by the suspension of its machine, until others have finished
// them, and then goes on. It learns at once that it has lost them, has no effect any more, and cannot settle or extend
// anything. Then it works on.
//
// Its heartbeat is not even sent again once it has seen that its local deadlines have passed, so that what stands in for
// the next heartbeat of the case is an extend by each handler, which is refused and makes no lease.
//
// Its effects are plain increments here, behind a look at the context. Between that look and the effect a process can
// be stopped as well, and no look helps: that is what the fence and the idempotency guard are for.
func TestS18_ThawedProcessHasLostItsJobsAndWorksOn(t *testing.T) {
	t.Parallel()
	const jobs, poll = 4, 125 * time.Millisecond
	s := newCrashSite(t, crashConfig{
		Handler: "s18", Concurrency: 8, Fallback: poll,
		Lease: shape(750*time.Millisecond, 2*time.Second), MaxRetries: 5, MaxExpiries: 5,
	})
	frozen := s.worker(t, nil)
	s.awaitSwept(t)
	s.enqueue(numberedItems("J", jobs)...)
	s.awaitMarks(t, "start", jobs)

	var finished atomic.Int64
	stopB := consumeWith(t, s.queue, reliable.HandlerFunc(func(ctx context.Context, job *reliable.Job) error {
		finished.Add(1)
		return s.beside.HIncrBy(ctx, s.key("effects"), job.ID, 1).Err()
	}), &reliable.ConsumerOptions{WakeFallback: poll, Holder: "the other"})
	s.awaitHolder(t, "the other")
	s.awaitSwept(t)
	frozenAt := time.Now()
	require.NoError(t, frozen.Process.Signal(syscall.SIGSTOP))
	s.awaitCount(t, "acked", jobs)
	<-time.After(time.Until(frozenAt.Add(3 * s.Lease)))
	stopB()
	ours := []string{"stats", "sessions", "holders", "fence", "sweep", "wake"} // what refused calls, with their sessions, and sweepers may change
	before := redistest.Dump(t, s.rdb, keys.DefaultPrefix, s.Queue, ours...)
	require.Empty(t, s.members(lease.Processing))
	require.Empty(t, marksOf(readMarks(t, s.Marks), "cancelled"), "the process was to be stopped")

	thawedAt := time.Now()
	require.NoError(t, frozen.Process.Signal(syscall.SIGCONT))
	awake := s.awaitAwake(t, thawedAt)
	lost := s.awaitMarks(t, "lost", jobs)
	s.checkThawed(t, jobs, awake)
	assert.Len(t, lost, jobs, "settles refused")
	assert.Empty(t, s.members(lease.Processing), "a late call has made a lease")
	assert.Equal(t, before, redistest.Dump(t, s.rdb, keys.DefaultPrefix, s.Queue, ours...), "refused calls change nothing")
	assert.EqualValues(t, jobs, s.count(t, "acked"))
	assert.EqualValues(t, jobs, s.count(t, "refused"))
	assert.GreaterOrEqual(t, s.count(t, "refused_extends"), int64(jobs))
	assert.EqualValues(t, jobs, finished.Load(), "all acks are those of the other consumer")
	effects, err := s.beside.HGetAll(t.Context(), s.key("effects")).Result()
	require.NoError(t, err)
	for i := range jobs {
		assert.Equal(t, "1", effects[fmt.Sprintf("J%d", i)], "effects of job %d", i)
	}

	asked := s.serverTime()
	s.enqueue(reliable.Item{ID: "new", Kind: "case"})
	starts := s.awaitMarks(t, "start", jobs+1)
	started := time.UnixMicro(starts[jobs].Clock)
	assert.Equal(t, frozen.Process.Pid, starts[jobs].PID)
	assert.LessOrEqual(t, started.Sub(asked), 2*poll, "until the thawed process starts a new job")
	frozen.finish(t)
}

// checkThawed requires of every handler of the thawed process that it was told in time, and could not go on.
func (s *crashSite) checkThawed(t *testing.T, jobs int, awake time.Time) {
	t.Helper()
	marks := readMarks(t, s.Marks)
	for _, what := range []string{"ended", "cancelled", "extend", "lost"} {
		assert.Len(t, marksOf(marks, what), jobs, what)
	}
	for _, ended := range marksOf(marks, "ended") {
		at, err := strconv.ParseInt(ended.Note, 10, 64)
		require.NoError(t, err)
		late := time.UnixMicro(at).Sub(awake)
		assert.LessOrEqual(t, late, 250*time.Millisecond, "the context of %s ended after the process ran again", ended.ID)
	}
	for _, cancelled := range marksOf(marks, "cancelled") {
		assert.Equal(t, reliable.ErrLost.Error(), cancelled.Note, "why the context of %s ended", cancelled.ID)
	}
	for _, extend := range marksOf(marks, "extend") {
		assert.Equal(t, "lost", extend.Note, "extending %s after the thaw", extend.ID)
	}
	assert.Empty(t, marksOf(marks, "effect"))
}

// awaitAwake waits until the thawed process has noted that it runs, and returns when that was. Marks from before are of a
// machine that is too busy.
func (s *crashSite) awaitAwake(t testing.TB, thawedAt time.Time) (awake time.Time) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, m := range marksOf(readMarks(t, s.Marks), "awake") {
			if awake = time.UnixMicro(m.At); !awake.Before(thawedAt.Truncate(time.Microsecond)) {
				return true
			}
		}
		return false
	}, time.Minute, 5*time.Millisecond, "the process does not run again")
	return awake
}
