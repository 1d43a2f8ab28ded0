package model

import "testing"

// Outages, late sweeps and steps of the clock cost no live holder its lease, and a dead one's lease is taken in time.
func TestGraceAndKeeperAreSound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		small, large GraceOptions
	}{
		{"calm", GraceOptions{Deaths: 2, Cuts: 1, Horizon: 50}, GraceOptions{Deaths: 2, Cuts: 2, Delays: 2, Horizon: 80}},
		{
			"a stopped server whose calls run at the thaw",
			GraceOptions{Stops: 1, Longest: 15, Deaths: 1, Horizon: 40},
			GraceOptions{Stops: 2, Longest: 20, Deaths: 1, Delays: 1, Horizon: 70},
		},
		{
			"outages in a row",
			GraceOptions{Stops: 3, Longest: 8, Horizon: 24},
			GraceOptions{Stops: 3, Longest: 10, Horizon: 40},
		},
		{
			"cut off from a server that stops",
			GraceOptions{Cuts: 1, Stops: 1, Longest: 14, Horizon: 36},
			GraceOptions{Cuts: 1, Stops: 1, Longest: 26, Deaths: 1, Horizon: 60},
		},
		{"a clock that jumps ahead", GraceOptions{Steps: []int{7}, Deaths: 1, Claims: 1, Horizon: 50}, GraceOptions{Steps: []int{3, 7, 30}, Deaths: 1, Claims: 1, Horizon: 90}},
		{"a clock that is set back", GraceOptions{Steps: []int{-12}, Deaths: 1, Claims: 1, Horizon: 60}, GraceOptions{Steps: []int{-12, -5}, Deaths: 1, Claims: 1, Horizon: 90}},
		{"late sweeps", GraceOptions{Sweeps: Late, Deaths: 1, Horizon: 64}, GraceOptions{Sweeps: Late, Deaths: 1, Cuts: 1, Horizon: 80}},
		{"sweeps more than a lease apart", GraceOptions{Sweeps: Late, Gap: lease, Deaths: 1, Horizon: 100}, GraceOptions{Sweeps: Late, Gap: lease, Deaths: 1, Cuts: 1, Horizon: 110}},
		{"cron", GraceOptions{Sweeps: Cron, Deaths: 1, Stops: 1, Longest: 14, Horizon: 80}, GraceOptions{Sweeps: Cron, Deaths: 1, Stops: 1, Longest: 26, Horizon: 120}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !large() {
				t.Parallel()
			}
			o := c.small
			if large() {
				o = c.large
			}
			searchSound(t, NewGrace(o), 60_000_000)
		})
	}
}

func TestNaiveGracesAreCaught(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		o      GraceOptions
		broken string
		steps  int
	}{
		{"no grace", GraceOptions{Stops: 1, Longest: 15, Horizon: 40, Dropped: Spares}, "only kept from extending", 19},
		{"no bound on graces in a row", GraceOptions{Sweeps: Late, Deaths: 1, Horizon: 80, Dropped: RowBound}, "did not take", 55},
		{"a grace is never cut", GraceOptions{Steps: []int{24, -24}, Deaths: 1, Horizon: 80, Dropped: CutGraces}, "not taken in time", 48},
		{"the sweeper judges", GraceOptions{Stops: 1, Longest: 15, Horizon: 40, Dropped: JudgedByScript}, "only kept from extending", 19},
		{"only a whole lease is a gap", GraceOptions{Steps: []int{9}, Horizon: 40, Dropped: HalfLease}, "before its holder's local deadline", 5},
		{"expire looks at no expiry", GraceOptions{Horizon: 40, Dropped: ExpiryCompared}, "before its stored expiry", 4},
		{"deadlines count from the answer", GraceOptions{Delays: 1, Cuts: 1, Horizon: 40, Dropped: DeadlineFromSend}, "before its holder's local deadline", 28},
		{"the keeper beats late", GraceOptions{Steps: []int{3}, Horizon: 40, Dropped: BeatsEvenly}, "before its holder's local deadline", 13},
		{"the sweeper sleeps until the next expiry", GraceOptions{Deaths: 2, Horizon: 60, Dropped: ShortSleeps}, "not taken in time", 18},
		{"no verdict after the deadline", GraceOptions{Stops: 1, Longest: 15, Horizon: 60, Dropped: VerdictsSent}, "only kept from extending", 38},
		{"an extend without an answer holds up the next", GraceOptions{Delays: 1, Stops: 1, Longest: 15, Horizon: 40, Dropped: Company}, "only kept from extending", 29},
		{"a sweep in a grace is not noted", GraceOptions{Stops: 1, Longest: 15, Deaths: 1, Horizon: 80, Dropped: MarksSweeps}, "not taken in time", 39},

		// What is not promised: two equal steps in opposite directions, or a step back and an outage, and no sweep in between.
		{"two equal steps", GraceOptions{Steps: []int{-12, 12}, Claims: 1, Horizon: 40}, "before its holder's local deadline", 7},
		{"a step back and an outage", GraceOptions{Steps: []int{-12}, Claims: 1, Stops: 1, Longest: 15, Horizon: 30}, "only kept from extending", 21},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			searchBroken(t, NewGrace(c.o), c.broken, c.steps)
		})
	}
}
