package chaos

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/chaos/record"
)

// unclose has the process that holds a job's lease be killed at the end.
func (r *run) unclose(id string) {
	log := r.process(id, r.of(id, record.Started)[0].Fence)
	require.Equal(r.t, record.Closed, (*log)[len(*log)-1].Kind)
	*log = (*log)[:len(*log)-1]
}

// living is a job that was acked by a process that ended in order.
func (r *run) living() string {
	for _, log := range r.logs {
		if log[len(log)-1].Kind != record.Closed {
			continue
		}
		for k := range log {
			if e := &log[k]; e.Kind == record.Settled && e.Out == acked && len(r.of(e.ID, record.Started)) == 1 {
				return e.ID
			}
		}
	}
	r.t.Fatal("no such job")
	return ""
}

func TestWhatMayHaveHappenedIsNoViolation(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(r *run, id string){
		"an ack without an answer ran": func(r *run, id string) { r.drop(id, record.Settled) },
		"an ack without an answer did not run": func(r *run, id string) {
			r.drop(id, record.Settled)
			s := r.snapshot
			s.Due[id], s.Counts[id] = r.of(id, record.Started)[0].Fence/1000+simLease/1000+10, "0 1 0 - - -"
			s.Records = append(s.Records, id)
			s.Stats["acked"]--
			s.Stats["expired"]++
		},
		"a failure without an answer was a nack": func(r *run, id string) {
			r.drop(id, record.Settled)
			r.of(id, record.Returned)[0].Out = record.OutError
			s := r.snapshot
			s.Due[id], s.Counts[id] = s.At/1000, "1 0 0 - - -"
			s.Records = append(s.Records, id)
			s.Stats["acked"]--
			s.Stats["nacked"]++
		},
		"an enqueue without an answer ran":  func(r *run, id string) { r.answer(id, "") },
		"an enqueue of unknown outcome ran": func(r *run, id string) { r.answer(id, record.OutUnknown) },
		"an enqueue without an answer never ran": func(r *run, id string) {
			r.answer(id, "")
			r.drop(id, record.Started, record.Returned, record.Settled)
			for _, name := range []string{"enqueued", "claimed", "acked"} {
				r.snapshot.Stats[name]--
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRun(t)
			id := r.living()
			r.unclose(id)
			make(r, id)
			report := r.check()
			require.True(t, report.OK(), text(t, report))
		})
	}
}

func TestAnEnqueueOfUnknownOutcomeThatRanIsCounted(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	r.answer(r.living(), record.OutUnknown)
	report := r.check()
	require.True(t, report.OK(), text(t, report))
	require.EqualValues(t, 1, report.Totals.Maybe)
	require.EqualValues(t, 1, report.Totals.MaybeFound)
	require.EqualValues(t, 999, report.Totals.Acknowledged)
	require.EqualValues(t, 1, report.Cases["enqueue unknown"])
}

// TestAFailureWithoutAnAnswerIsNoAck: a handler that returned an error cannot have acked its job.
func TestAFailureWithoutAnAnswerIsNoAck(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	id := r.living()
	r.unclose(id)
	r.drop(id, record.Settled)
	r.of(id, record.Returned)[0].Out = record.OutError
	require.EqualValues(t, 1, r.check().Totals.Lost)
}

func TestAReportIsJSON(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	r.of(r.find(2, retried, acked), record.Started)[1].Attempt++
	report := r.check()
	first, err := json.Marshal(report)
	require.NoError(t, err)
	var again Report
	require.NoError(t, json.Unmarshal(first, &again))
	require.Equal(t, report.Totals, again.Totals)
	require.Equal(t, report.Cases, again.Cases)
	require.EqualValues(t, 1, again.Violations())
	require.Len(t, again.Check(CheckCounts).Examples[0].Events, 8)
	second, err := json.Marshal(r.check())
	require.NoError(t, err)
	require.JSONEq(t, string(first), string(second))
}
