package chaos

import (
	"context"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

const rowLease = time.Second

// Where `make test` stops.
const longOnly = "a storm of one row of the table of faults: runs in make rows"

// stormOfRow is a short storm with the faults of one row, each of which must have its effect.
func stormOfRow(t *testing.T, o Options, faults ...string) *Outcome {
	t.Helper()
	if !Child() { // a worker would start one for itself
		redistest.NeedServer(t)
	}
	chosen, err := FaultsNamed(faults...)
	require.NoError(t, err)
	o.Faults, o.Lease, o.Rate, o.Workers, o.Concurrency = chosen, rowLease, 100, 3, 8
	if o.Duration == 0 && o.Schedule == nil {
		o.Duration = 10 * rowLease
	}
	if !Child() {
		t.Parallel()
	}
	r := Test(t, &o)
	for _, f := range r.Faults {
		if f.Unavailable != "" {
			t.Skip(f.Unavailable)
		}
	}
	return r
}

// inFull skips a test where only the short ones run.
func inFull(t *testing.T) {
	t.Helper()
	if os.Getenv("LEASEQ_CASES") != "full" {
		t.Skip(longOnly)
	}
}

// An errand is a job that takes a moment, and succeeds: nothing but a fault can make its lease run out.
type errand struct{ Number int }

func (errand) Kind() string { return "errand" }

// errands are such jobs, and workers for them.
func errands() Options {
	return Options{
		Job: func(i int) (reliable.Kinder, *reliable.EnqueueOptions) { return errand{i}, nil },
		Worker: func(ctx context.Context, w *Worker) error {
			q, err := reliable.New(w.Client(), w.Queue(), w.QueueOptions())
			if err != nil {
				return err
			}
			c, err := reliable.NewConsumer(q, reliable.HandlerFunc(func(ctx context.Context, job *reliable.Job) error {
				rest(ctx, time.Duration(len(job.ID)+int(job.Fence()%40))*time.Millisecond)
				return context.Cause(ctx)
			}), w.ConsumerOptions())
			if err == nil {
				err = c.Run(ctx)
			}
			over, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			_ = q.Close(over)
			return err
		},
	}
}

// exact requires that no job was started twice by a lease that ran out. On a machine that lets processes stand still that
// can happen, and is judged by the checks.
func exact(t *testing.T, r *Outcome) {
	t.Helper()
	if r.Sometimes["process stood still"] > 0 {
		t.Logf("%d standstills of processes: %d duplicates", r.Sometimes["process stood still"], r.Duplicated)
		return
	}
	require.Zero(t, r.Duplicated)
}

func TestRow01_AWorkerIsKilledAndItsJobsStartAnewWithinALeaseAndAQuarterSecond(t *testing.T) {
	r := stormOfRow(t, Options{}, "worker-kill")
	require.Positive(t, r.Kills)
	require.Positive(t, r.Recovered)
	require.LessOrEqual(t, r.Duplicated, r.Report.Totals.Exposed)
	require.LessOrEqual(t, r.RecoveryMax, float64((rowLease+prompt).Milliseconds()+r.SlackMS))
}

func TestRow02_AWorkerStandsStillForLongerThanItsLeases(t *testing.T) {
	inFull(t)
	r := stormOfRow(t, Options{Duration: 13 * rowLease}, "worker-stop")
	require.Positive(t, r.Stops)
	require.Positive(t, r.Recovered)
	require.Positive(t, r.Report.Cases["settle lost"]+r.Report.Cases["settle gone"]+r.Report.Cases["context ended: lost"], "holders were told")
}

func TestRow03_ADeployCountsNothing(t *testing.T) {
	inFull(t)
	r := stormOfRow(t, errands(), "worker-term")
	exact(t, r)
	require.Zero(t, r.Report.Cases["settle retried"]+r.Report.Cases["settle dead"])
}

func TestRow05_LostRepliesChangeNoResult(t *testing.T) {
	inFull(t)
	r := stormOfRow(t, errands(), "reply-drop")
	require.Zero(t, r.Report.Cases["settle retried"]+r.Report.Cases["settle dead"])
	exact(t, r)
}

func TestRow06_WhatWasSentToAStoppedServerRunsLaterWithoutHarm(t *testing.T) {
	inFull(t)
	r := stormOfRow(t, Options{Duration: 14 * rowLease}, "server-stop")
	require.Positive(t, r.Report.Cases["fault: outage"])
}

func TestRow07_AWorkerThatIsCutOffLosesItsLeasesAndKnows(t *testing.T) {
	inFull(t)
	r := stormOfRow(t, Options{Duration: 13 * rowLease}, "cut-off")
	require.Positive(t, r.Recovered)
	require.Positive(t, r.Report.Cases["settle lost"]+r.Report.Cases["settle gone"]+r.Report.Cases["context ended: lost"], "holders were told")
}

func TestRow08_SlowLinksAndPacketsOfOneByteChangeNoResult(t *testing.T) {
	inFull(t)
	exact(t, stormOfRow(t, errands(), "reply-delay", "one-byte"))
}

func TestRow09_AServerIsKilledAndStartedAgain(t *testing.T) {
	inFull(t)
	r := stormOfRow(t, Options{Duration: 15 * rowLease}, "redis-kill-always", "redis-kill-everysec", "redis-kill-no")
	if r.Report.Cases["fault: loses"] == 0 { // there was no kill during a sync
		require.Zero(t, r.Report.Totals.LostExcused)
	}
}

func TestRow10_APowerCutUnderAlwaysLosesNothing(t *testing.T) {
	inFull(t)
	r := stormOfRow(t, Options{}, "power-cut-always")
	require.Zero(t, r.Report.Cases["fault: loses"])
	require.Zero(t, r.Report.Totals.LostExcused)
}

func TestRow10_APowerCutUnderEverysecForgetsTheLastTwoSecondsAtMost(t *testing.T) {
	r := stormOfRow(t, Options{}, "power-cut-everysec")
	require.Positive(t, r.Report.Cases["fault: loses"])
}

func TestRow11_AFileThatEndsInTheMiddleOfAScript(t *testing.T) {
	inFull(t)
	r := stormOfRow(t, Options{}, "aof-torn")
	require.Positive(t, r.Report.Cases["fault: loses"])
}

func TestRow12_AFullDiskIsRefusedAndGoneOnFromWhenThereIsRoom(t *testing.T) {
	inFull(t)
	r := stormOfRow(t, Options{Duration: 14 * rowLease}, "disk-full")
	require.Zero(t, r.Report.Totals.LostExcused)
}

func TestRow13_AFullMemoryRefusesEnqueuesAndNothingElse(t *testing.T) {
	inFull(t)
	exact(t, stormOfRow(t, errands(), "memory-full"))
}

func TestRow14_KeysThatHoldNoJobsAreDeletedByHand(t *testing.T) {
	inFull(t)
	stormOfRow(t, Options{}, "keys-deleted")
}

func TestRow20_FlushedScriptsAreNotNoticed(t *testing.T) {
	inFull(t)
	r := stormOfRow(t, errands(), "script-flush")
	require.Zero(t, r.Report.Cases["enqueue unknown"])
	exact(t, r)
}

func TestRow21_ABusyServerEndsNoLeases(t *testing.T) {
	inFull(t)
	exact(t, stormOfRow(t, errands(), "server-busy", "server-paused"))
}

func TestRow22_TheServersClockIsMoved(t *testing.T) {
	inFull(t)
	const seed = 22
	pick := func(way int) uint64 { // of jumps: 0 by minutes, 1 by seconds, 2 back
		for n := uint64(1); ; n++ {
			if rand.New(rand.NewPCG(seed, n)).IntN(4) == way {
				return n
			}
		}
	}
	s := &Schedule{Seed: seed, DurationMS: 16_000}
	for i, way := range []int{1, 2, 0} {
		s.Faults = append(s.Faults, Planned{Name: "clock-jump", Lane: Server, AtMS: 1000 + 3000*int64(i), ForMS: 300, Pick: pick(way)})
	}
	r := stormOfRow(t, Options{Schedule: s}, "clock-jump")
	require.EqualValues(t, 3, r.Report.Cases["fault: steps"])
	require.Positive(t, r.Report.Check(CheckStarts).Looked, "claims after the last step are judged")
}

func TestRow23_WrongClocksOfWorkersChangeNothing(t *testing.T) {
	inFull(t)
	r := stormOfRow(t, errands(), "worker-clock")
	require.Positive(t, r.Report.Cases["fault: skews"])
	exact(t, r)
}

func TestRow25_FiveSidecarsBesideTheWorkersAreExact(t *testing.T) {
	inFull(t)
	r := stormOfRow(t, Options{Duration: 13 * rowLease}, "five-sweepers", "worker-kill") // which makes something to be swept
	require.Positive(t, r.Recovered)
}

func TestRow25_WithoutASweeperNothingIsLost(t *testing.T) {
	inFull(t)
	r := stormOfRow(t, Options{Schedule: &Schedule{
		Seed: 25, DurationMS: 15_000, Faults: []Planned{
			{Name: "no-sweeper", Lane: Kills, AtMS: 3000, ForMS: 1200, Pick: 1},
			{Name: "no-sweeper", Lane: Kills, AtMS: 7000, ForMS: 1400, Pick: 2},
		},
	}}, "no-sweeper")
	require.GreaterOrEqual(t, r.Kills, int64(3))
	require.Positive(t, r.Recovered)
}

// The program stands for one of another version: what a real one does is in internal/cases.
func TestRow26_AWorkerThatIsAnotherProgramTakesTheirPlaceForAWhile(t *testing.T) {
	inFull(t)
	self, err := os.Executable()
	require.NoError(t, err)
	r := stormOfRow(t, Options{
		Command: []string{self, commandWorker}, OtherVersion: []string{self, commandWorker},
		Job: func(i int) (reliable.Kinder, *reliable.EnqueueOptions) { return ping{i}, nil },
	}, "two-versions")
	exact(t, r)
}

func TestRow27_RefusedConnectionsAreTriedAgain(t *testing.T) {
	inFull(t)
	stormOfRow(t, Options{}, "connections-refused")
}
