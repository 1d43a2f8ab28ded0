package cases

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/reliable"
)

// A server without persistence forgets everything when it ends: jobs, sessions, the queue's name and its limits. Its
// jobs are gone for good, but nobody is stuck over it: handlers learn that their leases are lost, and workers, sidecar
// and producer go on with new jobs, without a restart of their own.
func TestS06_WorkersGoOnWithAServerThatHasForgottenEverything(t *testing.T) {
	t.Parallel()
	downtime := shape(500*time.Millisecond, 2*time.Second)
	s := newRestartSite(t, downtime, nil)
	s.enqueue(append(numberedItems("held", 5), numberedItems("stubborn", 5)...)...)
	require.Eventually(t, func() bool { return len(marksOf(readMarks(t, s.Marks), "start")) == 10 }, time.Minute, 5*time.Millisecond)

	require.NoError(t, s.server.Kill())
	<-time.After(downtime)
	require.NoError(t, s.server.Restart(t.Context()))
	require.Eventually(t, func() bool { // all that were held have learned it, and their slots are free
		return len(marksOf(readMarks(t, s.Marks), "ended")) == 5
	}, time.Minute, 5*time.Millisecond)
	for i, item := range numberedItems("again", 50) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := s.queue.Enqueue(ctx, item)
		cancel()
		require.NoError(t, err, "enqueue %d in a session that the server has forgotten", i)
	}
	require.Eventually(t, func() bool { return s.stats().Counters["acked"] == 50 }, time.Minute, 10*time.Millisecond)
	s.endAll(t)

	done, starts := map[string]int{}, map[string]int{}
	for _, m := range readMarks(t, s.Marks) {
		switch m.What {
		case "done":
			done[m.ID]++
		case "start":
			starts[m.ID]++
		case "ended":
			assert.Equal(t, reliable.ErrLost.Error(), m.Note, "the cause of %s", m.ID)
		}
	}
	assert.Len(t, done, 50, "acks of what the server had forgotten are refused")
	for id, n := range starts {
		assert.Equal(t, 1, n, "starts of %s", id)
	}
	stats := s.stats()
	assert.Zero(t, stats.Due+stats.Processing+stats.Dead+stats.Records, "nothing comes back, and nothing else is made")
	assert.Zero(t, stats.Counters["nacked"]+stats.Counters["expired"])
}
