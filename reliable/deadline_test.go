package reliable_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

// serverNow is Redis' clock.
func serverNow(t *testing.T) time.Time {
	now, err := redistest.Client(t).Time(t.Context()).Result()
	require.NoError(t, err)
	return now
}

func requireTooLate(t *testing.T, q *reliable.Queue, id string) {
	info, err := q.Get(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, reliable.Dead, info.Place)
	assert.Equal(t, reliable.TooLate, info.Class)
	last, ok := info.LastError()
	require.True(t, ok)
	assert.Equal(t, "too late", last.Reason)
	assert.Equal(t, last.Attempt, info.Failures+info.Expiries, "it counts nothing")
	assert.False(t, info.NotAfter.IsZero())
}

func TestAJobThatIsClaimedAfterItsDeadlineIsDeadAndNotRun(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	now := serverNow(t)
	put(
		t, q,
		reliable.Item{Kind: "k", ID: "late", NotAfter: now.Add(-time.Second)},
		reliable.Item{Kind: "k", ID: "in time", NotAfter: now.Add(time.Hour)},
		reliable.Item{Kind: "k", ID: "whenever"},
	)
	ran := make(chan *reliable.Job, 10)
	stop := runConsumer(t, q, reliable.HandlerFunc(func(_ context.Context, job *reliable.Job) error {
		ran <- job
		return nil
	}), nil)
	for _, id := range []string{"in time", "whenever"} {
		job := receive(t, ran)
		if job.ID == "in time" {
			assert.Equal(t, now.Add(time.Hour).UnixMilli(), job.NotAfter.UnixMilli())
		}
		assert.NotEqual(t, "late", job.ID, id)
	}
	await(t, q, "the late one is dead", func(s reliable.Stats) bool { return s.Dead == 1 && s.Processing == 0 && s.Due == 0 })
	requireTooLate(t, q, "late")
	require.NoError(t, stop())
	assert.Empty(t, ran)
}

func TestAJobThatIsTooLateIsToldByTheHookAndByTheLogAsOneThatDied(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	deadline := serverNow(t).Add(-time.Second).Truncate(time.Millisecond)
	put(t, q, reliable.Item{Kind: "k", ID: "late", Payload: []byte("p"), NotAfter: deadline})
	type told struct {
		reliable.Event
		job *reliable.Job
	}
	died := make(chan told, 10)
	stop := runConsumer(t, q, reliable.HandlerFunc(func(context.Context, *reliable.Job) error { return nil }), &reliable.ConsumerOptions{
		Hooks: &reliable.Hooks{OnDead: func(ctx context.Context, e reliable.Event) {
			job, _ := reliable.JobFrom(ctx)
			died <- told{e, job}
			assert.ErrorIs(t, job.Ack(ctx), reliable.ErrSettled)
			assert.ErrorIs(t, ctx.Err(), context.Canceled)
		}},
	})
	got := receive(t, died)
	assert.Equal(t, []any{q.Name(), "late", "k", 1, int64(0)}, []any{got.Queue, got.ID, got.Kind, got.Attempt, got.Fence})
	assert.ErrorContains(t, got.Err, "too late: not to be started after "+deadline.UTC().Format("2006-01-02T15:04:05.000Z")+", and claimed at ")
	assert.Equal(t, []any{"late", "p"}, []any{got.job.ID, string(got.job.Payload)})
	requireTooLate(t, q, "late")
	require.NoError(t, stop())
	assert.Empty(t, died, "once")
	stats, err := q.Stats(t.Context())
	require.NoError(t, err)
	delete(stats.Counters, "graces") // the first sweep
	assert.Equal(t, map[string]int64{"enqueued": 1, "too_late": 1, "died": 1}, stats.Counters, "neither claimed nor buried")
}

func TestADeadlineHoldsForRetriesAndForClaimsByHand(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	_, err := reliable.Enqueue(t.Context(), q, plain{}, &reliable.EnqueueOptions{ID: "x", NotAfter: serverNow(t).Add(time.Hour)})
	require.NoError(t, err)
	batch, err := q.Claim(t.Context(), 1, nil)
	require.NoError(t, err)
	require.Len(t, batch.Jobs, 1)
	require.NoError(t, batch.Jobs[0].Nack(t.Context(), reliable.RetryAfter(0, errors.New("failed"))))
	part, err := keys.New(keys.DefaultPrefix, q.Name(), 0)
	require.NoError(t, err)
	rdb := redistest.Client(t) // an hour later
	counts := strings.Fields(rdb.HGet(t.Context(), part.Key("counts"), "x").Val())
	require.Len(t, counts, 6)
	counts[5] = strconv.FormatInt(serverNow(t).Add(-time.Millisecond).UnixMilli(), 10)
	require.NoError(t, rdb.HSet(t.Context(), part.Key("counts"), "x", strings.Join(counts, " ")).Err())
	batch, err = q.Claim(t.Context(), 1, nil)
	require.NoError(t, err)
	require.Empty(t, batch.Jobs)
	requireTooLate(t, q, "x")

	redriven, err := q.Redrive(t.Context(), "x")
	require.NoError(t, err)
	require.Equal(t, []error{nil}, redriven)
	batch, err = q.Claim(t.Context(), 1, nil)
	require.NoError(t, err)
	assert.Empty(t, batch.Jobs, "a redrive keeps the deadline")
	made, err := reliable.Enqueue(t.Context(), q, plain{}, &reliable.EnqueueOptions{ID: "x", OnConflict: reliable.Replace})
	require.NoError(t, err)
	assert.True(t, made.Replaced)
	batch, err = q.Claim(t.Context(), 1, nil)
	require.NoError(t, err)
	require.Len(t, batch.Jobs, 1, "a new job has its own")
	require.NoError(t, batch.Jobs[0].Ack(t.Context()))
}

func TestDeadlinesThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	now := time.Now()
	for want, item := range map[string]reliable.Item{
		"before At":                         {Kind: "k", At: now.Add(time.Hour), NotAfter: now},
		"want a time from 1970 to 9999":     {Kind: "k", NotAfter: time.Unix(-1, 0)},
		"want Reject, Keep or Replace":      {Kind: "k", OnConflict: 3},
		"OnConflict is -1":                  {Kind: "k", OnConflict: -1},
		"NotAfter is 10000-01-01 00:00:00 ": {Kind: "k", NotAfter: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		_, err := q.Enqueue(t.Context(), item)
		assert.ErrorContains(t, err, want)
	}
}

type plain struct{}

func (plain) Kind() string { return "k" }
