//go:build unix

package chaos

import (
	"context"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/chaos/record"
	"github.com/leaseq/leaseq/reliable"
)

// TestARealFreezePasses stops a worker process for longer than its leases, has another one take over, and lets it go on.
func TestARealFreezePasses(t *testing.T) {
	t.Parallel()
	w := newWorkbench(t)
	w.enqueue(4, "hang", 0)
	child := w.child(4)
	w.rec.Write(&record.Event{Kind: record.Faulted, Call: 1, Out: record.FaultBegin, Name: "SIGSTOP", Target: "child", Effects: []string{record.Freezes}})
	require.NoError(t, child.cmd.Process.Signal(syscall.SIGSTOP))
	w.rec.Write(&record.Event{Kind: record.Faulted, Call: 1, Out: record.FaultBites})
	stop := w.work("successor", reliable.HandlerFunc(func(context.Context, *reliable.Job) error { return nil }), reliable.ConsumerOptions{})
	w.drained()
	require.NoError(t, child.cmd.Process.Signal(syscall.SIGCONT))
	w.rec.Write(&record.Event{Kind: record.Faulted, Call: 1, Out: record.FaultEnd})
	child.await(4, func(e *record.Event) bool { return e.Kind == record.Settled })
	child.await(1, func(e *record.Event) bool { return e.Kind == record.Paused })
	stop()
	child.kill()
	r := w.judge()
	require.True(t, r.OK(), text(t, r))
	require.EqualValues(t, 4, r.Totals.Duplicated)
	require.EqualValues(t, 4, r.Cases["settle gone"])
	require.NotZero(t, r.Cases["process stood still"])
	require.EqualValues(t, 4, r.Cases["context ended: lost"])
	require.EqualValues(t, 8, r.Check(CheckCauses).Looked)
	require.EqualValues(t, 4, r.Check(CheckLate).Looked)
}
