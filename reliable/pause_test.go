package reliable_test

import (
	"context"
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

// callsOf is how many numbered calls the sessions of a queue have made.
func callsOf(t *testing.T, q *reliable.Queue) (n int) {
	t.Helper()
	part, err := keys.New(keys.DefaultPrefix, q.Name(), 0)
	require.NoError(t, err)
	for _, record := range redistest.Client(t).HVals(context.Background(), part.Key("sessions")).Val() {
		number, _, _ := strings.Cut(record, " ")
		one, err := strconv.Atoi(number)
		require.NoError(t, err)
		n += one
	}
	return n
}

func TestConsumersOfAPausedQueueStartNothingStayHealthyAndDoNotSpin(t *testing.T) {
	t.Parallel()
	q := newQueue(t, quick())
	ran, release := make(chan string, 10), make(chan struct{})
	c, _ := watched(t, q, reliable.HandlerFunc(func(ctx context.Context, job *reliable.Job) error {
		ran <- job.ID
		if job.ID == "running" {
			<-release
		}
		return nil
	}), &reliable.ConsumerOptions{Concurrency: 4})
	put(t, q, reliable.Item{Kind: "k", ID: "running"})
	require.Equal(t, "running", receive(t, ran))
	require.NoError(t, q.Pause(t.Context(), time.Time{}))
	put(t, q, jobs("k", 5)...)
	close(release)
	await(t, q, "what runs is settled", func(s reliable.Stats) bool { return s.Counters["acked"] == 1 && s.Paused })
	before := callsOf(t, q)
	<-time.After(3 * time.Second)
	assert.Less(t, callsOf(t, q)-before, 10, "one look a second")
	assert.Empty(t, ran)
	require.NoError(t, c.Health(t.Context()))
	batch, err := q.Claim(t.Context(), 1, nil)
	require.NoError(t, err)
	assert.Equal(t, []any{0, reliable.HeldPaused, time.Duration(0)}, []any{len(batch.Jobs), batch.Held, batch.NextDue})

	began := time.Now()
	was, err := q.Resume(t.Context())
	require.NoError(t, err)
	assert.True(t, was)
	for range 5 {
		receive(t, ran)
	}
	assert.Less(t, time.Since(began), 5*time.Second)
}

func TestAPausedQueueGoesOnByItselfWhenItsTimeIsOver(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	require.NoError(t, q.PauseFor(t.Context(), 1500*time.Millisecond))
	ran := make(chan time.Time, 1)
	runConsumer(t, q, reliable.HandlerFunc(func(context.Context, *reliable.Job) error {
		ran <- time.Now()
		return nil
	}), &reliable.ConsumerOptions{WakeFallback: 20 * time.Second})
	began := time.Now()
	put(t, q, job("k"))
	assert.Less(t, receive(t, ran).Sub(began), 10*time.Second, "not at the fallback only")
	await(t, q, "acked", func(s reliable.Stats) bool { return s.Counters["acked"] == 1 && !s.Paused })
}

func TestAClaimThatWaitsIsWokenUpByAResume(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	put(t, q, job("k"))
	require.NoError(t, q.PauseFor(t.Context(), time.Hour))
	assert.ErrorIs(t, q.Pause(t.Context(), time.Now().Add(-time.Hour)), reliable.ErrPast)
	claimed := make(chan *reliable.Batch, 1)
	go func() {
		batch, err := q.Claim(context.Background(), 1, &reliable.ClaimOptions{Wait: 20 * time.Second})
		assert.NoError(t, err)
		claimed <- batch
	}()
	await(t, q, "the claim is there", func(s reliable.Stats) bool { return s.Sessions > 1 })
	_, err := q.Resume(t.Context())
	require.NoError(t, err)
	batch := receive(t, claimed)
	require.Len(t, batch.Jobs, 1)
	require.NoError(t, batch.Jobs[0].Ack(t.Context()))
}
