package redisproc

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEveryProblemOfTheOptionsIsReported(t *testing.T) {
	t.Parallel()
	_, err := Start(t.Context(), &Options{
		Path:        filepath.Join(t.TempDir(), "no-such-server"),
		AppendFsync: "sometimes",
		Args:        []string{"--port", "1", "--BIND", "0.0.0.0"},
		Env:         []string{"novalue"},
	})
	require.Error(t, err)
	for _, part := range []string{"no-such-server", `"sometimes": want always, everysec or no`, "--port", "--bind", `"novalue": want NAME=value`} {
		assert.ErrorContains(t, err, part)
	}
	_, err = Start(t.Context(), &Options{AppendFsync: "always"})
	assert.ErrorContains(t, err, "without AppendOnly")
}

func TestOptionsAreCopied(t *testing.T) {
	t.Parallel()
	needRedis(t)
	given := &Options{Args: []string{"--maxmemory", "1mb"}}
	s, err := given.settled()
	require.NoError(t, err)
	given.Args[1] = "changed"
	assert.Equal(t, []string{"--maxmemory", "1mb"}, s.Args)
	assert.Empty(t, given.Path, "defaults are filled into the copy")
}

func TestFindSaysThatThereIsNone(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := Find()
	require.ErrorIs(t, err, exec.ErrNotFound)
	assert.ErrorContains(t, err, "no redis-server on PATH")
}

func TestFailedStartLeavesNothingAndShowsTheLog(t *testing.T) {
	needRedis(t)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	_, err := Start(t.Context(), &Options{Args: []string{"--no-such-setting", "1"}})
	require.ErrorContains(t, err, "no-such-setting")
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	assert.Empty(t, left)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Start(ctx, nil)
	require.ErrorIs(t, err, context.Canceled)
	left, err = os.ReadDir(tmp)
	require.NoError(t, err)
	assert.Empty(t, left)
}
