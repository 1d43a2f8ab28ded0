package cases

import (
	"context"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

// A redrive of a job without a record brings back the stand-in, which has neither kind nor payload.
func TestS54_ARedrivenJobWithoutARecordIsNotGivenToAHandler(t *testing.T) {
	t.Parallel()
	l := newLane(t, nil)
	l.enqueue(numberedItems("j", 1)...)
	l.dropRecord("j0")
	require.Empty(t, l.claim(1))
	l.requireNoRecord("j0")
	results, err := l.queue.Redrive(t.Context(), "j0")
	require.NoError(t, err)
	require.NoError(t, results[0])
	require.Empty(t, l.claim(1), "a job without kind and payload was handed out")
	l.requireNoRecord("j0")
}

// CheckQueue, at the test's end, finds a dead member without a record.
func TestS54_AJobThatIsBuriedWithoutARecordGetsTheStandIn(t *testing.T) {
	t.Parallel()
	l := newLane(t, nil)
	l.enqueue(numberedItems("j", 1)...)
	job := l.claimExactly(1)["j0"]
	l.dropRecord("j0")
	require.NoError(t, job.Bury(t.Context(), context.Canceled))
	require.Equal(t, lease.Dead, l.inspect("j0").Place)
}

func TestS57_AListDoesNotPullPayloadsAndInspectPullsThemInPieces(t *testing.T) {
	t.Parallel()
	l := newLane(t, nil)
	var ids []string
	for i := range 10 {
		l.enqueue(reliable.Item{Kind: "case", ID: strconv.Itoa(i), Payload: make([]byte, sizeLimit), Headers: map[string]string{"n": strconv.Itoa(i)}})
		ids = append(ids, strconv.Itoa(i))
	}
	l.enqueue(reliable.Item{Kind: "small", ID: "small", Payload: []byte("abc")})
	rdb, read := countingReads(t)
	watched := laneOn(t, l.name, rdb, nil)
	before := read.Load()
	page, err := watched.queue.List(t.Context(), reliable.Due, 1000, nil)
	require.NoError(t, err)
	infos := page.Jobs
	require.Len(t, infos, 11)
	for _, info := range infos {
		require.NoError(t, info.Undecoded)
		require.Nil(t, info.Payload)
		if info.ID == "small" {
			require.Equal(t, 3, info.PayloadSize)
			continue
		}
		require.Equal(t, sizeLimit, info.PayloadSize)
		require.Equal(t, "case", info.Kind)
		require.Equal(t, info.ID, info.Headers["n"])
	}
	require.Less(t, read.Load()-before, int64(200_000), "bytes read")

	infos, err = watched.queue.Inspect(t.Context(), ids...)
	require.NoError(t, err)
	require.Len(t, infos, 10)
	for i, info := range infos {
		require.Equal(t, ids[i], info.ID)
		require.Len(t, info.Payload, sizeLimit)
	}
}
