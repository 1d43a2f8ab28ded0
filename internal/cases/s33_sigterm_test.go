//go:build unix

package cases

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
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

const (
	inFlight  = 8
	dueBeside = 50
)

// newSigtermSite has a worker with eight jobs in flight, of which four take longer than it may drain (two of them heed
// their contexts), and 50 more that are due.
func newSigtermSite(t *testing.T, length, drain, short time.Duration) (*deploySite, *process) {
	t.Helper()
	s := newDeploySite(t, deployConfig{
		crashConfig: crashConfig{Lease: length, MaxRetries: 2, MaxExpiries: 2, Concurrency: inFlight, Fallback: time.Second},
		Drain:       drain,
	})
	p := s.deployWorker(t, "the first", nil)
	// They come together, so that the claim that fills all slots is told that more is due. Within one millisecond the
	// order is that of the IDs.
	var items []reliable.Item
	for i := range inFlight / 2 {
		items = append(items,
			deployJob{Work: short, After: true}.item(fmt.Sprintf("a-short-%d", i)),
			deployJob{Work: time.Minute, After: true, Obey: i%2 == 0}.item(fmt.Sprintf("b-long-%d", i)))
	}
	for i := range dueBeside {
		items = append(items, deployJob{}.item(fmt.Sprintf("c-due-%02d", i)))
	}
	s.enqueue(items...)
	s.awaitMarks(t, "start", inFlight)
	return s, p
}

// SIGTERM comes while eight jobs are in flight. Nothing more is claimed, what ends in time is acked, and what does not
// is released. The process says so, and ends; a new worker finishes everything, and no job is charged for any of it.
func TestS33_SIGTERMAcksWhatEndsInTimeAndReleasesTheRest(t *testing.T) {
	t.Parallel()
	grace, short := shape(1500*time.Millisecond, 3*time.Second), shape(500*time.Millisecond, time.Second)
	s, p := newSigtermSite(t, 15*time.Second, grace, short)
	begun := time.Now()
	asked := s.askToStop(t, p)
	said := p.awaitLine(t, "msg=stopped ")
	require.Equal(t, 0, p.Wait(), "exit code")
	took := time.Since(begun)

	marks := readMarks(t, s.Marks)
	assert.Len(t, marksOf(marks, "start"), inFlight, "a job was started after SIGTERM")
	assert.EqualValues(t, inFlight, s.count(t, "claimed"), "a job was claimed after SIGTERM")
	done := marksOf(marks, "done")
	assert.Len(t, done, inFlight/2)
	for _, one := range done {
		assert.True(t, strings.HasPrefix(one.ID, "a-short-"), "%s was acked", one.ID)
		assert.LessOrEqual(t, time.UnixMicro(one.Clock).Sub(asked), grace, "ack of %s after SIGTERM", one.ID)
	}
	assert.Contains(t, said+" ", " released=4 ")
	assert.Contains(t, said+" ", " acked=4 ")
	returned := marksOf(marks, "returned")
	require.Len(t, returned, 1)
	// Half a second is for handlers that do not heed their contexts. At small numbers other tests keep the machine busy.
	bound := grace + shape(3*time.Second, time.Second)
	assert.LessOrEqual(t, time.UnixMicro(returned[0].Clock).Sub(asked), bound, "Run's end after SIGTERM")
	assert.LessOrEqual(t, took, bound, "the end of the process after SIGTERM")
	overdue := marksOf(marks, "overdue")
	assert.Equal(t, strconv.Itoa(len(overdue)), returned[0].Note, "handlers that ran when Run returned, and were abandoned")
	for _, one := range overdue {
		assert.Contains(t, []string{"b-long-1", "b-long-3"}, one.ID, "abandoned")
	}
	assert.Len(t, overdue, 2, "abandoned")

	for i := range inFlight / 2 {
		info := s.inspect(fmt.Sprintf("b-long-%d", i))
		assert.Equal(t, reliable.Due, info.Place, info.ID)
		assert.Zero(t, info.Failures+info.Expiries, "what the stop has cost %s", info.ID)
	}
	assert.Empty(t, s.members(lease.Processing))
	assert.Len(t, s.members(lease.Due), dueBeside+4)

	next := s.deployWorker(t, "the next", func(c *deployConfig) { c.Quick = true })
	s.awaitCount(t, "acked", inFlight+dueBeside)
	next.finish(t)
	for _, start := range marksOf(readMarks(t, s.Marks), "start") {
		assert.Equal(t, 1, start.Attempt, "attempt of %s", start.ID)
	}
	s.checkNothingCharged(t, inFlight+dueBeside, 4)
	t.Logf("the process ended after %v and said: %s", took, said)
}

// The second SIGTERM does not wait for anything. What was in flight is then as after any crash: its leases run out, and
// each of these jobs is charged the one expiry.
func TestS33_ASecondSIGTERMEndsTheProcessAtOnceAndHarmsNothing(t *testing.T) {
	t.Parallel()
	length := shape(1500*time.Millisecond, 2*time.Second)
	s, p := newSigtermSite(t, length, time.Minute, time.Minute)
	s.askToStop(t, p)
	p.awaitLine(t, "stopping")
	again := time.Now()
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.Equal(t, secondSignal, p.Wait(), "exit code after the second signal")
	assert.LessOrEqual(t, time.Since(again), shape(5*time.Second, time.Second), "the handlers had a minute left")

	held, err := s.takeBalance(t.Context())
	require.NoError(t, err)
	require.NoError(t, held.check(inFlight+dueBeside), "the books after the second signal")
	assert.Len(t, held.processing, inFlight)
	assert.Len(t, held.due, dueBeside)

	next := s.deployWorker(t, "the next", func(c *deployConfig) { c.Quick = true })
	s.awaitCount(t, "acked", inFlight+dueBeside)
	next.finish(t)
	attempts := map[string][]int{}
	for _, start := range marksOf(readMarks(t, s.Marks), "start") {
		attempts[start.ID] = append(attempts[start.ID], start.Attempt)
	}
	assert.Len(t, attempts, inFlight+dueBeside)
	for id, seen := range attempts {
		want := []int{1, 2}
		if strings.HasPrefix(id, "c-due-") {
			want = []int{1}
		}
		assert.Equal(t, want, seen, "starts of %s", id)
	}
	assert.EqualValues(t, inFlight, s.count(t, "expired"))
	assert.Zero(t, s.count(t, "nacked")+s.count(t, "died")+s.count(t, "refused"))
}

// Run returns although handlers do not heed their contexts. Whatever those try to do with their jobs later, alone or
// when somebody else has them, is refused and changes nothing.
func TestS33_AHandlerThatAStopHasAbandonedCannotSettleLater(t *testing.T) {
	t.Parallel()
	l := newLane(t, nil)
	l.enqueue(numberedItems("j", 2)...)
	started, goOn := make(chan string, 2), map[string]chan struct{}{"j0": make(chan struct{}), "j1": make(chan struct{})}
	late := make(chan error, 2)
	var returned sync.WaitGroup
	returned.Add(2)
	stop := l.consume(func(_ context.Context, job *reliable.Job) error {
		defer returned.Done()
		started <- job.ID
		<-goOn[job.ID]
		late <- job.Ack(context.Background())
		return nil
	}, &reliable.ConsumerOptions{Concurrency: 2, DrainTimeout: 50 * time.Millisecond})
	<-started
	<-started
	tokens, err := l.rdb.HGetAll(t.Context(), l.keys.Key("leases")).Result()
	require.NoError(t, err)
	require.Len(t, tokens, 2)
	stop()
	require.ElementsMatch(t, []string{"j0", "j1"}, l.members(lease.Due))

	// Nobody has it.
	refusalsChange := []string{"stats", "sessions", "holders", "fence", "wake"} // fence: by the session of the refused call
	before := redistest.Dump(t, l.rdb, keys.DefaultPrefix, l.name, refusalsChange...)
	close(goOn["j0"])
	require.Error(t, <-late, "an ack by hand after the stop")
	l.refuse("j0", tokens["j0"])
	require.Equal(t, before, redistest.Dump(t, l.rdb, keys.DefaultPrefix, l.name, refusalsChange...))

	// Somebody else has it.
	job := l.claimExactly(2)["j1"]
	before = redistest.Dump(t, l.rdb, keys.DefaultPrefix, l.name, refusalsChange...)
	close(goOn["j1"])
	require.Error(t, <-late, "an ack by hand after the stop, of what somebody else holds")
	l.refuse("j1", tokens["j1"])
	returned.Wait()
	require.Equal(t, before, redistest.Dump(t, l.rdb, keys.DefaultPrefix, l.name, refusalsChange...))
	require.NoError(t, job.Ack(t.Context()))
	require.EqualValues(t, 1, l.stats().Counters["acked"])
}

// refuse settles a job in all ways with a token that must not be worth anything.
func (l *lane) refuse(id, token string) {
	l.t.Helper()
	require.NotEmpty(l.t, token)
	for _, op := range []lease.Op{lease.Ack, lease.Nack, lease.Release, lease.Bury} {
		got, err := l.store.Settle(l.t.Context(), []lease.Verdict{{Op: op, ID: id, Token: token}})
		require.NoError(l.t, err)
		require.ErrorIs(l.t, got[0].Err, lease.ErrLost, "%v", op)
	}
}
