package chaos

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/chaos/record"
)

// window writes a fault into the harness' log, from and to on the server's clock.
func (r *run) window(effect, target string, from, to int64) {
	offset := r.offset(&r.logs[0])
	r.logs[0] = append(r.logs[0],
		record.Event{Kind: record.Faulted, At: from - offset, Call: 1 << 43, Out: record.FaultBegin, Name: effect, Target: target, Effects: []string{effect}},
		record.Event{Kind: record.Faulted, At: to - offset, Call: 1 << 43, Out: record.FaultEnd})
}

// lose makes a job that was acked one that is nowhere, and returns its claim.
func (r *run) lose() *record.Event {
	id := r.find(1, acked)
	r.drop(id, record.Settled, record.Returned)
	return r.of(id, record.Started)[0]
}

func TestAJobThatRedisForgotIsAnExcusedLoss(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	start := r.lose()
	r.window(record.Loses, "", start.Fence-1000, start.Fence+1000)
	report := r.check()
	require.True(t, report.OK(), text(t, report))
	require.EqualValues(t, 0, report.Totals.Lost)
	require.EqualValues(t, 1, report.Totals.LostExcused)
	require.NotZero(t, report.Check(CheckLost).Excused)
}

func TestAWindowElsewhereExcusesNothing(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	start := r.lose()
	r.window(record.Loses, "", start.Fence+10_000_000, start.Fence+10_100_000)
	report := r.check()
	require.EqualValues(t, 1, report.Totals.Lost)
	require.EqualValues(t, 1, report.Check(CheckLost).Violations)
}

// late has a lease that ran out be expired 900 ms late, and returns when it ran out.
func (r *run) late() int64 {
	id := r.ranOut()
	starts := r.of(id, record.Started)
	ranOut := starts[1].Due * 1000
	r.moveClaim(id, starts[1], starts[1].Fence+900_000, ranOut+900_000)
	return ranOut
}

func TestAnOutageSparesALeaseForOneMore(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	ranOut := r.late()
	r.window(record.Outage, "", ranOut-200_000, ranOut-100_000)
	report := r.check()
	require.True(t, report.OK(), text(t, report))
	require.NotZero(t, report.Check(CheckLate).Excused)
}

func TestAnOutageAfterTheLeaseWasDueToExpireSparesNothing(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	ranOut := r.late()
	r.window(record.Outage, "", ranOut+700_000, ranOut+800_000)
	require.EqualValues(t, 1, r.check().Check(CheckLate).Violations)
}

// What a worker had sent when it died was on a slow link: its lease was extended later than it died.
func TestASlowLinkMayExtendALeaseAfterItsHoldersDeath(t *testing.T) {
	t.Parallel()
	violations := func(target string) int64 {
		r := newRun(t)
		ranOut := r.late()
		if target == "its own" {
			log := *r.process(r.ranOut(), r.of(r.ranOut(), record.Started)[0].Fence)
			target = log[0].Process
		}
		r.window(record.Lossy, target, ranOut-2*simLease, ranOut-simLease+800_000)
		return r.check().Check(CheckLate).Violations
	}
	require.EqualValues(t, 1, violations("another"))
	require.Zero(t, violations("its own"))
}

func TestSlackIsAddedToBoundsOfTime(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	r.late()
	h := History{}
	for _, log := range r.logs {
		h = append(h, log)
	}
	report := mustCheck(t, h, r.snapshot, &CheckOptions{Slack: 1_000_000_000})
	require.True(t, report.OK(), text(t, report))
}

func TestTimesOnTwoSidesOfAStepOfTheClockAreNotCompared(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	id := r.ranOut()
	starts := r.of(id, record.Started)
	middle := (starts[0].Fence + starts[1].Fence) / 2
	r.window(record.Steps, "", middle, middle+1000)
	report := r.check()
	require.NotZero(t, report.Check(CheckOverlap).Untold)
	require.True(t, report.OK(), text(t, report))
}

func TestAStandstillExplainsALeaseThatRanOut(t *testing.T) {
	t.Parallel()
	mutant := func(r *run) *Lines {
		for _, m := range mutants {
			if m.want == CheckCauses {
				m.make(r)
			}
		}
		return r.process(r.ranOut(), r.of(r.ranOut(), record.Started)[0].Fence)
	}
	r := newRun(t)
	log := mutant(r)
	before := r.check().Check(CheckCauses).Violations
	start := r.of(r.ranOut(), record.Started)[0]
	*log = append(*log, record.Event{Kind: record.Paused, At: start.At + 1000, Until: start.At + 900_000})
	require.Less(t, r.check().Check(CheckCauses).Violations, before)
}

// A claim's answer came so late that little of the lease was left. What kept it away was over when the claim ran.
func TestAFaultBeforeALateAnswerExplainsTheLossRightAfterIt(t *testing.T) {
	t.Parallel()
	violations := func(window bool) int64 {
		r := newRun(t)
		id := r.find(1, acked)
		start, returned := r.of(id, record.Started)[0], r.of(id, record.Returned)[0]
		start.Deadline = start.At + 100
		returned.Deadline = start.Deadline
		log := r.process(id, start.Fence)
		at := slices.IndexFunc(*log, func(e record.Event) bool { return e.Kind == record.Returned && e.ID == id })
		*log = slices.Insert(*log, at, record.Event{Kind: record.Ended, At: start.At + 150, ID: id, Fence: start.Fence, Out: record.OutLost, Deadline: start.Deadline})
		if window {
			r.window(record.Outage, "", start.Fence-700_000, start.Fence-500_000)
		}
		return r.check().Check(CheckCauses).Violations
	}
	require.EqualValues(t, 1, violations(false))
	require.Zero(t, violations(true))
}

func TestAContextThatOutlivedItsDeadlineInAFrozenProcessIsExcused(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	id := r.find(1, acked)
	returned := r.of(id, record.Returned)[0]
	returned.Deadline = returned.At - 300_000
	log := r.process(id, returned.Fence)
	*log = append(*log, record.Event{Kind: record.Paused, At: returned.At - 290_000, Until: returned.At - 10_000})
	report := r.check()
	require.True(t, report.OK(), text(t, report))
	require.NotZero(t, report.Check(CheckDeadlines).Excused)
}

func TestAReportSaysWhatWasNotLookedAt(t *testing.T) {
	t.Parallel()
	h, s := simulate(1, simSize{jobs: 20, workers: 1, slots: 1})
	require.Regexp(t, `late-expiry +looked at nothing: 0`, text(t, mustCheck(t, h, s, nil)))
}

func TestAViolationShowsTheEventsOfItsJob(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	id := r.find(2, retried, acked)
	r.of(id, record.Started)[1].Attempt++
	v := r.check().Check(CheckCounts).Examples[0]
	require.Equal(t, id, v.ID)
	var kinds []record.Kind
	for _, s := range v.Events {
		kinds = append(kinds, s.Event.Kind)
	}
	require.Equal(t, record.Called, kinds[0])
	require.ElementsMatch(t, []record.Kind{
		record.Called, record.Answered, record.Started, record.Returned, record.Settled, record.Started, record.Returned, record.Settled,
	}, kinds)
}

func TestExamplesAreBounded(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	r.each(func(e *record.Event) bool {
		if e.Kind == record.Started {
			e.Attempt++
		}
		return true
	})
	c := r.check().Check(CheckCounts)
	require.Greater(t, c.Violations, int64(900))
	require.Len(t, c.Examples, 5)
}

func TestAHistoryOfAnotherQueueIsRefused(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	r.snapshot.Queue = "other"
	_, err := Check(History{r.logs[0]}, r.snapshot, nil)
	require.ErrorContains(t, err, `a history of queue "q"`)
	_, err = Check(History{r.logs[0], r.logs[1], r.logs[0]}, newRun(t).snapshot, nil)
	require.ErrorContains(t, err, `two histories of a process "harness"`)
	_, err = Check(nil, nil, nil)
	require.ErrorContains(t, err, "snapshot is nil")
	_, err = Check(nil, r.snapshot, &CheckOptions{Slack: -1})
	require.ErrorContains(t, err, "want 0 or more")
	_, err = ReadDir(t.TempDir())
	require.ErrorContains(t, err, "no history")
}
