package chaos

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var sizes = []simSize{
	{jobs: 300, workers: 2, slots: 4},
	{jobs: 300, workers: 3, slots: 4, operators: true},
	{jobs: 1500, workers: 3, slots: 4, kills: 8, operators: true},
	{jobs: 1500, workers: 3, slots: 4, freezes: 6, operators: true},
	{jobs: 3000, workers: 4, slots: 8, kills: 12, freezes: 9, operators: true},
	{jobs: 4000, workers: 3, slots: 3, outages: 1, operators: true},
	{jobs: 4000, workers: 3, slots: 3, kills: 12, freezes: 5, outages: 2, operators: true},
}

func mustCheck(t testing.TB, h History, s *Snapshot, o *CheckOptions) *Report {
	t.Helper()
	r, err := Check(h, s, o)
	require.NoError(t, err)
	return r
}

func text(t testing.TB, r *Report) string {
	t.Helper()
	var out strings.Builder
	require.NoError(t, r.WriteText(&out))
	return out.String()
}

func TestRightHistoriesPass(t *testing.T) {
	t.Parallel()
	seeds := uint64(2)
	if os.Getenv("LEASEQ_CASES") == "full" {
		seeds = 200
	}
	for _, size := range sizes {
		for seed := range seeds {
			h, s := simulate(seed, size)
			r := mustCheck(t, h, s, nil)
			require.True(t, r.OK(), "%v, seed %d\n%s", size, seed, text(t, r))
			if testing.Verbose() && seed == 0 {
				t.Logf("%v\n%s", size, text(t, r))
			}
		}
	}
}
