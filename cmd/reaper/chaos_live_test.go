package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/leaseq/leaseq/chaos"
)

// somewhere is how far a storm is.
func somewhere() chaos.Progress {
	return chaos.Progress{
		Phase: "storm", Elapsed: 12 * time.Second, Total: 30 * time.Second,
		Enqueued: 3200, Acked: 3100, Kills: 7, Expired: 41, Violations: 1, Under: []string{"cut-off", "worker-stop"},
	}
}

func newTestLive(out *pad, terminal bool) *live {
	c := &chaosCommand{options: chaos.Options{Seed: 9, Lease: time.Second, Workers: 4, Concurrency: 16, URL: "redis://u:secret@h:1/2"}}
	return &live{c: c, out: out, terminal: terminal, width: func() int { return 60 }}
}

func TestWithoutATerminalAStormTellsALineForEachPhase(t *testing.T) {
	t.Parallel()
	out := &pad{}
	l := newTestLive(out, false)
	p := somewhere()
	for range 3 {
		l.show(p)
	}
	p.Phase, p.Under = "calm", nil
	l.show(p)
	l.end()
	assert.Equal(t, `seed 9: 30s, lease 1s, 4 workers with 16 jobs each, on redis://***@h:1/2
storm 12/30s: 3200 jobs, 3100 acked, 7 kills, 41 expiries, 1 violations; now cut-off, worker-stop
calm 12/30s: 3200 jobs, 3100 acked, 7 kills, 41 expiries, 1 violations
`, out.String())

	l = newTestLive(out, false)
	l.c.options.Schedule, l.c.options.Seed, l.c.options.URL = &chaos.Schedule{Seed: 10}, 0, ""
	l.show(p)
	assert.True(t, out.has("seed 10: ", "on a redis-server of its own"))
}

func TestOnATerminalAStormHasOneLineThatFits(t *testing.T) {
	t.Parallel()
	out := &pad{}
	l := newTestLive(out, true)
	p := somewhere()
	l.show(p)
	l.show(p)
	p.Phase = "calm"
	l.show(p)
	l.end()
	l.end()
	lines := strings.Split(out.String(), clearLine)
	assert.Len(t, lines, 4, "the second came too soon: %q", lines)
	assert.True(t, strings.HasSuffix(lines[0], "h:1/2\n"))
	assert.Equal(t, "storm 12/30s: 3200 jobs, 3100 acked, 7 kills, 41 expiries,…", lines[1])
	assert.True(t, strings.HasPrefix(lines[2], "calm "))
	assert.Empty(t, lines[3])
}
