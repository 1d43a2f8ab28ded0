package chaos

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/chaos/record"
)

// A mutant makes a right history wrong.
type mutant struct {
	name string
	want string // the check that must see it, and no other one
	make func(r *run)
}

const acked, retried, dead = record.OutAcked, record.OutRetried, record.OutDead

var mutants = []mutant{
	{"an acked job was never acked, and is nowhere", CheckLost, func(r *run) {
		r.drop(r.find(1, acked), record.Settled, record.Returned)
		r.snapshot.Stats["acked"]--
		r.snapshot.Stats["expired"]++
	}},
	{"an enqueued job that nobody claimed is nowhere", CheckLost, func(r *run) {
		r.drop(r.find(1, acked), record.Settled, record.Returned, record.Started)
		r.snapshot.Stats["acked"]--
		r.snapshot.Stats["claimed"]--
	}},
	{"a dead job is nowhere", CheckLost, func(r *run) {
		id := r.find(1, dead)
		delete(r.snapshot.Dead, id)
		delete(r.snapshot.Counts, id)
		r.snapshot.Records = slices.DeleteFunc(r.snapshot.Records, func(x string) bool { return x == id })
	}},
	{"a handler is started twice under one lease", CheckFences, func(r *run) {
		id := r.find(1, acked)
		e := *r.of(id, record.Started)[0]
		log := r.process(id, e.Fence)
		i := slices.IndexFunc(*log, func(x record.Event) bool { return x.ID == id && x.Kind == record.Started })
		*log = slices.Insert(*log, i, e)
	}},
	{"two jobs are given one fence", CheckFences, func(r *run) {
		log := r.logs[1]
		byFence := map[int64]*record.Event{}
		for k := range log {
			if e := &log[k]; e.Kind == record.Started && e.Attempt == 1 {
				byFence[e.Fence] = e
			}
		}
		for _, fence := range slices.Sorted(maps.Keys(byFence)) {
			if byFence[fence+1] == nil || byFence[fence].Due > byFence[fence+1].Due {
				continue
			}
			id := byFence[fence+1].ID
			r.each(func(e *record.Event) bool {
				if e.ID == id && e.Fence == fence+1 {
					e.Fence = fence
				}
				return true
			})
			return
		}
		r.t.Fatal("no claim of two jobs")
	}},
	{"a later claim is given a lower fence", CheckFences, func(r *run) {
		id := r.find(2, retried, acked)
		starts := r.of(id, record.Started)
		first, second := starts[0].Fence, starts[1].Fence
		r.each(func(e *record.Event) bool {
			if e.ID == id && e.Fence == second {
				e.Fence = first - 1_000_000
			}
			if e.ID == id && e.Kind == record.Started && e.Attempt == 2 {
				e.Due -= 2_000 // so that it is not early, too
				e.Wait += 2_000_000
			}
			return true
		})
	}},
	{"the highest fence is below one that was given", CheckFences, func(r *run) { r.snapshot.Fence -= 60_000_000 }},
	{"a claim before the job is due", CheckDue, func(r *run) {
		e := r.of(r.find(1, acked), record.Started)[0]
		e.Due = e.Fence/1000 + 50
		e.Wait = 0 // what a Consumer would reckon does not matter
	}},
	{"a retry is due before its delay is over", CheckDue, func(r *run) {
		id := r.find(2, retried, acked)
		r.of(id, record.Settled)[0].Delay += 500_000
	}},
	{"an enqueue's delay is ignored", CheckDue, func(r *run) {
		r.of(r.find(1, acked), record.Called)[0].Delay = 5_000_000
	}},
	{"a claim while the lease before is held", CheckOverlap, func(r *run) {
		for i := range 1000 {
			id := fmt.Sprintf("job-%d", i+1)
			starts, returned := r.of(id, record.Started), r.of(id, record.Returned)
			if len(starts) != 2 || len(returned) != 2 || returned[0].At-starts[0].At < 18_000 || starts[1].Failures != 1 {
				continue
			}
			fence := r.offset(r.process(id, returned[0].Fence)) + returned[0].At - 12_000
			r.moveClaim(id, starts[1], fence, fence-1000)
			return
		}
		r.t.Fatal("no job whose first handler ran long enough")
	}},
	{"a settle is accepted under a lease that had run out", CheckSettles, func(r *run) {
		id := r.ranOut()
		first := r.of(id, record.Started)[0]
		log := r.process(id, first.Fence)
		*log = append(*log,
			record.Event{Kind: record.Returned, At: (*log)[len(*log)-1].At + 1, ID: id, Fence: first.Fence, Out: record.OutError, Deadline: first.Deadline},
			record.Event{Kind: record.Settled, At: (*log)[len(*log)-1].At + 2, ID: id, Fence: first.Fence, Out: record.OutRetried},
		)
	}},
	{"an ack is accepted under a lease that had run out", CheckSettles, func(r *run) {
		id := r.ranOut()
		first, second := r.of(id, record.Started)[0], r.of(id, record.Started)[1]
		log := r.process(id, first.Fence)
		at := second.Fence - r.offset(log) + 50_000
		*log = append(*log,
			record.Event{Kind: record.Returned, At: at, ID: id, Fence: first.Fence, Out: record.OutNil, Deadline: at},
			record.Event{Kind: record.Settled, At: at + 1000, ID: id, Fence: first.Fence, Out: record.OutAcked},
		)
		r.snapshot.Stats["acked"]++
		r.snapshot.Stats["claimed"]++
	}},
	{"two settles of a lease are accepted", CheckSettles, func(r *run) {
		id := r.find(1, acked)
		e := *r.of(id, record.Settled)[0]
		log := r.process(id, e.Fence)
		i := slices.IndexFunc(*log, func(x record.Event) bool { return x.ID == id && x.Kind == record.Settled })
		*log = slices.Insert(*log, i, e)
	}},
	{"a lease is expired early", CheckEarly, func(r *run) {
		id := r.ranOut()
		starts := r.of(id, record.Started)
		r.moveClaim(id, starts[1], starts[0].Fence+800_000, starts[0].Fence+799_000)
	}},
	{"a lease is expired before the expiry that an extend gave it", CheckEarly, func(r *run) {
		first := r.of(r.ranOut(), record.Started)[0]
		first.Deadline += 5_000_000
	}},
	{"a lease is expired late", CheckLate, func(r *run) {
		id := r.ranOut()
		starts := r.of(id, record.Started)
		r.moveClaim(id, starts[1], starts[1].Fence+900_000, starts[1].Due*1000+900_000)
	}},
	{"a lease that ran out is in processing at the end", CheckLate, func(r *run) { r.hold(r.find(1, acked), -400) }},
	{"a lease ran out under a holder that lived", CheckCauses, func(r *run) {
		r.each(func(e *record.Event) bool {
			if e.Kind == record.Faulted {
				e.Target = "another process"
			}
			return true
		})
		for i := range r.logs {
			if last := r.logs[i][len(r.logs[i])-1]; last.Kind != record.Closed {
				r.logs[i] = append(r.logs[i], record.Event{Kind: record.Closed, At: last.At + 10_000_000})
			}
		}
	}},
	{"a handler is told that its lease is lost, in peace", CheckCauses, func(r *run) {
		id := r.find(1, acked)
		end := *r.of(id, record.Returned)[0]
		r.each(func(e *record.Event) bool {
			if e.Kind == record.Faulted {
				e.Target = "another process"
			}
			return true
		})
		end.Kind, end.Out = record.Ended, record.OutLost
		log := r.process(id, end.Fence)
		for i := range *log {
			if e := &(*log)[i]; e.ID == id && e.Kind == record.Returned {
				*log = slices.Insert(*log, i, end)
				break
			}
		}
	}},
	{"a context is alive after the local deadline", CheckDeadlines, func(r *run) {
		id := r.find(1, acked)
		r.of(id, record.Returned)[0].Deadline = r.of(id, record.Returned)[0].At - 300_000
		r.of(id, record.Started)[0].Deadline = 0
	}},
	{"a claim says a wrong attempt", CheckCounts, func(r *run) { r.of(r.find(2, retried, acked), record.Started)[1].Attempt++ }},
	{"a nack counts nothing", CheckCounts, func(r *run) {
		e := r.of(r.find(2, retried, acked), record.Started)[1]
		e.Failures, e.Attempt = 0, 1
	}},
	{"a release counts a failure", CheckCounts, func(r *run) {
		e := r.of(r.find(2, record.OutReleased, acked), record.Started)[1]
		e.Failures, e.Attempt = 1, 2
	}},
	{"a first claim has a failure", CheckCounts, func(r *run) {
		e := r.of(r.find(1, acked), record.Started)[0]
		e.Failures, e.Attempt = 1, 2
	}},
	{"a redrive that nobody made", CheckCounts, func(r *run) { r.of(r.find(1, acked), record.Started)[0].Redrives = 1 }},
	{"the counters at the end are too high", CheckCounts, func(r *run) { r.snapshot.Counts[r.find(1, dead)] = "7 0 0 - - -" }},
	{"the counters at the end are no numbers", CheckCounts, func(r *run) { r.snapshot.Counts[r.find(1, dead)] = "x" }},
	{"a dead job is started without a redrive", CheckCounts, func(r *run) {
		id := r.find(2, retried, acked)
		r.of(id, record.Settled)[0].Out = dead
		r.of(id, record.Settled)[0].Delay = 0
	}},
	{"an acked job is started again", CheckAgain, func(r *run) {
		id := r.find(2, retried, acked)
		first := r.of(id, record.Settled)[0]
		first.Out, first.Delay = acked, 0
		r.snapshot.Stats["acked"]++
		r.snapshot.Stats["nacked"]--
	}},
	{"an acked job comes back as another job of one enqueue", CheckAgain, func(r *run) {
		id := r.find(2, retried, acked)
		r.of(id, record.Started)[1].Enqueued += 1000
	}},
	{"an acked job is due at the end", CheckAgain, func(r *run) {
		id := r.find(1, acked)
		r.snapshot.Due[id] = r.snapshot.At / 1000
		r.snapshot.Records = append(r.snapshot.Records, id)
	}},
	{"an enqueue that never ran has made a job", CheckAnswers, func(r *run) {
		r.answer(r.find(1, acked), record.OutRefused)
		r.snapshot.Stats["enqueued"]--
	}},
	{"a job is created twice", CheckAnswers, func(r *run) {
		id := r.find(1, dead)
		log := &r.logs[0]
		at := (*log)[len(*log)-2].At
		*log = append(*log, record.Event{Kind: record.Called, At: at, Call: 1 << 40, Op: record.OpEnqueue, ID: id},
			record.Event{Kind: record.Answered, At: at + 500, Call: 1 << 40, Out: record.OutOK})
		r.snapshot.Stats["enqueued"]++
	}},
	{"a job that nobody enqueued is delivered", CheckUnexpected, func(r *run) {
		r.answer(r.find(1, acked), "")
		r.drop(r.find(1, acked), record.Called)
		r.snapshot.Stats["enqueued"]--
	}},
	{"a job that nobody enqueued is due", CheckUnexpected, func(r *run) {
		r.snapshot.Due["stranger"] = r.snapshot.At / 1000
		r.snapshot.Records = append(r.snapshot.Records, "stranger")
	}},
	{"a job is in two places", CheckPlaces, func(r *run) { r.snapshot.Due[r.find(1, dead)] = r.snapshot.At / 1000 }},
	{"a job has no record", CheckPlaces, func(r *run) {
		id := r.find(1, dead)
		r.snapshot.Records = slices.DeleteFunc(r.snapshot.Records, func(x string) bool { return x == id })
	}},
	{"a record belongs to no job", CheckPlaces, func(r *run) { r.snapshot.Records = append(r.snapshot.Records, r.find(1, acked)) }},
	{"counters belong to no job", CheckPlaces, func(r *run) { r.snapshot.Counts[r.find(1, acked)] = "1 0 0 - - -" }},
	{"a result belongs to no job", CheckPlaces, func(r *run) { r.snapshot.Results = append(r.snapshot.Results, r.find(1, acked)) }},
	{"a job in processing has no lease", CheckLeases, func(r *run) {
		id := r.find(1, acked)
		r.hold(id, 500)
		delete(r.snapshot.Leases, id)
	}},
	{"a lease belongs to no job in processing", CheckLeases, func(r *run) { r.snapshot.Leases["job-1"] = "1:s:1" }},
	{"a due job waits beside a free slot", CheckStarts, func(r *run) { r.idle() }},
	{"a fence is far from the server's clock", CheckClocks, func(r *run) {
		id := r.find(1, acked)
		fence := r.of(id, record.Started)[0].Fence
		r.each(func(e *record.Event) bool {
			if e.ID == id && e.Fence == fence {
				e.Fence += 50_000
			}
			return true
		})
		r.snapshot.Fence += 50_000
	}},
	{"the counters of the queue do not balance", CheckStats, func(r *run) { r.snapshot.Stats["released"]++ }},
	{"the queue counts fewer acks than were answered", CheckStats, func(r *run) {
		r.snapshot.Stats["acked"] -= 5
		r.snapshot.Stats["claimed"] -= 5
	}},
	{"an answer has no call", CheckHistory, func(r *run) {
		r.logs[0] = append(r.logs[0], record.Event{Kind: record.Answered, At: 1, Call: 1 << 41, Out: record.OutOK})
	}},
	{"a handler returns that was not started", CheckHistory, func(r *run) {
		r.logs[1] = append(r.logs[1], record.Event{Kind: record.Returned, At: 1, ID: "job-1", Fence: r.of("job-1", record.Started)[0].Fence - 1, Out: record.OutNil})
	}},
}

func TestWrongHistoriesAreCaughtByTheRightCheck(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	require.True(t, r.check().OK(), text(t, r.check()))
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			r := newRun(t)
			m.make(r)
			report := r.check()
			found := map[string]int64{}
			for _, c := range report.Checks {
				if c.Violations > 0 {
					found[c.Name] = c.Violations
				}
			}
			require.Equal(t, []string{m.want}, slices.Sorted(maps.Keys(found)), text(t, report))
			require.False(t, report.OK())
		})
	}
}

func TestEveryCheckHasAMutant(t *testing.T) {
	t.Parallel()
	caught := map[string]bool{}
	for _, m := range mutants {
		caught[m.want] = true
	}
	for _, c := range described {
		require.True(t, caught[c.Name], "no wrong history is made for the check %s", c.Name)
	}
}
