package main

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

// feed runs the program to its end, with something on its standard input.
func feed(t *testing.T, in io.Reader, args ...string) (code int, out, errOut string) {
	t.Helper()
	return feedUntil(t, t.Context(), in, args...)
}

func feedUntil(t *testing.T, ctx context.Context, in io.Reader, args ...string) (code int, out, errOut string) {
	t.Helper()
	var stdout, stderr pad
	app := NewApp(&AppOptions{Out: &stdout, Err: &stderr, LookupEnv: func(string) (string, bool) { return "", false }})
	app.root.SetIn(in)
	code = app.Main(ctx, args)
	return code, stdout.String(), stderr.String()
}

// A site is one queue under a prefix of the test's own.
type site struct {
	prefix, queue string
	q             *reliable.Queue
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{prefix: newPrefix(), queue: redistest.Queue(t)}
	q, err := reliable.New(redistest.Client(t), s.queue, &reliable.QueueOptions{Prefix: s.prefix})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, q.Close(context.Background())) })
	s.q = q
	return s
}

// args puts the connection behind the arguments of a command.
func (s *site) args(url string, args ...string) []string {
	return append(args, "--redis", url, "--prefix", s.prefix)
}

// key is the full name of a key of a partition.
func (s *site) key(t *testing.T, partition int, name string) string {
	t.Helper()
	p, err := keys.New(s.prefix, s.queue, partition)
	require.NoError(t, err)
	return strings.TrimSuffix(p.Key("due"), "due") + name
}

func (s *site) stats(t *testing.T) reliable.Stats {
	t.Helper()
	stats, err := s.q.Stats(t.Context())
	require.NoError(t, err)
	return stats
}

// look reads one job.
func (s *site) look(t *testing.T, id string) reliable.Info {
	t.Helper()
	infos, err := s.q.Inspect(t.Context(), id)
	require.NoError(t, err)
	return infos[0]
}
