//go:build unix

package cases

import (
	"context"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/reliable"
)

// The job P ends its process, by a signal or by an exit; every other job is good.
var (
	_ = crashHandler("s26-killed", func(w *crashWorker) reliable.Handler {
		return w.poison(func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) })
	})
	_ = crashHandler("s26-exits", func(w *crashWorker) reliable.Handler {
		return w.poison(func() { os.Exit(137) })
	})
)

func (w *crashWorker) poison(end func()) reliable.Handler {
	return reliable.HandlerFunc(func(_ context.Context, job *reliable.Job) error {
		w.mark("start", job, digest(job.Payload))
		if job.ID == "P" {
			end()
			select {}
		}
		<-time.After(2 * time.Millisecond)
		return nil
	})
}

// A crash is the end of one worker: what it held then.
type crash struct {
	holder string
	held   []string
}

// supervise restarts a worker whenever it has crashed, until all n jobs are acked or dead, and then ends it.
func (s *crashSite) supervise(t *testing.T, n int64) (crashes []crash) {
	t.Helper()
	for {
		holder := fmt.Sprintf("worker-%d", len(crashes)+1)
		p := s.worker(t, func(c *crashConfig) { c.Holder = holder })
		require.Eventually(t, func() bool {
			select {
			case <-p.done:
				return true
			default:
				return s.count(t, "acked")+s.count(t, "died") >= n
			}
		}, 2*time.Minute, time.Millisecond, "neither a crash nor the end")
		select {
		case <-p.done:
		default:
			p.finish(t)
			return crashes
		}
		processing, err := s.queue.List(t.Context(), reliable.Processing, 1000, nil)
		require.NoError(t, err)
		var held []string
		for _, info := range processing.Jobs {
			if info.Holder == holder {
				held = append(held, info.ID)
			}
		}
		crashes = append(crashes, crash{holder, held})
		require.LessOrEqual(t, len(crashes), 10, "the worker crashes without end")
	}
}

// A poison job kills every worker that starts it; a supervisor restarts the worker. The job is started three times and
// then dead, and costs others nothing but what was in flight beside it.
func TestS26_PoisonJobIsDeadAfterItsThirdCrashAndGoodJobsAreNot(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		concurrency int
		handler     string
	}{{1, "s26-exits"}, {8, "s26-killed"}} {
		t.Run(fmt.Sprintf("concurrency %d", c.concurrency), func(t *testing.T) {
			t.Parallel()
			const max, good = 3, 100
			s := newCrashSite(t, crashConfig{
				Handler: c.handler, Concurrency: c.concurrency,
				Lease: shape(500*time.Millisecond, 2*time.Second), MaxRetries: max - 1, MaxExpiries: max - 1,
			})
			payload := everyByte()
			var items []reliable.Item
			for i := range good + 1 {
				item := reliable.Item{ID: fmt.Sprintf("A%03d", i), Kind: "s26", Payload: []byte("good")}
				switch { // within one millisecond the order is that of the IDs: P is in the middle
				case i == good/2:
					item.ID, item.Payload = "P", payload
				case i > good/2:
					item.ID = fmt.Sprintf("Z%03d", i)
				}
				items = append(items, item)
			}
			s.enqueue(items...)

			crashes := s.supervise(t, good+1)
			require.Len(t, crashes, max, "crashes, and restarts")
			for _, crash := range crashes {
				assert.Contains(t, crash.held, "P", "held by %s when it crashed", crash.holder)
				assert.LessOrEqual(t, len(crash.held), c.concurrency)
			}
			s.checkPoison(t, max, payload)
			dead := s.checkGood(t, items, crashes, max)
			if c.concurrency == 1 {
				assert.Empty(t, dead, "good jobs in dead")
				assert.EqualValues(t, good, s.count(t, "acked"))
			}
			t.Logf("crashed %+v; good jobs in dead: %v", crashes, dead)
		})
	}
}

func (s *crashSite) checkPoison(t *testing.T, max int, payload []byte) {
	t.Helper()
	starts := 0
	for _, start := range marksOf(readMarks(t, s.Marks), "start") {
		if start.ID == "P" {
			starts++
			assert.Equal(t, starts, start.Attempt)
			assert.Equal(t, digest(payload), start.Note)
		}
	}
	assert.Equal(t, max, starts, "starts of P")
	info := s.inspect("P")
	assert.Equal(t, reliable.Dead, info.Place)
	assert.Equal(t, [2]int{0, max}, [2]int{info.Failures, info.Expiries}, "failures and expiries of P")
	assert.Equal(t, payload, info.Payload)
	require.NotEmpty(t, info.Errors)
	assert.Contains(t, info.Errors[len(info.Errors)-1].Reason, "lease expired")
}

// checkGood requires of every good job that it was acked once, or was in flight in all crashes and is dead.
func (s *crashSite) checkGood(t *testing.T, items []reliable.Item, crashes []crash, max int) (dead []string) {
	t.Helper()
	acks, attempts := map[string]int{}, map[string]int{}
	marks := readMarks(t, s.Marks)
	for _, start := range marksOf(marks, "start") {
		attempts[start.ID] = start.Attempt
	}
	for _, done := range marksOf(marks, "done") {
		acks[done.ID]++
	}
	for _, item := range items {
		if item.ID == "P" {
			continue
		}
		crashed := 0
		for _, crash := range crashes {
			if slices.Contains(crash.held, item.ID) {
				crashed++
			}
		}
		if s.inspect(item.ID).Place == reliable.Dead {
			dead = append(dead, item.ID)
			assert.Equal(t, max, crashed, "%s is dead: crashes that it was in flight in", item.ID)
			continue
		}
		assert.LessOrEqual(t, attempts[item.ID]-1, 2, "retry count of %s", item.ID)
		assert.LessOrEqual(t, acks[item.ID], 1, "acks of %s", item.ID)
		assert.Equal(t, reliable.Nowhere, s.inspect(item.ID).Place, "%s", item.ID)
	}
	assert.EqualValues(t, len(items)-1-len(dead), s.count(t, "acked"), "acked")
	return dead
}
