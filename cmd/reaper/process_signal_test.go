//go:build unix

package main

import (
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

// slowly starts a bulk of so many lines behind a slow network, and waits until it is under way.
func slowly(t *testing.T, s *site, path string) *child {
	t.Helper()
	proxy := redistest.Proxy(t, redistest.Addr(t))
	proxy.Delay(80 * time.Millisecond)
	c := spawn(t, "redis://"+proxy.Addr(), "enqueue", s.queue, "--prefix", s.prefix, "--jsonl", path)
	require.Eventually(t, func() bool { return s.stats(t).Counters["enqueued"] >= 512 }, within, 5*time.Millisecond)
	return c
}

func TestSIGINTStopsABulkAndItGoesOnWhereItIsTold(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const lines = 15_000
	path := jobLines(t, lines)
	c := slowly(t, s, path)
	require.NoError(t, c.cmd.Process.Signal(os.Interrupt))
	require.Equal(t, exitFailure, c.exitCode(t), &c.err)
	assert.True(t, c.err.has("stopped: signal: interrupt"), &c.err)
	next, err := strconv.ParseInt(goOn(t, c.err.String()), 10, 64)
	require.NoError(t, err)
	made := s.stats(t).Counters["enqueued"]
	assert.Equal(t, made+1, next, "every line before is certain, and nothing behind was sent")
	assert.Less(t, made, int64(lines))
	assert.Equal(t, strconv.FormatInt(made, 10)+" created, 0 there already, 0 failed\n", c.out.String())

	code, books, errOut := bulkBooks(t, s.args(serverURL(t), "enqueue", s.queue, "--jsonl", path, "--from-line", strconv.FormatInt(next, 10))...)
	require.Zero(t, code, errOut)
	assert.EqualValues(t, lines-made, books.Created)
	assert.EqualValues(t, lines, s.stats(t).Counters["enqueued"])
}

func TestABulkThatWasKilledIsSentAgainWithoutMakingAJobTwice(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const lines = 5000
	path := jobLines(t, lines)
	c := slowly(t, s, path)
	require.NoError(t, c.cmd.Process.Signal(syscall.SIGKILL))
	<-c.ended
	code, books, errOut := bulkBooks(t, s.args(serverURL(t), "enqueue", s.queue, "--jsonl", path)...)
	require.Zero(t, code, errOut)
	assert.GreaterOrEqual(t, books.Duplicates[reliable.Due], int64(512))
	assert.EqualValues(t, lines, books.Created+books.Duplicates[reliable.Due])
	assert.EqualValues(t, lines, s.stats(t).Counters["enqueued"])
}

func TestSIGINTStopsADeletionBetweenBatchesAndItIsRunAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const jobs = 5000
	code, _, errOut := bulkBooks(t, s.args(serverURL(t), "enqueue", s.queue, "--jsonl", jobLines(t, jobs))...)
	require.Zero(t, code, errOut)
	proxy := redistest.Proxy(t, redistest.Addr(t))
	proxy.Delay(80 * time.Millisecond)
	c := spawn(t, "redis://"+proxy.Addr(), "queue", "delete", s.queue, "--prefix", s.prefix, "--yes", "--batch", "50")
	require.Eventually(t, func() bool { return s.stats(t).Due < jobs }, within, 5*time.Millisecond)
	require.NoError(t, c.cmd.Process.Signal(os.Interrupt))
	require.Equal(t, exitFailure, c.exitCode(t), &c.err)
	stats := s.stats(t)
	assert.Positive(t, stats.Due)
	assert.Equal(t, stats.Due, stats.Records)
	assert.True(t, c.err.has("stopped: signal: interrupt (deleted so far: "+strconv.FormatInt(jobs-stats.Due, 10)+" jobs, "), &c.err)
	assert.True(t, c.err.has("run it again to go on"), &c.err)

	code, out, errOut := invoke(t, nil, s.args(serverURL(t), "queue", "delete", s.queue, "--yes")...)
	require.Zero(t, code, errOut)
	assert.Contains(t, out, "Deleted: "+strconv.FormatInt(stats.Due, 10)+" jobs, ")
	assert.Empty(t, redistest.Dump(t, redistest.Client(t), s.prefix, s.queue))
}
