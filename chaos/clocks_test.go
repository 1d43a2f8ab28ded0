package chaos

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/chaos/record"
)

// TestADeadlineThatAHeartbeatHasMovedTellsNothingOfTheClock: a start that came 20 ms after its claim, and saw the deadline
// that a heartbeat for other jobs had moved by 15 ms in between.
func TestADeadlineThatAHeartbeatHasMovedTellsNothingOfTheClock(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	id := r.find(1, acked)
	r.each(func(e *record.Event) bool {
		if e.ID == id && e.Fence != 0 {
			e.At += 20_000
		}
		return true
	})
	start := r.of(id, record.Started)[0]
	start.Wait += 20_000
	start.Deadline += 15_000
	r.of(id, record.Returned)[0].Deadline += 15_000
	report := r.check()
	require.True(t, report.OK(), text(t, report))
	require.NotZero(t, report.Check(CheckClocks).Looked)
}

// TestAFenceThatIsGivenTwiceIsNeverExcused: a failover may lose what was written, and gives out no fence again.
func TestAFenceThatIsGivenTwiceIsNeverExcused(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	for _, m := range mutants {
		if m.name == "two jobs are given one fence" {
			m.make(r)
		}
	}
	first := r.of(r.find(1, acked), record.Started)[0]
	r.window(record.Loses, "", first.Fence-1_000_000, r.snapshot.At)
	report := r.check()
	require.EqualValues(t, 1, report.Check(CheckFences).Violations, text(t, report))
	require.Zero(t, report.Check(CheckFences).Excused)
}
