package reaper

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAnOutageIsLoggedAtItsBeginningEveryTenSecondsAndAtItsEnd(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	now := time.Unix(1_000_000, 0)
	tr := newTroubles(slog.New(slog.NewTextHandler(&log, nil)))
	tr.now = func() time.Time { return now }
	lines := func() []string {
		defer log.Reset()
		return strings.Split(strings.TrimSpace(log.String()), "\n")
	}
	tr.look()
	assert.Empty(t, log.String(), "nothing has failed")

	for range 99 { // 19.8 s, five times a second
		tr.note("orders", errors.New("connection refused"))
		tr.note("mail", errors.New("connection refused"))
		tr.look()
		now = now.Add(200 * time.Millisecond)
	}
	got := lines()
	require.Len(t, got, 2)
	assert.Contains(t, got[0], "queue=orders")
	assert.Contains(t, got[0], "muted_failures=0")
	assert.Contains(t, got[1], "muted_failures=99")
	assert.Contains(t, got[1], "failed_queues=2")

	now = now.Add(troubleEvery)
	tr.look()
	tr.look()
	got = lines()
	require.Len(t, got, 1)
	assert.Contains(t, got[0], "nothing has failed any more")

	tr.note("", errors.New("WRONGTYPE"))
	assert.Contains(t, log.String(), "registry", "a new trouble is loud at once")
}
