//go:build unix

package cases

import (
	"context"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/reliable"
)

// The payload of a job says how many of its starts end their process by SIGKILL inside the effect, before it happened. A
// job that was redriven ends none.
var _ = crashHandler("s73", func(w *crashWorker) reliable.Handler {
	return reliable.HandlerFunc(func(ctx context.Context, job *reliable.Job) error {
		w.mark("start", job, "")
		kills, err := strconv.Atoi(string(job.Payload))
		if err != nil {
			return err
		}
		return job.Once(ctx, theEffect, func(ctx context.Context) error {
			if job.Redrives == 0 && job.Attempt <= kills {
				w.mark("killed", job, "")
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
			w.mark("effect", job, "")
			_, err := w.effect(ctx, job)
			return err
		})
	})
})

// newS73 has the job J killed inside its effect so often; MAX = 2.
func newS73(t *testing.T, kills int) *crashSite {
	t.Helper()
	s := newCrashSite(t, crashConfig{
		Handler: "s73", Lease: shape(time.Second, 2*time.Second), MaxRetries: 1, MaxExpiries: 1,
	})
	s.sidecar(t)
	s.enqueue(reliable.Item{ID: "J", Kind: "s73", Payload: []byte(strconv.Itoa(kills))})
	for range kills {
		p := s.worker(t, nil)
		require.Equal(t, -1, p.Wait(), "the worker was to be killed")
		require.Equal(t, syscall.SIGKILL, p.killedBy())
	}
	require.Len(t, marksOf(readMarks(t, s.Marks), "killed"), kills)
	require.Empty(t, s.effects(t))
	return s
}

// awaitPlace waits until the job is in a place.
func (l *lane) awaitPlace(id string, place reliable.Place) {
	l.t.Helper()
	require.Eventually(l.t, func() bool { return l.inspect(id).Place == place }, time.Minute, 5*time.Millisecond, "%s is not in %s", id, place)
}

// What a killed worker left is no answer to the next one: that runs the effect, and acks.
func TestS73_TheRedeliveryOfAKilledWorkersJobRunsItsEffect(t *testing.T) {
	t.Parallel()
	s := newS73(t, 1)
	next := s.worker(t, nil)
	s.awaitCount(t, "acked", 1)
	next.finish(t)
	assert.Equal(t, map[string]string{"J": "1"}, s.effects(t))
	assert.Len(t, marksOf(readMarks(t, s.Marks), "start"), 2)
	assert.Equal(t, []string{"J:" + theEffect}, idsOf(marksOf(readMarks(t, s.Marks), "doubt")))
	assert.EqualValues(t, 1, s.count(t, "expired"))
	assert.Zero(t, s.count(t, "died"))
}

// After the second kill the job is dead, its effect in doubt. A redrive has it run.
func TestS73_TheEffectOfADeadJobRunsAfterARedrive(t *testing.T) {
	t.Parallel()
	s := newS73(t, 2)
	s.awaitPlace("J", reliable.Dead)
	assert.Regexp(t, `^s `, s.onceRecord("J")["e:"+theEffect], "the effect was begun, and is not done")
	redriven, err := s.queue.Redrive(t.Context(), "J")
	require.NoError(t, err)
	require.NoError(t, redriven[0])
	next := s.worker(t, nil)
	s.awaitCount(t, "acked", 1)
	next.finish(t)
	assert.Equal(t, map[string]string{"J": "1"}, s.effects(t))
	assert.Len(t, marksOf(readMarks(t, s.Marks), "start"), 3)
	assert.EqualValues(t, 1, s.count(t, "died"))
}

// A job that was removed leaves no record, and a new one of its ID runs its effect at once, instead of after the day
// for which the record would have lived. The record stays where many are purged at a time, without their IDs, and where
// the job was cancelled under a worker that was killed, so that the lease ran out; it is no hindrance then.
func TestS73_ANewJobOfARemovedJobsIDRunsItsEffectAtOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kills  int
		place  reliable.Place // where the job is then
		remove func(ctx context.Context, q *reliable.Queue) error
		stays  bool
	}{
		"dead, purged":     {2, reliable.Dead, purgedFrom(reliable.Dead), false},
		"due, purged":      {1, reliable.Due, purgedFrom(reliable.Due), false},
		"dead, cancelled":  {2, reliable.Dead, cancelled, false},
		"due, cancelled":   {1, reliable.Due, cancelled, false},
		"held, cancelled":  {1, reliable.Processing, cancelled, true},
		"dead, all purged": {2, reliable.Dead, allPurged, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newS73(t, c.kills)
			s.awaitPlace("J", c.place)
			require.NotEmpty(t, s.onceRecord("J"))
			require.NoError(t, c.remove(t.Context(), s.queue))
			s.awaitPlace("J", reliable.Nowhere)
			keys, err := s.rdb.Keys(t.Context(), s.keys.Once("*")).Result()
			require.NoError(t, err)
			if c.stays {
				assert.Equal(t, []string{s.keys.Once("J")}, keys)
			} else {
				assert.Empty(t, keys, "records that are left")
			}
			s.newJobRunsAtOnce(t, c.kills-1)
		})
	}
}

// newJobRunsAtOnce enqueues the ID again, and requires that the effect runs as one that was never begun: there are not
// more doubts than before.
func (s *crashSite) newJobRunsAtOnce(t *testing.T, doubts int) {
	t.Helper()
	const poll = 125 * time.Millisecond
	next := s.worker(t, func(c *crashConfig) { c.Fallback, c.Holder = poll, "the next" })
	s.awaitHolder(t, "the next")
	asked := s.serverTime()
	s.enqueue(reliable.Item{ID: "J", Kind: "s73", Payload: []byte("0")})
	effect := s.awaitMarks(t, "effect", 1)[0]
	late := time.UnixMicro(effect.Clock).Sub(asked)
	assert.LessOrEqual(t, late, 2*poll, "from the enqueue to the effect")
	s.awaitCount(t, "acked", 1)
	next.finish(t)
	assert.Equal(t, map[string]string{"J": "1"}, s.effects(t))
	assert.Len(t, marksOf(readMarks(t, s.Marks), "doubt"), doubts)
	t.Logf("the effect %v after the enqueue", late)
}

func allPurged(ctx context.Context, q *reliable.Queue) error {
	_, err := q.PurgeNext(ctx, reliable.Dead, &reliable.Cursor{}, 1000)
	return err
}

func cancelled(ctx context.Context, q *reliable.Queue) error {
	_, err := q.Cancel(ctx, "J")
	return err
}

// purgedFrom purges the job by its ID.
func purgedFrom(place reliable.Place) func(ctx context.Context, q *reliable.Queue) error {
	return func(ctx context.Context, q *reliable.Queue) error {
		results, err := q.Purge(ctx, place, "J")
		if err != nil {
			return err
		}
		return results[0]
	}
}
