package durability

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/chaos"
	"github.com/leaseq/leaseq/chaos/record"
)

// A line is one row of a table: a fault, again and again, under one setting of appendfsync, and what came of it.
type line struct {
	setting string
	fault   string
	power   bool // the power is cut; else the process is killed
	count   int
	args    []string
	later   time.Duration

	// traffic goes on for a random time from least to most before each fault.
	least, most time.Duration
	// lead goes before that; it may take its time. nil: nothing.
	lead func(*rig)
	// last goes just before the fault. nil: nothing.
	last func(r *rig, round int)
	// forgets tells since when answers can be lost, by when lead began and when the fault did: the server has ended after
	// that, much later if this process stands still. The zero time: none can. nil: none ever can.
	forgets func(r *rig, led, began time.Time) time.Time

	cuts         [][2]time.Time // when each fault began, and when the server had ended
	strict       int            // of them, those by which nothing may be lost
	bytes        int64          // that the cuts took
	acknowledged int64
	lost         int64
	outside      int64 // lost, though nothing may have been
	again        int64 // jobs whose answered acks were lost, so that they ran again
	oldest       time.Duration
}

// inject has the fault happen once. before and back are when the server was back from the fault before, and from this.
func (l *line) inject(r *rig, round int, before time.Time) (back time.Time) {
	r.t.Helper()
	led := time.Now()
	if l.lead != nil {
		l.lead(r)
	}
	<-time.After(l.least + rand.N(l.most-l.least))
	if l.last != nil {
		l.last(r, round)
	}
	began := time.Now()
	require.NoError(r.t, r.server.Kill())
	ended := time.Now()
	var from time.Time
	if l.forgets != nil {
		from = l.forgets(r, led, began)
	}
	if l.power {
		n, err := r.shim.CutToSynced(r.server.Dir())
		require.NoError(r.t, err)
		l.bytes += n
	}
	require.NoError(r.t, r.shim.StallSyncs(false))
	r.restart()
	back = time.Now()
	r.fault(l.fault, began, back, record.Outage)
	if !from.IsZero() {
		if from.Before(before) {
			from = before // what was there then has been read from the file
		}
		r.fault(l.fault, from, back, record.Loses)
	} else {
		l.strict++
	}
	l.cuts = append(l.cuts, [2]time.Time{began, ended})
	r.clock()
	r.flows()
	return back
}

// run is the whole of a line.
func (l *line) run(r *rig) {
	r.t.Helper()
	back := time.Time{}
	for round := range l.count {
		back = l.inject(r, round, back)
		if round%10 == 9 {
			r.rewrite() // or the file grows for ever, where the server does not do it by itself
		}
	}
	state, err := r.shim.State()
	require.NoError(r.t, err)
	require.EqualValues(r.t, l.count+1, state.Loads, "each server had the shim")
	report := r.judge()
	l.acknowledged, l.outside = report.Totals.Acknowledged, report.Totals.Lost
	l.lost = report.Totals.Lost + report.Totals.LostExcused
	l.again = report.Check(chaos.CheckAgain).Excused
	fine(r.t, report)
	lost := r.lost()
	require.Len(r.t, lost, int(l.lost), "the age is told of each job that the check counts as lost")
	for _, at := range lost {
		l.oldest = max(l.oldest, l.age(at))
	}
	require.EqualValues(r.t, l.count, report.Cases["fault: outage"])
	require.Greater(r.t, report.Totals.Acked, int64(l.count))
}

// age is how long before the next fault began something was answered.
func (l *line) age(at time.Time) time.Duration {
	for _, cut := range l.cuts {
		if !cut[1].Before(at) {
			return max(0, cut[0].Sub(at))
		}
	}
	return -1
}

// lost reads from the records which jobs are missing, by the rule of package chaos, and when the enqueue of each was
// answered.
func (r *rig) lost() map[string]time.Time {
	r.t.Helper()
	calls, lost, returned := map[int64]string{}, map[string]time.Time{}, map[string]bool{}
	_, err := record.File(filepath.Join(r.dir, "producers.jsonl")).Each(func(e *record.Event) error {
		switch {
		case e.Kind == record.Called:
			calls[e.Call] = e.ID
		case e.Kind == record.Answered && e.Out == record.OutOK:
			lost[calls[e.Call]] = time.UnixMicro(r.began + e.At)
		}
		return nil
	})
	require.NoError(r.t, err)
	_, err = record.File(filepath.Join(r.dir, "worker.jsonl")).Each(func(e *record.Event) error {
		switch {
		case e.Kind == record.Returned:
			returned[e.ID] = true // an ack without an answer may have run
		case e.Kind == record.Settled && e.Out != record.OutUnknown:
			delete(returned, e.ID)
			if e.Out == record.OutAcked {
				delete(lost, e.ID)
			}
		}
		return nil
	})
	require.NoError(r.t, err)
	for id := range returned {
		delete(lost, id)
	}
	s := r.snapshot()
	for _, place := range []map[string]int64{s.Due, s.Processing, s.Dead} {
		for id := range place {
			delete(lost, id)
		}
	}
	return lost
}

// print writes a table for people.
func print(lines []*line) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "appendfsync\tfault\tcount\tof them may lose\tacknowledged\tlost\toutside the window\toldest lost\tacks forgotten\tbytes cut")
	for _, l := range lines {
		oldest := "-"
		if l.lost > 0 {
			oldest = l.oldest.Round(time.Millisecond).String()
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\t%d\t%d\n",
			l.setting, l.fault, len(l.cuts), len(l.cuts)-l.strict, l.acknowledged, l.lost, l.outside, oldest, l.again, l.bytes)
	}
	_ = w.Flush()
	return text.String()
}

// each runs the lines side by side, and shows the table.
func each(t *testing.T, lines []*line) {
	t.Helper()
	t.Run("of", func(t *testing.T) {
		for _, l := range lines {
			t.Run(strings.ReplaceAll(l.setting+" "+l.fault, " ", "-"), func(t *testing.T) {
				t.Parallel()
				l.run(newRig(t, rigOptions{fsync: l.setting, args: l.args, later: l.later}))
			})
		}
	})
	t.Log("\n" + print(lines))
}
