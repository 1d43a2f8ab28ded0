//go:build unix

package cases

import (
	"context"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/idempotency"
	"github.com/leaseq/leaseq/reliable"
)

// The points at which the process of a job's first start is killed.
const (
	beforeBegin  = "before Begin"
	beforeEffect = "after Begin, before the effect"
	afterEffect  = "after the effect, before Commit"
	afterCommit  = "after Commit"
)

// killedAt ends this process by SIGKILL if it is at the point of the case, in the first start of a job.
func (w *crashWorker) killedAt(point string, job *reliable.Job) {
	if w.Point == point && job.Attempt == 1 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// onceAndCompleted is OnceAndAck with an ack that has been answered when it returns.
func onceAndCompleted(ctx context.Context, job *reliable.Job, fn func(ctx context.Context) error) error {
	a, err := job.BeginOnce(ctx, theEffect)
	if err != nil {
		return err
	}
	_, err = idempotency.Run(ctx, a, func(ctx context.Context) (bool, error) { return true, fn(ctx) }, &idempotency.DoOptions[bool]{
		Commit: func(ctx context.Context, result []byte) error { return job.CompleteAndAck(ctx, a.Permit, result) },
	})
	return err
}

var (
	// The effect is run by Once, or by OnceAndAck; where the ack is to be over before the kill, by CompleteAndAck.
	_ = crashHandler("s69-once", func(w *crashWorker) reliable.Handler {
		return reliable.HandlerFunc(func(ctx context.Context, job *reliable.Job) error {
			w.mark("start", job, "")
			w.killedAt(beforeBegin, job)
			effect := func(ctx context.Context) error {
				w.killedAt(beforeEffect, job)
				_, err := w.effect(ctx, job)
				w.killedAt(afterEffect, job)
				return err
			}
			var err error
			switch {
			case !withTheAck(job.ID):
				err = job.Once(ctx, theEffect, effect)
			case w.Point == afterCommit:
				err = onceAndCompleted(ctx, job, effect)
			default:
				err = job.OnceAndAck(ctx, theEffect, effect)
			}
			if err == nil {
				w.killedAt(afterCommit, job)
			}
			return err
		})
	})
	// Where the effect is in doubt the handler looks it up first.
	_ = crashHandler("s69-ask", func(w *crashWorker) reliable.Handler {
		return reliable.HandlerFunc(func(ctx context.Context, job *reliable.Job) error {
			w.mark("start", job, "")
			a, err := job.BeginOnce(ctx, theEffect)
			if err != nil {
				return err
			}
			if a.InDoubt {
				w.mark("answer", job, "in doubt")
			}
			o := &idempotency.DoOptions[int64]{Ask: func(ctx context.Context, _ time.Time) (int64, bool, error) {
				return w.happened(ctx, job)
			}}
			if withTheAck(job.ID) {
				o.Commit = func(ctx context.Context, result []byte) error { return job.CompleteAndAck(ctx, a.Permit, result) }
			}
			_, err = idempotency.Run(ctx, a, func(ctx context.Context) (int64, error) {
				w.killedAt(beforeEffect, job)
				times, err := w.effect(ctx, job)
				w.killedAt(afterEffect, job)
				return times, err
			}, o)
			return err
		})
	})
)

// crew keeps so many workers at work, each started again when SIGKILL has ended it, until all jobs are acked. It returns
// how many were killed.
func (s *crashSite) crew(t *testing.T, size int, jobs int64) (kills int) {
	t.Helper()
	workers, ended := make([]*process, size), make(chan int, size)
	start := func(i int) {
		p := startChild(t, "crash-worker", s.crashConfig)
		workers[i] = p
		go func() {
			<-p.done
			ended <- i
		}()
	}
	for i := range workers {
		start(i)
	}
	look, patience := time.NewTicker(10*time.Millisecond), time.After(4*time.Minute)
	defer look.Stop()
	for s.count(t, "acked") < jobs {
		select {
		case i := <-ended:
			require.Equal(t, syscall.SIGKILL, workers[i].killedBy(), "what ended a worker")
			kills++
			start(i)
		case <-look.C:
		case <-patience:
			require.Fail(t, "not all jobs are acked", "%d of %d", s.count(t, "acked"), jobs)
		}
	}
	for _, p := range workers {
		_ = p.Process.Signal(syscall.SIGTERM) // one that was killed just now takes none
	}
	for _, p := range workers {
		if p.Wait() == -1 {
			if p.killedBy() != syscall.SIGTERM { // that ends one which was started just now, before it knows what to do about it
				require.Equal(t, syscall.SIGKILL, p.killedBy(), "what ended a worker")
				kills++
			}
			continue
		}
		require.Equal(t, 0, p.Wait(), "exit code after SIGTERM")
	}
	return kills
}

// killedBy is the signal that has ended a process.
func (p *process) killedBy() syscall.Signal {
	return p.ProcessState.Sys().(syscall.WaitStatus).Signal()
}

// Workers are killed by SIGKILL around the effect of each job, in its first start. The effect is an INCR in another
// database; its record is the job's own. Only where the effect had happened and was not marked does Redo run it again,
// and then somebody is told; where the handler asks the downstream it is not run again. Every job ends acked.
func TestS69_AKillAroundTheEffectLeavesItRunOnceOrInDoubt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		point   string
		inDoubt idempotency.Policy
		doubt   bool   // the next holder finds the effect in doubt
		effects string // of each job
	}{
		"redo, " + beforeBegin:  {beforeBegin, idempotency.Redo, false, "1"},
		"redo, " + beforeEffect: {beforeEffect, idempotency.Redo, true, "1"},
		"redo, " + afterEffect:  {afterEffect, idempotency.Redo, true, "2"},
		"redo, " + afterCommit:  {afterCommit, idempotency.Redo, false, "1"},
		"ask, " + beforeEffect:  {beforeEffect, idempotency.Ask, true, "1"},
		"ask, " + afterEffect:   {afterEffect, idempotency.Ask, true, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const max = 5
			jobs := shape(4, 250)
			config := crashConfig{
				Handler: "s69-once", Lease: shape(time.Second, 2*time.Second), MaxRetries: max - 1, MaxExpiries: max - 1,
				Point: c.point, InDoubt: c.inDoubt,
			}
			if c.inDoubt == idempotency.Ask {
				config.Handler = "s69-ask"
			}
			s := newCrashSite(t, config)
			s.sidecar(t)
			items := numberedItems("J", jobs)
			s.enqueue(items...)
			began := time.Now()
			kills := s.crew(t, shape(2, 8), int64(jobs))

			assert.Equal(t, jobs, kills, "workers killed")
			assert.EqualValues(t, jobs, s.count(t, "acked"))
			assert.Zero(t, s.count(t, "died"))
			assert.Equal(t, each(items, c.effects), s.effects(t), "effects of each job")
			s.checkDoubts(t, items, c.doubt, c.inDoubt)
			for _, item := range items {
				record := s.onceRecord(item.ID)
				assert.Regexp(t, `^d `, record["e:"+theEffect], "the record of %s: want the effect done", item.ID)
			}
			t.Logf("%d jobs, %d starts, %d kills, in %v: %s effect(s) each, %d in doubt", jobs, len(marksOf(readMarks(t, s.Marks), "start")),
				kills, time.Since(began).Round(10*time.Millisecond), c.effects, len(marksOf(readMarks(t, s.Marks), "doubt")))
		})
	}
}

// checkDoubts requires that the log told of a doubt for every job, or for none, and that the answers to Begin said so.
func (s *crashSite) checkDoubts(t *testing.T, items []reliable.Item, want bool, policy idempotency.Policy) {
	t.Helper()
	var effects, ids []string
	if want {
		for _, item := range items {
			effects, ids = append(effects, item.ID+":"+theEffect), append(ids, item.ID)
		}
	}
	marks := readMarks(t, s.Marks)
	assert.ElementsMatch(t, effects, idsOf(marksOf(marks, "doubt")), "effects that the log said are in doubt")
	if policy == idempotency.Ask {
		assert.ElementsMatch(t, ids, idsOf(marksOf(marks, "answer")), "jobs whose next holder was answered that it is in doubt")
	}
}

// idsOf are the different IDs of marks.
func idsOf(marks []mark) []string {
	var ids []string
	for _, m := range marks {
		ids = append(ids, m.ID)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
