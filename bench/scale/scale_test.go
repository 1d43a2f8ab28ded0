package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tinyPlan has a bit of everything.
func tinyPlan() plan {
	return plan{
		due: []int{1_000, 3_000}, processing: []int{1_000, 2_000}, batches: []int{1, 50, 256}, rounds: 2,
		payloads: []int{16, 200, 1_000}, ids: []int{8, 26}, jobs: 2_000, bytes: 1 << 30,
		concurrency: []int{1, 50}, work: 500, calls: []int{1, 50}, again: 1,
	}
}

func TestASmallRunMeasuresEverything(t *testing.T) {
	d, err := measure(t.Context(), tinyPlan(), true, t.Output())
	require.NoError(t, err)
	for _, costs := range [][]cost{d.Due, d.Processing} {
		require.Len(t, costs, 2*(3*len(ops)+3*len(controls)+1), "each call of each batch at each size")
		for _, c := range costs {
			require.Positive(t, c.Calls, c)
			require.Positive(t, c.Server, c)
			require.LessOrEqual(t, c.Server, c.Client+1, "the client waits for the server: %+v", c)
			require.GreaterOrEqual(t, c.Max, c.P99, c)
		}
	}
	require.Len(t, d.Loads, 2)
	require.Equal(t, 2, d.Loads[1].Calls)
	require.Positive(t, d.Loads[1].Worst)
	require.Len(t, d.Held, 2)
	require.Greater(t, d.Held[1].Bytes, 200.0)
	require.Len(t, d.Jobs, 4)
	for _, j := range d.Jobs {
		require.Greater(t, j.Beside, 100.0, j)
		require.Less(t, j.Beside, 1000.0, j)
		require.Len(t, j.Calls, len(ops))
	}
	require.Len(t, d.Producers, 2)
	require.Len(t, d.Consumers, 2)
	require.InDelta(t, 1, d.Producers[0].Requests, 0.2, "a call for each job")
	require.Greater(t, d.Consumers[1].Out, 200.0, "every payload crosses the network")
	require.NotEmpty(t, d.Redis)

	folder := filepath.Join(t.TempDir(), "plots")
	var out strings.Builder
	require.NoError(t, write(settings{out: folder, costs: filepath.Join(t.TempDir(), "costs.json")}, d, &out))
	for _, p := range pictures {
		text, err := os.ReadFile(filepath.Join(folder, p.file))
		require.NoError(t, err)
		require.NoError(t, wellFormed(string(text)), p.file)
		require.Contains(t, string(text), "<svg", p.file)
	}
	again, err := read(filepath.Join(folder, "scale.json"))
	require.NoError(t, err)
	require.Equal(t, d.markdown(), again.markdown(), "the JSON holds everything that is shown")
	require.Equal(t, out.String(), again.markdown())
}

func wellFormed(text string) error {
	for decoder := xml.NewDecoder(strings.NewReader(text)); ; {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func TestARunThatIsBrokenOffSaysSo(t *testing.T) {
	_, err := read(filepath.Join(t.TempDir(), "none.json"))
	require.ErrorIs(t, err, os.ErrNotExist)
	bad := filepath.Join(t.TempDir(), "bad.json")
	require.NoError(t, os.WriteFile(bad, []byte("no JSON"), 0o600))
	_, err = read(bad)
	require.ErrorContains(t, err, "bad.json")
}

// root is the folder of the repository.
const root = "../.."

func TestTheDocumentsShowWhatWasMeasured(t *testing.T) {
	d, err := read(filepath.Join(root, "docs/plots/scale.json"))
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(root, "docs/plots/scale.md"))
	require.NoError(t, err)
	require.Equal(t, d.markdown(), string(text))
	performance, err := os.ReadFile(filepath.Join(root, "docs/performance.md"))
	require.NoError(t, err)
	for _, part := range strings.Split(d.markdown(), "\n\n") {
		if strings.HasPrefix(part, "|") {
			require.Contains(t, string(performance), strings.TrimSpace(part))
		}
	}
	for _, p := range pictures {
		require.Contains(t, string(performance), "](plots/"+p.file+")")
		require.FileExists(t, filepath.Join(root, "docs/plots", p.file))
	}
	costs, err := os.ReadFile(filepath.Join(root, "cmd/reaper/internal/capacity/costs.json"))
	require.NoError(t, err)
	want, err := json.Marshal(newCosts(d))
	require.NoError(t, err)
	require.JSONEq(t, string(want), string(costs), "reaper capacity computes with other figures than the documents show")
}
