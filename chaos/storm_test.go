package chaos

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/oldversion"
)

// stormTime is how long TestAStorm storms: short by default, and as long as LEASEQ_CHAOS_DURATION says for make chaos and
// make soak.
func stormTime(t *testing.T) (time.Duration, bool) {
	text := os.Getenv("LEASEQ_CHAOS_DURATION")
	if text == "" {
		return 12 * time.Second, false
	}
	d, err := time.ParseDuration(text)
	require.NoError(t, err, "LEASEQ_CHAOS_DURATION")
	return d, true
}

// everyTenSeconds logs how far a run is.
func everyTenSeconds(t *testing.T) func(Progress) {
	next := 10 * time.Second
	return func(p Progress) {
		if p.Elapsed < next {
			return
		}
		next += 10 * time.Second
		t.Logf("%v of %v, %s: jobs %d, acked %d, outstanding %d, kills %d, stops %d, faults %d, expiries %d, violations %d",
			p.Elapsed.Round(time.Second), p.Total, p.Phase, p.Enqueued, p.Acked, p.Outstanding, p.Kills, p.Stops, p.Faults, p.Expired, p.Violations)
	}
}

// fullDemands is from which duration on each fault and each interesting case must have come.
const fullDemands = 10 * time.Minute

// TestAStorm is a storm with all faults. One of make chaos must have had enough jobs, kills and stops for its time; one of
// ten minutes or more all faults, each with its effect, and all interesting cases.
func TestAStorm(t *testing.T) {
	t.Parallel()
	d, whole := stormTime(t)
	o := &Options{Duration: d, Lease: time.Second, Rate: 80, Workers: 3} // beside other tests
	if whole {
		o.Lease, o.Rate, o.Workers, o.Progress = 2*time.Second, 250, 8, everyTenSeconds(t)
	}
	if whole && !Child() { // workers need none of it, and would each build it
		t.Run("a worker of another version", func(t *testing.T) { // without it that fault is not available
			dir, err := os.MkdirTemp("", "leaseq-other-version-")
			require.NoError(t, err)
			other := filepath.Join(dir, "worker")
			require.NoError(t, os.Rename(oldversion.Build(t, oldversion.WithRecord, oldversion.Worker), other)) // the test's own folder ends with it
			o.OtherVersion = []string{other}
		})
		t.Cleanup(func() {
			if len(o.OtherVersion) > 0 {
				require.NoError(t, os.RemoveAll(filepath.Dir(o.OtherVersion[0])))
			}
		})
	}
	r := Test(t, o)
	if !whole { // a few seconds have a fault of one kind or another, as the seed says
		require.NotZero(t, r.Kills+r.Stops)
		require.NotEmpty(t, r.Windows)
		return
	}
	require.NotZero(t, r.Recovered)
	t.Logf("faults without an effect: %v; interesting cases that did not happen: %v", r.Silent(), r.Missing())
	if d >= fullDemands {
		require.Empty(t, r.Silent(), "faults that never had an effect")
		require.Empty(t, r.Missing(), "interesting cases that did not happen")
	}
	minutes := int64(d / time.Minute)
	require.GreaterOrEqual(t, r.Jobs, 10_000*minutes)
	require.GreaterOrEqual(t, r.Kills, 20*minutes)
	require.GreaterOrEqual(t, r.Stops, 6*minutes)
	require.Zero(t, r.SlackMS)
	require.LessOrEqual(t, r.RecoveryP99, float64((o.Lease + prompt).Milliseconds()))
}
