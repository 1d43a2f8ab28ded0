package reliable_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

// started says which consumer has started which job, and when.
type started struct {
	consumer int
	id       string
	at       time.Time
}

// pair runs two consumers with one slot each, which look by themselves only after ten seconds. Handlers of the job
// "busy" last until release is closed.
func pair(t *testing.T) (q *reliable.Queue, starts chan started, release chan struct{}, stops [2]func() error) {
	t.Helper()
	q = newQueue(t, nil)
	starts, release = make(chan started, 10), make(chan struct{})
	for i := range stops {
		handler := reliable.HandlerFunc(func(ctx context.Context, job *reliable.Job) error {
			starts <- started{i, job.ID, time.Now()}
			if job.ID == "busy" {
				<-release
			}
			return nil
		})
		_, stops[i] = watched(t, q, handler, &reliable.ConsumerOptions{Concurrency: 1, WakeFallback: 10 * time.Second, NoSweep: true})
	}
	return q, starts, release, stops
}

func TestAJobThatFallsDueWhileItsTimerIsWithABusyConsumerStartsElsewhere(t *testing.T) {
	t.Parallel()
	q, starts, release, _ := pair(t)
	began := time.Now()
	put(t, q, reliable.Item{Kind: "k", ID: "busy"}, reliable.Item{Kind: "k", ID: "later", Delay: 300 * time.Millisecond})
	first, second := receive(t, starts), receive(t, starts)
	assert.Equal(t, "busy", first.id)
	assert.Equal(t, "later", second.id)
	assert.NotEqual(t, first.consumer, second.consumer)
	assert.Less(t, second.at.Sub(began), 8*time.Second, "not at the fallback only")
	close(release)
}

func TestAConsumerThatStopsPassesOnTheDueTimeThatItWaitsFor(t *testing.T) {
	t.Parallel()
	q, starts, _, stops := pair(t)
	began := time.Now()
	put(t, q, reliable.Item{Kind: "k", ID: "now"}, reliable.Item{Kind: "k", ID: "later", Delay: 2 * time.Second})
	first := receive(t, starts)
	await(t, q, "acked", func(s reliable.Stats) bool { return s.Processing == 0 && s.Counters["acked"] == 1 })
	require.NoError(t, stops[first.consumer]())
	second := receive(t, starts)
	assert.Equal(t, "later", second.id)
	assert.NotEqual(t, first.consumer, second.consumer)
	assert.Less(t, second.at.Sub(began), 8*time.Second, "not at the fallback only")
}

func TestAClaimByHandThatKnowsOfASoonDueTimeTellsOthers(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	part, err := keys.New(keys.DefaultPrefix, q.Name(), 0)
	require.NoError(t, err)
	rdb := redistest.Client(t)
	woken := func() bool { return rdb.LLen(t.Context(), part.Key("wake")).Val() == 1 }
	claimed := make(chan *reliable.Batch, 1)
	go func() {
		batch, err := q.Claim(context.Background(), 1, &reliable.ClaimOptions{Wait: 20 * time.Second})
		assert.NoError(t, err)
		claimed <- batch
	}()
	put(t, q, reliable.Item{Kind: "k", ID: "now"}, reliable.Item{Kind: "k", ID: "later", Delay: 900 * time.Millisecond})
	batch := receive(t, claimed)
	require.Len(t, batch.Jobs, 1)
	require.NoError(t, batch.Jobs[0].Ack(t.Context()))
	require.Eventually(t, woken, 20*time.Second, time.Millisecond, "it does not wait for the second job any more")
	require.NoError(t, rdb.Del(t.Context(), part.Key("wake")).Err())

	batch, err = q.Claim(t.Context(), 1, &reliable.ClaimOptions{Wait: 10 * time.Millisecond})
	require.NoError(t, err)
	if len(batch.Jobs) == 1 { // a busy machine: it was due already
		require.NoError(t, batch.Jobs[0].Ack(t.Context()))
		return
	}
	require.Eventually(t, woken, 20*time.Second, time.Millisecond, "nor one whose time to wait is over")
}
