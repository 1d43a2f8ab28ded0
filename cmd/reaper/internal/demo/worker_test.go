package demo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWorkerStartedByHandSaysWhoStartsIt(t *testing.T) {
	t.Parallel()
	for _, input := range []string{"", "\n", "{"} {
		assert.ErrorContains(t, work(t.Context(), strings.NewReader(input)), "started by the demo only", "%q", input)
	}
}

func TestWorkerThatEndsByItselfIsReportedWithWhatItSaid(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	require.NoError(t, err)
	missing := filepath.Join(t.TempDir(), "missing.jsonl")
	c := &crew{program: program, config: workerConfig{URL: "redis://127.0.0.1:1/0", Queue: "q", File: missing}}
	t.Cleanup(func() { assert.NoError(t, c.end()) })
	w, err := c.hire()
	require.NoError(t, err)
	select {
	case <-w.done:
	case <-time.After(time.Minute):
		t.Fatal("the worker goes on without its file")
	}
	err = c.check()
	require.ErrorContains(t, err, "ended by itself")
	assert.ErrorContains(t, err, missing)
	assert.ErrorContains(t, c.dismiss(time.Second), "ended with an error")
}

func TestWorkerEndsWhenItsInputEnds(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "workers.jsonl")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	// Nobody listens there: a worker ends in time whatever its Redis does.
	c := &crew{program: program, config: workerConfig{URL: "redis://127.0.0.1:1/0", Queue: "q", File: file}}
	t.Cleanup(func() { assert.NoError(t, c.end()) })
	_, err = c.hire()
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		lines, err := readLines(file)
		return err == nil && len(lines) > 0
	}, time.Minute, 10*time.Millisecond)
	assert.NoError(t, c.dismiss(time.Minute))
	lines, err := readLines(file)
	require.NoError(t, err)
	assert.Equal(t, isUp, lines[0].Event)
	assert.Equal(t, isDown, lines[len(lines)-1].Event)
}
