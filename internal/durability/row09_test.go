package durability

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/servershim"
)

const (
	kill       = "SIGKILL"
	stalledCut = ", a sync stalls"
)

// postponed is for how long Redis answers, with everysec, before it writes, while a sync is under way: two seconds, and
// what a timer needs.
const postponed = 2*time.Second + 250*time.Millisecond

// smallFiles has the server write its file anew often, so that some of the faults fall into that.
var smallFiles = []string{"--auto-aof-rewrite-min-size", "4mb"}

// noRewrites leaves that to the test.
var noRewrites = []string{"--auto-aof-rewrite-percentage", "0"}

// stall has the server's syncs wait, and returns when one does.
func stall(r *rig) {
	r.t.Helper()
	require.NoError(r.t, r.shim.StallSyncs(true))
	require.Eventually(r.t, func() bool {
		s, err := r.shim.State()
		return err == nil && s.Waiting > 0
	}, 20*time.Second, time.Millisecond)
}

// A redis-server that is killed had handed to the kernel what it had answered, and the kernel lives on: nothing is lost,
// whatever appendfsync says. One thing is different with everysec: while a sync is under way Redis answers first and
// writes later, for two seconds at most. A sync begins every second, and takes no time here; a kill for which it cannot be
// excluded that one was under way may lose what was answered since, and is judged so. Then syncs are made to stall.
func TestRow09_AServerThatIsKilledForgetsNothingThatItHadWritten(t *testing.T) {
	t.Parallel()
	kills := shape(2, 67)
	least, most := shape(100*time.Millisecond, 500*time.Millisecond), shape(400*time.Millisecond, 1500*time.Millisecond)
	lines := []*line{
		{setting: "always", fault: kill, count: kills, args: smallFiles, later: most, least: least, most: most},
		{setting: "everysec", fault: kill, count: kills, args: smallFiles, later: most, least: least, most: most, forgets: duringASync},
		{setting: "no", fault: kill, count: kills, args: smallFiles, later: most, least: least, most: most},
		{
			setting: "everysec", fault: kill + stalledCut, count: shape(1, 30), args: noRewrites, later: stays,
			least: 300 * time.Millisecond, most: shape(700*time.Millisecond, 3*time.Second),
			lead: stall, last: func(r *rig, _ int) { r.flows() },
			forgets: func(_ *rig, led, began time.Time) time.Time { return latest(led, began.Add(-postponed)) },
		},
	}
	each(t, lines)
	for _, l := range lines[:3] {
		require.Zero(t, l.outside, "%s: the loss of an answered enqueue that was written", l.setting)
	}
	require.Zero(t, lines[0].lost)
	require.Zero(t, lines[2].lost)
	if kills > 10 {
		require.Positive(t, lines[1].strict, "kills with everysec while no sync was under way")
	}
	require.Positive(t, lines[3].lost, "what stood in the buffer during the stall is lost")
	require.LessOrEqual(t, lines[3].oldest, postponed)
}

// duringASync tells since when answers can be lost by a kill with everysec: never, if no sync can have been under way.
func duringASync(r *rig, _, began time.Time) time.Time {
	s, err := r.shim.State()
	require.NoError(r.t, err)
	if sure(s, time.Now()) { // the server has ended
		return time.Time{}
	}
	return began.Add(-postponed)
}

// sure reports whether no sync was under way, or about to be, when the server ended: the next one comes a second after the
// last one began.
func sure(s servershim.State, ended time.Time) bool {
	return s.Begun == s.Ended && !s.LastBegun.IsZero() && ended.Sub(s.LastBegun) < 600*time.Millisecond
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
