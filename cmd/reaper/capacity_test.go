package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/cmd/reaper/internal/capacity"
)

func TestCapacityAnswersWithWhatItAssumes(t *testing.T) {
	t.Parallel()
	args := strings.Fields("capacity --rate 10000 --payload 200 --delay 30m --concurrency 50")
	code, out, errOut := invoke(t, nil, args...)
	require.Zero(t, code, errOut)
	assert.Empty(t, errOut)
	costs, err := capacity.Measured()
	require.NoError(t, err)
	for _, part := range append(costs.Assumptions(), "10,000 jobs/s of 200 bytes, due after 30m;", "18,000,000", "one Redis core carries", "Redis nodes", "client cores") {
		assert.Contains(t, out, part)
	}
	for line := range strings.Lines(out) {
		assert.Equal(t, strings.TrimRight(line, " \n")+"\n", line, "no blanks at the end of a line")
	}

	code, out, errOut = invoke(t, nil, append(args, "--json")...)
	require.Zero(t, code, errOut)
	var got capacityJSON
	decoder := json.NewDecoder(strings.NewReader(out))
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(&got))
	require.False(t, decoder.More(), "one object")
	plan := capacity.DefaultPlan()
	plan.Delay = 30 * 60 * 1e9
	want, err := costs.Compute(&plan)
	require.NoError(t, err)
	assert.Equal(t, want, got.Answer)
	assert.Equal(t, 10_000.0, got.Plan.Rate)
	assert.EqualValues(t, 1_800_000, got.Plan.Delay)
	assert.Equal(t, costs.Command, got.Costs.Command)
	assert.Len(t, got.Assumptions, len(costs.Assumptions()))
}

func TestCapacityTakesItsFlagsFromTheEnvironmentToo(t *testing.T) {
	t.Parallel()
	code, out, errOut := invoke(t, map[string]string{"LEASEQ_WAITING": "1000000000", "LEASEQ_JSON": "true"}, "capacity")
	require.Zero(t, code, errOut)
	assert.Contains(t, out, `"jobs_waiting":1000000000,`)
}

func TestAWrongCapacityIsRefused(t *testing.T) {
	t.Parallel()
	bad := filepath.Join(t.TempDir(), "costs.json")
	require.NoError(t, os.WriteFile(bad, []byte(`{"command": "x"}`), 0o600))
	for _, c := range []struct {
		args string
		want []string
	}{
		{"--rate 0 --payload -1", []string{"--rate 0: want more than 0", "--payload -1: want 0 to 268435456 bytes"}},
		{"--rate many", []string{`"many"`}},
		{"--delay 30", []string{`"30"`}},
		{"--delay 1s --waiting 7", []string{"want one of them"}},
		{"--rate 1e9 --delay 876000h", []string{"jobs that wait: want at most"}},
		{"--json --table", []string{"--table and --json: want one of them"}},
		{"--costs " + bad, []string{"--costs " + bad, "no machine", "no producers"}},
		{"--costs " + bad + ".none", []string{"--costs", "no such file"}},
		{"please", []string{"unknown command"}},
	} {
		code, out, errOut := invoke(t, nil, append([]string{"capacity"}, strings.Fields(c.args)...)...)
		assert.Equal(t, exitUsage, code, c.args)
		assert.Empty(t, out, c.args)
		for _, want := range c.want {
			assert.Contains(t, errOut, want, c.args)
		}
	}
}

func TestCapacityComputesWithCostsOfYourOwn(t *testing.T) {
	t.Parallel()
	costs, err := capacity.Measured()
	require.NoError(t, err)
	costs.Machine, costs.Payloads = "a machine of my own", []capacity.Memory{{Size: 200, Beside: 800}}
	text, err := json.Marshal(costs)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "costs.json")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	code, out, errOut := invoke(t, nil, "capacity", "--costs", file)
	require.Zero(t, code, errOut)
	assert.Contains(t, out, "a machine of my own")
	assert.Contains(t, out, "1000 bytes each")
}

func TestTheCapacityPageShowsWhatTheToolPrints(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "capacity.md"))
	require.NoError(t, err)
	code, out, errOut := invoke(t, nil, "capacity", "--table")
	require.Zero(t, code, errOut)
	assert.Contains(t, string(text), "\n"+out+"\n")
	for _, s := range capacity.Scenarios() {
		assert.Contains(t, out, "| "+s.Name+" |")
	}
	code, out, errOut = invoke(t, nil, strings.Fields("capacity --rate 10000 --payload 200 --delay 30m --concurrency 50")...)
	require.Zero(t, code, errOut)
	assert.Contains(t, string(text), "```\n"+out+"```\n")
}

func TestNumbersOfCapacityAreShort(t *testing.T) {
	t.Parallel()
	var got bytes.Buffer
	for _, v := range []float64{0, 0.5, 1, 999.4, 1000, 18e9} {
		got.WriteString(count(v) + " ")
	}
	assert.Equal(t, "0 0.5 1 999 1,000 18,000,000,000 ", got.String())
	got.Reset()
	for _, v := range []float64{0, 0.001, 0.25, 9.99, 10, 1956.8} {
		got.WriteString(cores(v) + " ")
	}
	assert.Equal(t, "below 0.01 below 0.01 0.25 9.99 10 1,957 ", got.String())
	got.Reset()
	for _, v := range []float64{0, 999, 1000, 9949, 9950, 1.2e6, 17e12, 5e23, 1e30} {
		got.WriteString(size(v) + " ")
	}
	assert.Equal(t, "0 B 999 B 1.0 kB 9.9 kB 10 kB 1.2 MB 17 TB 500 ZB 1000000 YB ", got.String())
}
