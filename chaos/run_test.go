package chaos

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/leaseq/leaseq/chaos/record"
)

// A run is a history that a test may make wrong.
type run struct {
	t        *testing.T
	logs     []Lines
	snapshot *Snapshot
}

// rightRun is a run with kills, so that some leases run out.
var rightRun = sync.OnceValues(func() (History, *Snapshot) {
	return simulate(7, simSize{jobs: 1000, workers: 3, slots: 6, kills: 3})
})

// newRun returns a copy of the right run.
func newRun(t *testing.T) *run {
	t.Helper()
	h, s := rightRun()
	r := &run{t: t, snapshot: s.clone()}
	for _, log := range h {
		r.logs = append(r.logs, slices.Clone(log.(Lines)))
	}
	return r
}

func (r *run) check() *Report {
	h := History{}
	for _, log := range r.logs {
		h = append(h, log)
	}
	return mustCheck(r.t, h, r.snapshot, nil)
}

func (s *Snapshot) clone() *Snapshot {
	out := *s
	for _, m := range []*map[string]int64{&out.Due, &out.Processing, &out.Dead, &out.Done, &out.Stats} {
		*m = maps.Clone(*m)
	}
	out.Leases, out.Counts = maps.Clone(out.Leases), maps.Clone(out.Counts)
	out.Records, out.Results = slices.Clone(out.Records), slices.Clone(out.Results)
	return &out
}

// each calls fn for every event; a false drops it.
func (r *run) each(fn func(*record.Event) bool) {
	for i, log := range r.logs {
		var kept Lines
		for k := range log {
			e := log[k]
			if fn(&e) {
				kept = append(kept, e)
			}
		}
		r.logs[i] = kept
	}
}

// of is the events of one job's kind, in the order of the fences.
func (r *run) of(id string, kind record.Kind) []*record.Event {
	var out []*record.Event
	for _, log := range r.logs {
		for k := range log {
			if e := &log[k]; e.ID == id && e.Kind == kind {
				out = append(out, e)
			}
		}
	}
	slices.SortStableFunc(out, func(x, y *record.Event) int { return compare(x.Fence, y.Fence) })
	return out
}

// find is the ID of the first job whose leases ended, and whose starts were counted, as told.
func (r *run) find(starts int, outs ...string) string {
	r.t.Helper()
	for i := range 1000 {
		id := fmt.Sprintf("job-%d", i+1)
		settles := r.of(id, record.Settled)
		got := make([]string, len(settles))
		for k, e := range settles {
			got[k] = e.Out
		}
		if slices.Equal(got, outs) && len(r.of(id, record.Started)) == starts {
			return id
		}
	}
	r.t.Fatalf("no job with %d starts and the settles %v", starts, outs)
	return ""
}

// process is the log that holds an event of a job.
func (r *run) process(id string, fence int64) *Lines {
	for i := range r.logs {
		for k := range r.logs[i] {
			if e := &r.logs[i][k]; e.ID == id && e.Fence == fence {
				return &r.logs[i]
			}
		}
	}
	return nil
}

func (r *run) drop(id string, kinds ...record.Kind) {
	r.each(func(e *record.Event) bool { return e.ID != id || !slices.Contains(kinds, e.Kind) })
}

// offset of a process to the server's clock, as the simulator made it, within a few ms.
func (r *run) offset(log *Lines) int64 { return (*log)[0].Wall }

// ranOut is a job whose first lease ran out with its holder's death, and whose second was acked.
func (r *run) ranOut() string {
	r.t.Helper()
	for i := range 1000 {
		id := fmt.Sprintf("job-%d", i+1)
		starts := r.of(id, record.Started)
		if len(starts) == 2 && starts[0].Expiries == 0 && starts[1].Expiries == 1 && len(r.of(id, record.Returned)) == 1 {
			return id
		}
	}
	r.t.Fatal("no lease ran out")
	return ""
}

// moveClaim gives a claim another time and another due time, and all that follows from the claim with it.
func (r *run) moveClaim(id string, start *record.Event, fence, due int64) {
	old, by := start.Fence, fence-start.Fence
	log := r.process(id, old)
	for i := range *log {
		if e := &(*log)[i]; e.ID == id && e.Fence == old {
			e.Fence, e.At = fence, e.At+by
			if e.Deadline != 0 {
				e.Deadline += by
			}
			if e.Kind == record.Started {
				e.Wait += by - (due/1000-e.Due)*1000
				e.Due = due / 1000
			}
		}
	}
	r.snapshot.Fence = max(r.snapshot.Fence, fence)
}

// answer changes the answer of a job's enqueue, or, with "", drops it.
func (r *run) answer(id, out string) {
	n := r.of(id, record.Called)[0].Call
	r.each(func(e *record.Event) bool {
		if e.Kind == record.Answered && e.Call == n {
			e.Out = out
			return out != ""
		}
		return true
	})
}

// hold has a job that was acked under its one lease be in processing at the end, its lease running out in some ms.
func (r *run) hold(id string, ms int64) {
	r.drop(id, record.Settled)
	start := r.of(id, record.Started)[0]
	s := r.snapshot
	s.Processing[id], s.Leases[id] = s.At/1000+ms, fmt.Sprintf("%d:s:1", start.Fence)
	s.Records = append(s.Records, id)
	s.Stats["acked"]--
}

// idle has the last claims of all come half a second late.
func (r *run) idle() {
	r.each(func(e *record.Event) bool { return true })
	var last *record.Event
	for _, log := range r.logs {
		for k := range log {
			if e := &log[k]; e.Kind == record.Started && (last == nil || e.Fence > last.Fence) {
				last = e
			}
		}
	}
	due := last.Due * 1000
	r.moveClaim(last.ID, last, last.Fence+1_700_000, due+1_000)
	log := r.process(last.ID, last.Fence)
	slices.SortStableFunc(*log, func(x, y record.Event) int { return compare(x.At, y.At) })
}
