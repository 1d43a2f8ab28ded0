package chaos

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

func TestASnapshotHoldsWhatTheQueueHolds(t *testing.T) {
	t.Parallel()
	rdb, name := redistest.Client(t), redistest.Queue(t)
	q, err := reliable.New(rdb, name, &reliable.QueueOptions{Lease: time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, q.Close(context.Background())) })
	empty, err := TakeSnapshot(t.Context(), rdb, "", name)
	require.NoError(t, err)
	require.Empty(t, empty.Due)
	require.Zero(t, empty.Fence)

	items := []reliable.Item{{ID: "held", Kind: "k"}, {ID: "dead", Kind: "k"}, {ID: "failed", Kind: "k"}}
	for i := range 2500 { // more than a page
		items = append(items, reliable.Item{ID: fmt.Sprintf("later-%d", i), Kind: "k", Delay: time.Hour})
	}
	_, err = q.EnqueueMany(t.Context(), items)
	require.NoError(t, err)
	batch, err := q.Claim(t.Context(), 3, nil)
	require.NoError(t, err)
	require.Len(t, batch.Jobs, 3)
	var fence int64
	for _, job := range batch.Jobs {
		switch job.ID {
		case "held":
			fence = job.Fence()
		case "dead":
			require.NoError(t, job.Bury(t.Context(), context.Canceled))
		case "failed":
			require.NoError(t, job.Nack(t.Context(), reliable.RetryAfter(time.Hour, nil)))
		}
	}
	s, err := TakeSnapshot(t.Context(), rdb, "", name)
	require.NoError(t, err)
	require.Equal(t, name, s.Queue)
	require.Len(t, s.Due, 2501)
	require.Len(t, s.Records, 2503)
	require.Contains(t, s.Dead, "dead")
	require.Empty(t, s.Done)
	require.Equal(t, map[string]string{"dead": "1 0 0", "failed": "1 0 0"}, firstThree(s.Counts))
	require.Len(t, s.Leases, 1)
	got, ok := fenceOf(s.Leases["held"])
	require.True(t, ok)
	require.Equal(t, fence, got)
	require.GreaterOrEqual(t, s.Fence, fence)
	require.EqualValues(t, 3, s.Stats["claimed"])
	require.InDelta(t, s.At/1000+60_000, s.Processing["held"], 60_000)

	r := mustCheck(t, History{}, s, nil) // nobody wrote a history
	require.EqualValues(t, 2503, r.Totals.Unexpected)
	require.Zero(t, r.Check(CheckPlaces).Violations)
	require.Zero(t, r.Check(CheckLeases).Violations)
}

func firstThree(counts map[string]string) map[string]string {
	out := map[string]string{}
	for id, text := range counts {
		out[id] = strings.Join(strings.Fields(text)[:3], " ")
	}
	return out
}
