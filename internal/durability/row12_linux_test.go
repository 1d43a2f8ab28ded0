package durability

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/chaos/record"
)

// A smallDisk is a file system of a few MB with a file on it that leaves little room.
type smallDisk struct {
	t      *testing.T
	dir    string
	filler string
}

func newSmallDisk(t *testing.T) *smallDisk {
	t.Helper()
	const size, room = 64 << 20, 3 << 20
	d := &smallDisk{t: t, dir: t.TempDir()}
	if err := syscall.Mount("leaseq", d.dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(d.dir, 0)) })
	d.filler = filepath.Join(d.dir, "filler")
	require.NoError(t, os.WriteFile(d.filler, make([]byte, size-room), 0o600))
	return d
}

func (d *smallDisk) makeRoom() {
	d.t.Helper()
	require.NoError(d.t, os.Remove(d.filler))
}

// diskRig is a rig whose jobs fill the disk in a second or two.
func diskRig(t *testing.T, fsync string) (*rig, *smallDisk) {
	t.Helper()
	disk := newSmallDisk(t)
	return newRig(t, rigOptions{fsync: fsync, dir: disk.dir, args: noRewrites, later: stays, payload: 8 << 10, bare: true}), disk
}

// The disk is full, with everysec: enqueues are refused with ErrMisconf, which says that they did nothing, and claims and
// settles wait. When there is room again all goes on by itself: nobody has to be restarted, and nothing is lost.
func TestRow12_OnAFullDiskEverysecRefusesAndGoesOnWhenThereIsRoom(t *testing.T) {
	t.Parallel()
	r, disk := diskRig(t, "everysec")
	pid := r.server.Pid()
	began := time.Now()
	require.Eventually(t, func() bool { return r.refused.Load() > 100 }, time.Minute, time.Millisecond)
	require.Regexp(t, "(Short write while|Error) writing to the AOF file", r.log())
	disk.makeRoom()
	r.flows()
	r.fault("disk full", began, time.Now(), record.Outage)
	require.Equal(t, pid, r.server.Pid(), "the server has never ended")
	report := r.judge()
	fine(t, report)
	require.Positive(t, report.Totals.Acked)
	require.Zero(t, report.Totals.Maybe, "what was refused did nothing, for sure")
	t.Logf("%d enqueues acknowledged, %d refused, %d lost", report.Totals.Acknowledged, r.refused.Load(), report.Totals.Lost)
}

// The disk is full, with always: Redis cannot keep what it promises, and ends. Callers wait; after a start with room again
// nothing that was answered is lost.
func TestRow12_OnAFullDiskAlwaysEndsTheServerAndLosesNothing(t *testing.T) {
	t.Parallel()
	r, disk := diskRig(t, "always")
	began := time.Now()
	require.Eventually(t, func() bool { return r.server.Pid() == 0 }, time.Minute, time.Millisecond)
	require.Contains(t, r.log(), "Can't recover from AOF write error when the AOF fsync policy is 'always'")
	disk.makeRoom()
	r.restart()
	r.fault("disk full", began, time.Now(), record.Outage)
	r.flows()
	report := r.judge()
	fine(t, report)
	require.Positive(t, report.Totals.Acked)
	require.Zero(t, r.refused.Load())
	t.Logf("%d enqueues acknowledged, %d lost", report.Totals.Acknowledged, report.Totals.Lost)
}
