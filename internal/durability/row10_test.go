package durability

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const powerCut = "power cut"

// everySecond is the most that everysec may lose: a sync begins every second, and until it has ended nothing since the
// one before is sure.
const everySecond = 2 * time.Second

// A machine that loses its power forgets what was not synced. With always that is nothing that was answered, also while
// the file is written anew and while a sync stalls, since nothing is answered then. With everysec it is the last two
// seconds at most, and while a sync stalls all since the one before. With no it is all since the file was last written
// anew: here nothing else syncs, and the rounds are shorter than the half minute after which a kernel writes by itself.
// Nothing that was answered before is missing, acks that were answered are not forgotten but in that time, fences go on to
// grow, and the queue is whole.
func TestRow10_PowerLossTakesWhatWasNotSyncedAndNothingBefore(t *testing.T) {
	t.Parallel()
	cuts := shape(1, 34)
	lines := []*line{
		{
			setting: "always", fault: powerCut, power: true, count: shape(2, 34), args: noRewrites, later: stays,
			least: 100 * time.Millisecond, most: 500 * time.Millisecond, last: startRewrite,
		},
		{
			setting: "always", fault: powerCut + stalledCut, power: true, count: cuts, args: noRewrites, later: stays,
			least: 50 * time.Millisecond, most: 500 * time.Millisecond, lead: stall,
		},
		{
			setting: "everysec", fault: powerCut, power: true, count: cuts, args: noRewrites, later: stays,
			least: everySecond + 200*time.Millisecond, most: everySecond + shape(300*time.Millisecond, 1200*time.Millisecond),
			forgets: func(_ *rig, _, began time.Time) time.Time { return began.Add(-everySecond) },
		},
		{
			setting: "everysec", fault: powerCut + stalledCut, power: true, count: cuts, args: noRewrites, later: stays,
			least: shape(1200*time.Millisecond, 2*time.Second), most: shape(1300*time.Millisecond, 3*time.Second),
			lead: stall, last: func(r *rig, _ int) { r.flows() },
			forgets: func(_ *rig, led, _ time.Time) time.Time { return led.Add(-everySecond) },
		},
		{
			setting: "no", fault: powerCut, power: true, count: cuts, args: noRewrites, later: stays,
			least: 200 * time.Millisecond, most: time.Second,
			lead: func(r *rig) { r.rewrite() }, last: func(r *rig, _ int) { r.flows() },
			forgets: func(_ *rig, led, _ time.Time) time.Time { return led },
		},
	}
	everysec, stalled, no := lines[2], lines[3], lines[4]
	lines = slices.Delete(lines, 1, shape(2, 1)) // package servershim has a small one of the second
	each(t, lines)
	for _, l := range lines {
		require.Zero(t, l.outside, "%s, %s", l.setting, l.fault)
		if l.setting == "always" {
			require.Zero(t, l.lost, l.fault)
		}
	}
	require.LessOrEqual(t, everysec.oldest, everySecond)
	require.Greater(t, stalled.oldest, stalled.least, "a stall costs all that was answered in it")
	require.Positive(t, no.lost)
	if everysec.count > 2 { // one cut can come just after a sync
		require.Positive(t, everysec.lost)
	}
}

// startRewrite has the server begin to write its file anew, in every other round, so that the fault falls into that.
func startRewrite(r *rig, round int) {
	if round%2 == 0 {
		return
	}
	require.NoError(r.t, r.rdb.BgRewriteAOF(r.t.Context()).Err())
	<-time.After(rand.N(30 * time.Millisecond))
}
