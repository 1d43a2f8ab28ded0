package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
)

func TestAQueueIsPausedShownAndResumed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	store := newStore(t, redistest.Client(t), s.prefix, s.queue, 30*time.Second)
	enqueue(t, store, "a", "b")
	run := func(args ...string) (out, errOut string) {
		code, out, errOut := invoke(t, nil, s.args(serverURL(t), args...)...)
		require.Zero(t, code, errOut)
		return out, errOut
	}
	out, _ := run("pause", s.queue)
	assert.Equal(t, s.queue+"  paused until it is resumed; 2 jobs are due now, 0 in processing\n", out)
	got, err := store.Claim(t.Context(), 1, nil)
	require.NoError(t, err)
	assert.Equal(t, lease.HeldPaused, got.Held)
	out, _ = run("stats", s.queue)
	assert.Contains(t, out, "Queue "+s.queue+" is paused until it is resumed.")
	for range 2 { // it is safe to run again
		out, _ = run("pause", s.queue, "--for", "10m")
		assert.Regexp(t, `paused for (10m|9m5\ds);`, out)
	}
	out, _ = run("queues")
	assert.Regexp(t, s.queue+` \(paused for (10m|9m5\ds)\)`, out)
	out, _ = run("pause", s.queue, "--until", time.Now().Add(time.Hour).Format(time.RFC3339), "--json")
	var told struct {
		Queue  string
		Paused bool
		Left   int64 `json:"left_ms"`
	}
	require.NoError(t, json.Unmarshal([]byte(out), &told))
	assert.True(t, told.Paused)
	assert.InDelta(t, time.Hour.Milliseconds(), told.Left, 120_000)
	out, _ = run("stats", s.queue, "--json")
	var stats statsJSON
	require.NoError(t, json.Unmarshal([]byte(out), &stats))
	assert.True(t, stats.Queues[0].Paused)
	require.NotNil(t, stats.Queues[0].PauseLeft)

	out, errOut := run("resume", s.queue)
	assert.Equal(t, s.queue+"  not paused; 2 jobs are due now, 0 in processing\n", out)
	assert.Empty(t, errOut)
	_, errOut = run("resume", s.queue)
	assert.Contains(t, errOut, "it was not paused")
	claim(t, store, 2)
}

func TestMistakesAboutAPauseSayWhatWouldBeRight(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	newStore(t, redistest.Client(t), s.prefix, s.queue, 30*time.Second)
	for line, want := range map[string]string{
		"pause":                      "accepts 1 arg",
		"pause q --for 0s":           "want 1ms or more",
		"pause q --for -1m":          "want 1ms or more",
		"pause q --until tomorrow":   "want a time as 2027-01-01T06:00:00Z",
		"pause q --for 1m --until x": "and not both",
		"resume bad{name":            "queue name",
	} {
		code, out, errOut := invoke(t, nil, s.args(serverURL(t), strings.Fields(line)...)...)
		assert.Equal(t, exitUsage, code, line)
		assert.Empty(t, out)
		assert.Contains(t, errOut, want, line)
	}
	for _, line := range []string{"pause nobodys", "resume nobodys"} {
		code, _, errOut := invoke(t, nil, s.args(serverURL(t), strings.Fields(line)...)...)
		assert.Equal(t, exitFailure, code, line)
		assert.Contains(t, errOut, "nobody has used it", line)
	}
	code, _, errOut := invoke(t, nil, s.args(serverURL(t), "pause", s.queue, "--until", "2020-01-01T00:00:00Z")...)
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, errOut, "has passed on Redis' clock")
}
