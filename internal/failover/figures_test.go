package failover

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/chaos"
	"github.com/leaseq/leaseq/chaos/record"
)

// A fall is one time at which a server was not the primary any more.
type fall struct {
	from    time.Time // up to then the replica had all
	at      time.Time // when the fault began
	until   time.Time // from when on that was over
	up      time.Time // when the next one was the primary
	resumed time.Time // from when on clients could work on it
}

// figures are what was measured.
type figures struct {
	acknowledged, inWindow, lost, cameBack int64
	next                                   time.Duration // the longest, from when one could work again to the next claim that was started
	up                                     time.Duration // the longest, from a fall to the next primary
}

// measure reads the history for what the report does not say, and logs the figures.
func (r *trial) measure(row string, report *chaos.Report, falls []fall) figures {
	r.t.Helper()
	f := figures{acknowledged: report.Totals.Acknowledged, lost: report.Totals.LostExcused}
	calls, acked, back := map[string]map[int64]bool{}, map[string]int64{}, map[string]bool{}
	next := make([]int64, len(falls))
	r.events(func(process string, wall int64, e *record.Event) {
		switch {
		case e.Kind == record.Opened:
			calls[process] = map[int64]bool{}
		case e.Kind == record.Called && e.Op == record.OpEnqueue:
			calls[process][e.Call] = true
		case e.Kind == record.Answered && e.Out == record.OutOK && calls[process][e.Call]:
			for _, one := range falls {
				if at := wall + e.At; at >= one.from.UnixMicro() && at < one.until.UnixMicro() {
					f.inWindow++
				}
			}
		case e.Kind == record.Settled && e.Out == record.OutAcked:
			acked[e.ID] = e.Fence
		case e.Kind == record.Started:
			for i, one := range falls { // a fence is the server's clock, which is the host's
				if e.Fence > one.resumed.UnixMicro() && (next[i] == 0 || e.Fence < next[i]) {
					next[i] = e.Fence
				}
			}
		}
	})
	r.events(func(_ string, _ int64, e *record.Event) {
		if fence, ok := acked[e.ID]; ok && e.Kind == record.Started && e.Fence > fence {
			back[e.ID] = true
		}
	})
	f.cameBack = int64(len(back))
	for i, one := range falls {
		require.NotZero(r.t, next[i], "nothing was claimed after the fall %d", i+1)
		f.next = max(f.next, time.Duration(next[i]-one.resumed.UnixMicro())*time.Microsecond)
		f.up = max(f.up, one.up.Sub(one.at))
	}
	r.t.Logf("%s: %d falls; acknowledged %d, %d of them in the window; lost %d; acked and delivered again %d; duplicates %d; unknown %d; a new primary after %v, and a start after %v more, at most",
		row, len(falls), f.acknowledged, f.inWindow, f.lost, f.cameBack, report.Totals.Duplicated, report.Totals.Maybe, f.up.Round(time.Millisecond), f.next.Round(time.Millisecond))
	return f
}

// surelyKept fails where a job of which a replica was known to have it came to nothing.
func (r *trial) surelyKept(atLeast int) {
	r.t.Helper()
	kept := map[string]bool{}
	r.events(func(_ string, _ int64, e *record.Event) {
		if e.Kind == record.Settled && e.Out == record.OutAcked || e.Kind == record.Returned && e.Out == record.OutNil {
			kept[e.ID] = true
		}
	})
	var gone []string
	for id := range r.sure {
		if !kept[id] {
			gone = append(gone, id)
		}
	}
	require.Empty(r.t, gone, "jobs that a replica had")
	require.GreaterOrEqual(r.t, len(r.sure), atLeast)
	r.t.Logf("of %d jobs that WAIT had confirmed %d were lost", len(r.sure), len(gone))
}
