//go:build unix

package cases

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const deploys = 10

// One job takes much longer than what is left of its worker whenever it is started: ten times the worker is asked to
// stop, and a new one is beside it already. The job goes back each time, and is claimable then and there, though its
// lease would last for 15 s. It is not charged for any of that: the last start is its first attempt.
func TestS29_TenDeploysCostAJobThatOutlivesThemAllNoAttempt(t *testing.T) {
	t.Parallel()
	for name, obey := range map[string]bool{"a handler that heeds its context": true, "a handler that does not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newDeploySite(t, deployConfig{
				crashConfig: crashConfig{Lease: 15 * time.Second, MaxRetries: 2, MaxExpiries: 2, Concurrency: 1, Fallback: time.Second},
				Drain:       shape(100*time.Millisecond, time.Second),
			})
			every := shape(200*time.Millisecond, 5*time.Second)
			old := s.deployWorker(t, "worker-0", nil)
			// The job takes four times as long as a worker lives, as in the case: 20 s and 5 s. Small, twelve times: a process takes its
			// time to start on a busy machine.
			s.enqueue(deployJob{Work: time.Duration(shape(12, 4)) * (every + s.Drain), Obey: obey}.item("J"))
			for i := range deploys {
				start := s.awaitMarks(t, "start", i+1)[i]
				require.Equal(t, old.Process.Pid, start.PID, "who started the job for the %d. time", i+1)
				until := time.After(every)
				next := s.deployWorker(t, fmt.Sprintf("worker-%d", i+1), nil)
				<-until
				s.askToStop(t, old)
				require.Equal(t, 0, old.Wait(), "exit code of deploy %d", i+1)
				old = next
			}
			s.awaitCount(t, "acked", 1)
			old.finish(t)

			marks := readMarks(t, s.Marks)
			starts, released := marksOf(marks, "start"), marksOf(marks, "released")
			require.Len(t, starts, deploys+1)
			require.Len(t, released, deploys)
			for i, start := range starts {
				assert.Equal(t, 1, start.Attempt, "attempt of start %d", i+1)
				if i > 0 {
					// The poll interval is the time after which an idle consumer looks by itself; the lease is 15 times as long.
					waited := time.UnixMicro(start.Clock).Sub(time.UnixMicro(released[i-1].Clock))
					assert.LessOrEqual(t, waited, s.Fallback, "from the release to start %d", i+1)
				}
			}
			assert.Len(t, marksOf(marks, "done"), 1)
			s.checkNothingCharged(t, 1, deploys)
		})
	}
}

// A fleet is deployed ten times, each time one process after the other, with its successor beside it, under jobs of
// which many take longer than a worker drains. However often a job is started, each start is its first attempt.
func TestS29_TenRollingDeploysOfAFleetCostNoJobAnAttempt(t *testing.T) {
	t.Parallel()
	jobs, processes := shape(60, 300), shape(2, 4)
	s := newDeploySite(t, deployConfig{
		crashConfig: crashConfig{Lease: 15 * time.Second, MaxRetries: 0, MaxExpiries: 0, Concurrency: 4, Fallback: 250 * time.Millisecond},
		Drain:       shape(100*time.Millisecond, time.Second),
	})
	fleet := make([]*process, processes)
	for i := range fleet {
		fleet[i] = s.deployWorker(t, fmt.Sprintf("deploy-0-%d", i), nil)
	}
	for i := range jobs {
		j := deployJob{Work: 10 * time.Millisecond, Obey: i%2 == 0}
		if i%5 == 0 {
			j.Work = 3 * s.Drain // if the worker is asked to stop early enough, it is released, else it is acked
		}
		s.enqueue(j.item(fmt.Sprintf("J%03d", i)))
	}
	// Two jobs never end but by a stop, until the deploys are over: in every deploy some process has to release one.
	s.enqueue(deployJob{Work: time.Hour, Obey: true}.item("long-0"), deployJob{Work: time.Hour, Obey: !full()}.item("long-1"))
	jobs += 2
	for deploy := range deploys {
		for i, old := range fleet {
			last := func(c *deployConfig) { c.Quick = deploy == deploys-1 }
			fleet[i] = s.deployWorker(t, fmt.Sprintf("deploy-%d-%d", deploy+1, i), last)
			s.askToStop(t, old)
			require.Equal(t, 0, old.Wait(), "exit code of process %d in deploy %d", i, deploy+1)
		}
	}
	s.awaitCount(t, "acked", int64(jobs))
	for _, p := range fleet {
		p.finish(t)
	}

	marks := readMarks(t, s.Marks)
	for _, start := range marksOf(marks, "start") {
		assert.Equal(t, 1, start.Attempt, "attempt of a start of %s", start.ID)
	}
	released := marksOf(marks, "released")
	assert.GreaterOrEqual(t, len(released), deploys, "a deploy in which nothing was released shows nothing")
	assert.Len(t, marksOf(marks, "done"), jobs)
	s.checkNothingCharged(t, int64(jobs), int64(len(released)))
	t.Logf("%d starts of %d jobs, %d released", len(marksOf(marks, "start")), jobs, len(released))
}

// checkNothingCharged requires that all jobs were acked, so often released, and not even once failed or expired.
func (s *deploySite) checkNothingCharged(t *testing.T, acked, released int64) {
	t.Helper()
	assert.Equal(t, acked, s.count(t, "acked"))
	assert.Equal(t, released, s.count(t, "released"))
	assert.Equal(t, acked+released, s.count(t, "claimed"))
	for _, counter := range []string{"nacked", "buried", "expired", "died"} {
		assert.Zero(t, s.count(t, counter), counter)
	}
	counts, err := s.rdb.Exists(t.Context(), s.keys.Key("counts"), s.keys.Key("jobs")).Result()
	require.NoError(t, err)
	assert.Zero(t, counts, "something is left")
}
