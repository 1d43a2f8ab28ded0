package cases

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

func TestS54_EmptyPayloadsAreValidAndArriveWithLengthZero(t *testing.T) {
	t.Parallel()
	l := newLane(t, &reliable.QueueOptions{Lease: 50 * time.Millisecond})
	l.enqueue(
		reliable.Item{Kind: "case", ID: "nil", Payload: nil},
		reliable.Item{Kind: "case", ID: "no bytes", Payload: []byte{}},
		reliable.Item{Kind: "case", ID: "empty text", Payload: []byte("")},
		reliable.Item{Kind: "case", ID: "empty headers", Headers: map[string]string{}},
	)
	for id, job := range l.claimExactly(4) {
		require.Empty(t, job.Payload, id)
		require.Equal(t, "case", job.Kind, id)
	}
	l.sweepUntilMoved(4)
	var mu sync.Mutex
	lengths := map[string]int{}
	stop := l.consume(func(_ context.Context, job *reliable.Job) error {
		mu.Lock()
		defer mu.Unlock()
		lengths[job.ID] = len(job.Payload)
		return nil
	}, nil)
	require.Eventually(t, func() bool { return l.stats().Counters["acked"] == 4 }, 30*time.Second, 10*time.Millisecond)
	stop()
	require.Equal(t, map[string]int{"nil": 0, "no bytes": 0, "empty text": 0, "empty headers": 0}, lengths)
	l.balanced(4)
}

// dropRecord deletes a job's record by hand, cutRecord keeps only the first bytes of it.
func (l *lane) dropRecord(id string) {
	l.t.Helper()
	n, err := l.rdb.HDel(l.t.Context(), l.keys.Key("jobs"), id).Result()
	require.NoError(l.t, err)
	require.EqualValues(l.t, 1, n)
}

func (l *lane) cutRecord(id string, keep int) (kept string) {
	l.t.Helper()
	whole, err := l.rdb.HGet(l.t.Context(), l.keys.Key("jobs"), id).Result()
	require.NoError(l.t, err)
	require.Greater(l.t, len(whole), keep)
	require.NoError(l.t, l.rdb.HSet(l.t.Context(), l.keys.Key("jobs"), id, whole[:keep]).Err())
	return whole[:keep]
}

// Among a hundred claimed jobs one has lost its record, and others have had theirs cut off at every byte.
func TestS54_DeletedAndTruncatedRecordsAreSetAsideOnceAndHoldNobodyUp(t *testing.T) {
	t.Parallel()
	const normal = 100
	l := newLane(t, nil)
	var log lineLog
	sweeper, err := lease.NewSweeper(l.store, &lease.SweeperOptions{Batch: lease.MaxBatch, Logger: log.logger()})
	require.NoError(t, err)

	size := recordSize(t, l)
	items := append(numberedItems("normal-", normal/2), reliable.Item{Kind: "case", ID: "deleted", Payload: []byte("x")})
	for keep := range size {
		items = append(items, reliable.Item{Kind: "case", ID: fmt.Sprintf("cut-%d", keep), Payload: []byte("x")})
	}
	items = append(items, numberedItems("later-", normal/2)...)
	l.enqueue(items...)
	held := l.claimExactly(len(items))
	l.dropRecord("deleted")
	kept := map[string]string{}
	for keep := range size {
		id := fmt.Sprintf("cut-%d", keep)
		kept[id] = l.cutRecord(id, keep)
	}
	var ids []string
	for id := range held {
		ids = append(ids, id)
	}
	l.setScores(lease.Processing, fmt.Sprint(l.serverTime().UnixMilli()), ids...)

	got, err := sweeper.Sweep(t.Context(), lease.MaxBatch, true)
	require.NoError(t, err)
	require.Equal(t, normal+size, got.ToDue, "all hundred in this sweep; a sweep does not look into records")
	require.Equal(t, 1, got.Missing)
	require.Zero(t, got.ToDead)
	require.Equal(t, []string{"deleted"}, l.members(lease.Dead))
	require.Len(t, log.lines(), 1, log.String())
	require.Contains(t, log.String(), "record")
	for range 3 {
		again, err := sweeper.Sweep(t.Context(), 0, true)
		require.NoError(t, err)
		require.Zero(t, again.Moved())
	}
	require.Len(t, log.lines(), 1, "told again by a later sweep")

	jobs := l.claim(lease.MaxBatch)
	require.Len(t, jobs, normal, "what is undecodable is not handed out")
	for _, job := range jobs {
		require.Equal(t, job.ID, string(job.Payload))
		require.Equal(t, 2, job.Attempt)
		require.NoError(t, job.Ack(t.Context()))
	}
	l.requireNoRecord("deleted")
	l.requireNoRecord("cut-0") // no byte is no record
	for id, raw := range kept {
		if raw != "" {
			l.requireUndecodable(id, raw)
		}
	}
	require.EqualValues(t, 2, l.stats().Counters["missing"])
	require.EqualValues(t, normal+size, l.stats().Counters["expired"]-1, "all but those without a token")
	l.balanced(len(items))
}

// recordSize is how long a record with the payload "x" is.
func recordSize(t *testing.T, l *lane) int {
	l.enqueue(reliable.Item{Kind: "case", ID: "probe", Payload: []byte("x")})
	n, err := l.rdb.HStrLen(t.Context(), l.keys.Key("jobs"), "probe").Result()
	require.NoError(t, err)
	results, err := l.queue.Purge(t.Context(), reliable.Due, "probe")
	require.NoError(t, err)
	require.NoError(t, results[0])
	return int(n)
}

func (l *lane) requireNoRecord(id string) {
	l.t.Helper()
	info := l.inspect(id)
	require.Equal(l.t, reliable.Dead, info.Place, id)
	require.NotEmpty(l.t, info.Errors, id)
	require.Equal(l.t, "no record", info.Errors[len(info.Errors)-1].Reason, id)
	require.NoError(l.t, info.Undecoded)
}

func (l *lane) requireUndecodable(id, raw string) {
	l.t.Helper()
	info := l.inspect(id)
	require.Equal(l.t, reliable.Dead, info.Place, id)
	require.Error(l.t, info.Undecoded, id)
	require.Equal(l.t, raw, string(info.Payload), "the raw bytes of %s", id)
	require.NotEmpty(l.t, info.Errors, id)
	require.True(l.t, strings.HasPrefix(info.Errors[len(info.Errors)-1].Reason, "undecodable"), info.Errors)
}

// The sidecar and the consumers live through it, and no handler sees a job that has lost its bytes.
func TestS54_ConsumersAndSweepersLiveOnAndNoHandlerSeesABrokenJob(t *testing.T) {
	t.Parallel()
	const normal = 100
	l := newLane(t, &reliable.QueueOptions{Lease: 300 * time.Millisecond})
	l.enqueue(numberedItems("j", normal)...)
	l.enqueue(reliable.Item{Kind: "case", ID: "deleted"}, reliable.Item{Kind: "case", ID: "cut", Payload: []byte("cut me")})
	l.enqueue(reliable.Item{Kind: "case", ID: "deleted while due", Delay: 100 * time.Millisecond})
	l.claimExactly(normal + 2)
	l.dropRecord("deleted")
	l.dropRecord("deleted while due")
	raw := l.cutRecord("cut", 12)
	var log lineLog
	l.sweepOn(&lease.SweeperOptions{Logger: log.logger()})

	var mu sync.Mutex
	var wrong, dead []string
	stop := l.consume(func(_ context.Context, job *reliable.Job) error {
		if string(job.Payload) != job.ID {
			mu.Lock()
			defer mu.Unlock()
			wrong = append(wrong, job.ID)
		}
		return nil
	}, &reliable.ConsumerOptions{NoSweep: true, Hooks: &reliable.Hooks{OnDead: func(_ context.Context, e reliable.Event) {
		mu.Lock()
		defer mu.Unlock()
		dead = append(dead, e.ID)
	}}})
	require.Eventually(t, func() bool {
		s := l.stats()
		return s.Counters["acked"] == normal && s.Dead == 3
	}, 30*time.Second, 10*time.Millisecond)
	l.enqueue(numberedItems("after-", 10)...)
	require.Eventually(t, func() bool { return l.stats().Counters["acked"] == normal+10 }, 30*time.Second, 10*time.Millisecond)
	stop()
	require.Empty(t, wrong, "a handler was given a broken job")
	require.Equal(t, []string{"cut"}, dead, "told once")
	l.requireNoRecord("deleted")
	l.requireNoRecord("deleted while due")
	l.requireUndecodable("cut", raw)
	require.EqualValues(t, 2, l.stats().Counters["missing"])
	told := 0
	for _, line := range log.lines() {
		if strings.Contains(line, "record") {
			told++
		}
	}
	require.Equal(t, 1, told, log.String())
	l.balanced(normal + 13)
}

// A holder's own verdicts on a job whose record has gone from under it: none of them loses the job or fails, and whoever
// redrives it learns what is wrong.
func TestS54_TheHolderOfAJobWithoutARecordCanStillSettleIt(t *testing.T) {
	t.Parallel()
	l := newLane(t, &reliable.QueueOptions{MaxRetries: limitOf(0)})
	l.enqueue(numberedItems("j", 5)...)
	held := l.claimExactly(5)
	for id := range held {
		l.dropRecord(id)
	}
	ctx := t.Context()
	require.NoError(t, held["j0"].Ack(ctx))
	require.Equal(t, reliable.Nowhere, l.inspect("j0").Place)
	require.NoError(t, held["j1"].Release(ctx))
	require.Empty(t, l.claim(10), "a job without a record is not handed out")
	require.NoError(t, held["j2"].Nack(ctx, errors.New("failed")))
	require.Equal(t, reliable.Dead, l.inspect("j2").Place)
	require.NoError(t, held["j3"].Bury(ctx, errors.New("no use")))
	require.Equal(t, reliable.Dead, l.inspect("j3").Place)
	removed, err := l.queue.Cancel(ctx, "j4")
	require.NoError(t, err)
	require.True(t, removed[0].Cancelling)
	require.NoError(t, held["j4"].Release(ctx))
	require.Equal(t, reliable.Nowhere, l.inspect("j4").Place)

	results, err := l.queue.Redrive(ctx, "j2", "j3")
	require.NoError(t, err)
	require.NoError(t, errors.Join(results...))
	require.Empty(t, l.claim(10), "a job without a record is not handed out")
	for _, id := range []string{"j1", "j2", "j3"} {
		l.requireNoRecord(id)
	}
	require.EqualValues(t, 3, l.stats().Counters["missing"])
}
