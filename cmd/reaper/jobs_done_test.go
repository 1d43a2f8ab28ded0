package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/reliable"
)

// finish has jobs be done, with these results.
func (s *site) finish(t *testing.T, results map[string]string) {
	t.Helper()
	for id, result := range results {
		s.put(t, job(id))
		batch, err := s.q.Claim(t.Context(), 1, nil)
		require.NoError(t, err)
		require.Len(t, batch.Jobs, 1)
		require.NoError(t, batch.Jobs[0].SetResult([]byte(result)))
		require.NoError(t, batch.Jobs[0].Ack(t.Context()))
	}
}

func TestFinishedJobsAreListedShownCountedAndPurged(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.put(t, later("text"))
	_, err := s.q.Cancel(t.Context(), "text")
	require.NoError(t, err)
	_, limits := policyOf(t, s, "policy", "set", s.queue, "done_age=24h", "done_keep=100")
	assert.Equal(t, []string{"24h", "100"}, []string{limits["done_age"].Value, limits["done_keep"].Value})
	s.finish(t, map[string]string{"text": "{\"sum\":6}\x1b[2J", "bytes": "\x00\xff", "none": ""})

	assert.ElementsMatch(t, []string{"text", "bytes", "none"}, firsts(s.ok(t, "list", "--place", "done")))
	var listed listJSON
	require.NoError(t, json.Unmarshal([]byte(s.ok(t, "list", "--place", "done", "--json")), &listed))
	require.Len(t, listed.Jobs, 3)
	assert.Zero(t, listed.Jobs[0].EnqueuedAt)

	out := s.ok(t, "show", "text")
	assert.Contains(t, out, "done since ")
	assert.Contains(t, out, "{\"sum\":6}\u241b[2J", "it does nothing to a terminal")
	assert.Contains(t, s.ok(t, "show", "bytes"), "\n00 ff\n")
	assert.Contains(t, s.ok(t, "show", "none"), "0 bytes")
	assert.Equal(t, "\x00\xff", s.ok(t, "show", "bytes", "--result"))
	var one jobJSON
	require.NoError(t, json.Unmarshal([]byte(s.ok(t, "show", "bytes", "--json")), &one))
	require.NotNil(t, one.ResultBase64)
	assert.Equal(t, []any{reliable.Done, "AP8=", (*string)(nil)}, []any{one.Place, *one.ResultBase64, one.Payload})

	assert.Contains(t, s.ok(t, "stats"), "Queue "+s.queue+" keeps 3 finished jobs in done.\n")
	assert.Contains(t, s.ok(t, "purge", "--place", "done", "text", "--yes"), "purged")
	_, limits = policyOf(t, s, "policy", "set", s.queue, "done_age=0")
	assert.Equal(t, "none", limits["done_age"].Value)
	assert.ElementsMatch(t, []string{"bytes", "none"}, firsts(s.ok(t, "list", "--place", "done")), "what is kept runs out")
	assert.Contains(t, s.ok(t, "purge", "--place", "done", "--all", "--yes"), "2")
	assert.Equal(t, "No jobs in done of queue "+s.queue+".\n", s.ok(t, "list", "--place", "done"))
	s.put(t, later("text"))
	stats, err := s.q.Stats(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, []int64{1, 0, 3}, []int64{stats.Due, stats.Done, stats.Counters["purged"]})
	assert.Less(t, strings.Count(s.ok(t, "show", "text"), "result"), 1, "a job that is not done has none")
}
