package chaos

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/chaos/record"
)

// stepBack writes into the harness' log that the server's clock was moved back by 100 ms before the first claim, and how
// long after that it lasted, µs.
func (r *run) stepBack(lasted int64) {
	first := r.snapshot.At
	r.each(func(e *record.Event) bool {
		if e.Kind == record.Started {
			first = min(first, e.Fence)
		}
		return true
	})
	at := first - r.offset(&r.logs[0]) - 1_000_000
	r.logs[0] = append(r.logs[0],
		record.Event{Kind: record.Faulted, At: at, Call: 1 << 43, Out: record.FaultBegin, Name: "back", Effects: []string{record.Steps}, Delay: -100_000},
		record.Event{Kind: record.Faulted, At: at + 1000, Call: 1 << 43, Out: record.FaultBites},
		record.Event{Kind: record.Faulted, At: at + 1000 + lasted, Call: 1 << 43, Out: record.FaultEnd})
}

func TestAfterAStepBackThatTheClockHasMadeGoodTimesAreJudged(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	r.stepBack(100_000)
	report := r.check()
	require.True(t, report.OK(), text(t, report))
	require.NotZero(t, report.Check(CheckStarts).Looked)
	r.late()
	report = r.check()
	require.NotZero(t, report.Check(CheckLate).Violations, text(t, report))
}

func TestAfterAStepBackThatTheClockHasNotMadeGoodFencesAreNoTimes(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	r.stepBack(99_000)
	r.late()
	report := r.check()
	require.True(t, report.OK(), text(t, report))
	require.Zero(t, report.Check(CheckLate).Looked)
}

// skew has one worker say a wrong time of day, and tells of it or not.
func (r *run) skew(told bool) {
	const hour = 3_600_000_000
	log := r.logs[1]
	log[0].Wall += hour
	if told {
		r.logs[0] = append(r.logs[0], record.Event{
			Kind: record.Faulted, At: 1, Call: 1 << 44, Out: record.FaultBegin, Name: "skew", Target: log[0].Process, Effects: []string{record.Skews}, Delay: hour,
		})
	}
}

func TestAProcessWithAWrongWallClockIsJudgedAsOneWithARightOne(t *testing.T) {
	t.Parallel()
	judged := func(change func(r *run)) *Report {
		r := newRun(t)
		r.stepBack(100_000)
		change(r)
		return r.check()
	}
	right := judged(func(*run) {})
	told := judged(func(r *run) { r.skew(true) })
	require.True(t, told.OK(), text(t, told))
	for i := range right.Checks {
		require.Equal(t, right.Checks[i].Looked, told.Checks[i].Looked, right.Checks[i].Name)
		require.Equal(t, right.Checks[i].Untold, told.Checks[i].Untold, right.Checks[i].Name)
	}
	caught := judged(func(r *run) {
		r.skew(true)
		r.late()
	})
	require.NotZero(t, caught.Check(CheckLate).Violations, text(t, caught))
}

// TestALeaseThatWasHeldWhileRedisForgotIsExcused: that it was extended may be what is forgotten, and then it runs out early.
func TestALeaseThatWasHeldWhileRedisForgotIsExcused(t *testing.T) {
	t.Parallel()
	early := func() (r *run, from, to int64) {
		r = newRun(t)
		start := r.of(r.ranOut(), record.Started)[0]
		start.Deadline += 5_000_000
		log := r.process(start.ID, start.Fence)
		last := start.At
		for _, e := range *log {
			last = max(last, e.At)
		}
		return r, start.At + r.offset(log), last + r.offset(log) // when its holder was killed
	}
	r, from, to := early()
	require.Greater(t, to-from, int64(12_000))
	require.EqualValues(t, 1, r.check().Check(CheckEarly).Violations)
	r.window(record.Loses, "", (from+to)/2-500, (from+to)/2+500) // it is held, and nothing of it is answered
	report := r.check()
	require.Zero(t, report.Check(CheckEarly).Violations, text(t, report))
	require.NotZero(t, report.Check(CheckEarly).Excused)
	for _, before := range []bool{true, false} {
		r, from, to := early()
		if before {
			r.window(record.Loses, "", from-60_000, from-40_000)
		} else {
			r.window(record.Loses, "", to+40_000, to+60_000)
		}
		require.EqualValues(t, 1, r.check().Check(CheckEarly).Violations, "a window before: %v", before)
	}
}

func TestAFaultWithoutAnEffectOnHoldersExplainsNoLeaseThatRanOut(t *testing.T) {
	t.Parallel()
	causes := func(effect string) int64 {
		r := newRun(t)
		for _, m := range mutants {
			if m.want == CheckCauses {
				m.make(r)
				break
			}
		}
		first := r.of(r.ranOut(), record.Started)[0].Fence
		r.window(effect, "", first-10_000_000, r.snapshot.At)
		return r.check().Check(CheckCauses).Violations
	}
	for _, effect := range []string{"", record.Dies, record.Skews} {
		require.NotZero(t, causes(effect), effect)
	}
	for _, effect := range []string{record.Freezes, record.Cut, record.Lossy, record.Outage, record.Steps, record.Loses} {
		require.Zero(t, causes(effect), effect)
	}
}
