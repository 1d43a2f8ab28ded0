//go:build unix

package cases

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/reliable"
)

// The first delivery of J waits for its process to be killed; later ones end. A job L ends at once.
var _ = crashHandler("s27-later-acks", func(w *crashWorker) reliable.Handler {
	return reliable.HandlerFunc(func(_ context.Context, job *reliable.Job) error {
		w.mark("start", job, "")
		if job.ID == "J" && job.Attempt == 1 {
			select {}
		}
		return nil
	})
})

// No delivery of J ever answers.
var _ = crashHandler("s27-never-answers", func(w *crashWorker) reliable.Handler {
	return reliable.HandlerFunc(func(_ context.Context, job *reliable.Job) error {
		w.mark("start", job, "")
		if job.ID == "J" {
			select {}
		}
		return nil
	})
})

// One rule in every path: a job whose leases only run out is started MaxExpiries + 1 times and then dead with as many
// attempts, none fewer. MAX is the number of starts.
func TestS27_JobThatOnlyCrashesIsStartedAsOftenAsItsLimitSays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		max       int
		handler   string
		noExtend  bool
		wantPlace reliable.Place
		wantStart int
	}{
		{max: 1, handler: "s27-later-acks", wantPlace: reliable.Dead, wantStart: 1},
		{max: 2, handler: "s27-later-acks", wantPlace: reliable.Nowhere, wantStart: 2},
		{max: 4, handler: "s27-never-answers", noExtend: true, wantPlace: reliable.Dead, wantStart: 4},
	} {
		t.Run(fmt.Sprintf("MAX=%d", c.max), func(t *testing.T) {
			t.Parallel()
			s := newCrashSite(t, crashConfig{
				Handler: c.handler, NoExtend: c.noExtend, Concurrency: 8,
				Lease: shape(500*time.Millisecond, 2*time.Second), MaxRetries: c.max - 1, MaxExpiries: c.max - 1,
			})
			payload := everyByte()
			victim := s.worker(t, nil)
			s.awaitSwept(t)
			s.enqueue(reliable.Item{ID: "J", Kind: "s27", Payload: payload})
			s.awaitMarks(t, "start", 1)
			victim.Kill()

			fresh := s.worker(t, nil)
			s.awaitEnd(t, "J", c.wantPlace)
			// What had a delivery coming would have had it before a job that is enqueued only now.
			s.enqueue(reliable.Item{ID: "L", Kind: "s27"})
			s.awaitEnd(t, "L", reliable.Nowhere)

			var starts []mark
			for _, start := range marksOf(readMarks(t, s.Marks), "start") {
				if start.ID == "J" {
					starts = append(starts, start)
					assert.Equal(t, len(starts), start.Attempt, "the delivery number that the handler saw")
				}
			}
			assert.Len(t, starts, c.wantStart)
			for _, start := range starts[1:] {
				assert.Equal(t, fresh.Process.Pid, start.PID, "who started delivery %d", start.Attempt)
			}
			if c.wantPlace == reliable.Nowhere {
				assert.EqualValues(t, 2, s.count(t, "acked"))
				assert.EqualValues(t, 0, s.count(t, "died"))
				fresh.finish(t)
				return
			}
			info := s.inspect("J")
			assert.Equal(t, [2]int{0, c.max}, [2]int{info.Failures, info.Expiries}, "failures and expiries of the dead job")
			assert.Equal(t, payload, info.Payload)
			require.NotEmpty(t, info.Errors)
			last := info.Errors[len(info.Errors)-1]
			assert.Contains(t, last.Reason, "lease expired")
			assert.Equal(t, c.max, last.Attempt)
			assert.EqualValues(t, 1, s.count(t, "acked"), "L alone")
		})
	}
}

// awaitEnd waits until a job is in the place where it ends.
func (s *crashSite) awaitEnd(t testing.TB, id string, place reliable.Place) {
	t.Helper()
	require.Eventually(t, func() bool { return s.inspect(id).Place == place }, time.Minute, 10*time.Millisecond, "%s in %q", id, place)
}
