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

func TestProblemsOfTLSAndSentinelAreReported(t *testing.T) {
	t.Parallel()
	_, err := Start(t.Context(), &Options{
		AppendOnly: true,
		Sentinel:   []string{"monitor main 127.0.0.1 1 1", " ", "two\nlines"},
		TLS:        &TLS{CertFile: "cert.pem", KeyFile: filepath.Join(t.TempDir(), "key.pem"), Clients: "perhaps"},
		Args:       []string{"--tls-port", "1"},
	})
	require.Error(t, err)
	for _, part := range []string{"set one of them", `Sentinel holds " "`, `"two\nlines"`, `TLS.CertFile "cert.pem": want an absolute path`,
		`TLS.CAFile ""`, `TLS.Clients "perhaps": want no, optional or yes`, "Args hold --tls-port"} {
		assert.ErrorContains(t, err, part)
	}
	assert.NotContains(t, err.Error(), "KeyFile")
}

func TestOptionsAreCopied(t *testing.T) {
	t.Parallel()
	needRedis(t)
	given := &Options{
		Args: []string{"--maxmemory", "1mb"}, Sentinel: []string{"myid x"},
		TLS: &TLS{CertFile: "/c", KeyFile: "/k", CAFile: "/a"},
	}
	s, err := given.settled()
	require.NoError(t, err)
	given.Args[1], given.Sentinel[0], given.TLS.Clients = "changed", "changed", "changed"
	assert.Equal(t, []string{"--maxmemory", "1mb"}, s.Args)
	assert.Equal(t, []string{"myid x"}, s.Sentinel)
	assert.Empty(t, s.TLS.Clients)
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
