package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/chaos"
	"github.com/leaseq/leaseq/internal/redistest"
)

func TestAWrongStormIsRefusedBeforeAnythingIsDone(t *testing.T) {
	t.Parallel()
	full := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(full, "x"), nil, 0o600))
	for _, c := range []struct {
		args string
		want []string
	}{
		{"--faults worker-kill,earthquake", []string{`no fault is named "earthquake"`, "worker-stop: a worker stands still"}},
		{"--faults list,worker-kill", []string{"'list' stands alone"}},
		{"--profile calm", []string{`--profile is "calm"`, "mixed, steady, bursts"}},
		{"--duration 3s", []string{"--duration is 3s: want 18s (8 leases + 2 s)"}},
		{"--duration 20", []string{`"20"`}},
		{"--lease 10ms", []string{"--lease is 10ms: want 200ms"}},
		{"--lease 0s", []string{"--lease 0: want 200ms to 10s"}},
		{"--lease 11s --duration 2m", []string{"--lease 11s: want 200ms to 10s"}},
		{"--workers 0 --rate 0", []string{"--workers 0: want 1 to 64", "--rate 0: want 1 to 100000"}},
		{"--workers 65 --concurrency 2000", []string{"--workers is 65: want 1 to 64", "--concurrency is 2000: want 1 to 1000"}},
		{"--prefix a{b}", []string{`--prefix "a{b}"`}},
		{"--redis 127.0.0.1:6379", []string{"want it like redis://"}},
		{"--redis redis://127.0.0.1:26379?master_name=main", []string{"neither Sentinel nor Cluster"}},
		{"please", []string{`"please": want a worker's command line behind --`}},
		{"--", []string{"behind -- there is nothing"}},
		{"-- ./worker", []string{"--kind is missing"}},
		{"--kind order.close", []string{"--kind is for a worker of yours"}},
		{"--schedule " + full + "/none.json", []string{"--schedule:", "none.json"}},
		{"--schedule " + full + "/x", []string{"is no schedule"}},
		{"--report " + full + "/none/x.html", []string{"--report", "its folder is not there"}},
		{"--save-schedule " + full, []string{"that is a folder"}},
		{"--dir " + full, []string{"is not empty"}},
	} {
		code, out, errOut := invoke(t, nil, append([]string{"chaos"}, strings.Fields(c.args)...)...)
		assert.Equal(t, exitUsage, code, c.args)
		assert.Empty(t, out, c.args)
		for _, want := range c.want {
			assert.Contains(t, errOut, want, c.args)
		}
	}
}

func TestAScheduleHasItsSeedAndItsDuration(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "storm.json")
	require.NoError(t, (&chaos.Schedule{Seed: 7, DurationMS: 12_000, Faults: []chaos.Planned{{Name: "worker-kill", Lane: chaos.Kills}}}).Save(file))
	for args, want := range map[string]string{
		"--seed 8":             "--seed is 8, and that of --schedule is 7: leave it out",
		"--duration 1m":        "--duration is 1m0s, and that of --schedule is 12s: leave it out",
		"--faults worker-stop": `Schedule.Faults[0] is "worker-kill", which is none of Faults`,
	} {
		code, _, errOut := invoke(t, nil, append([]string{"chaos", "--schedule", file}, strings.Fields(args)...)...)
		assert.Equal(t, exitUsage, code, args)
		assert.Contains(t, errOut, want)
	}
}

func TestTheListOfFaultsSaysWhatTheyDoAndWhatIsNotToBeHad(t *testing.T) {
	t.Parallel()
	redistest.NeedServer(t)
	temp := t.TempDir()
	code, out, errOut := invoke(t, nil, "chaos", "--faults", "list", "--redis", serverURL(t), "--prefix", newPrefix(), "--dir", filepath.Join(temp, "dir"))
	require.Zero(t, code, errOut)
	assert.Empty(t, errOut)
	for _, f := range chaos.AllFaults() {
		assert.Contains(t, out, f.Name)
	}
	assert.Contains(t, out, "not here: the server is not of the run's own")

	code, out, errOut = invoke(t, map[string]string{"LEASEQ_REDIS": "redis://127.0.0.1:1"}, "chaos", "--faults", "list", "--json", "--redis", serverURL(t), "--prefix", newPrefix())
	require.Zero(t, code, errOut)
	var list struct{ Faults map[string]chaos.FaultCount }
	require.NoError(t, json.Unmarshal([]byte(out), &list))
	require.Len(t, list.Faults, len(chaos.AllFaults()))
	assert.Empty(t, list.Faults["worker-kill"].Unavailable)
	assert.NotEmpty(t, list.Faults["server-stop"].Unavailable)
}

func TestAStormOnAServerThatIsNotThereSaysSo(t *testing.T) {
	t.Parallel()
	code, out, errOut := invoke(t, nil, "chaos", "--redis", "redis://:secret@127.0.0.1:1/0", "--dir", filepath.Join(t.TempDir(), "dir"))
	assert.Equal(t, exitRedis, code)
	assert.Empty(t, out)
	assert.Contains(t, errOut, "Redis at 127.0.0.1:1/0 cannot be reached")
	assert.NotContains(t, errOut, "secret")
}

func TestTheCommandThatMakesAStormAgainIsFitForAShell(t *testing.T) {
	t.Parallel()
	c := &chaosCommand{
		redis: "redis://:secret@h:1/2", prefix: "p", faults: []string{"a", "b"}, workers: 3, concurrency: 16, rate: 7, profile: "steady", lease: 500e6,
		kind: "order.close", payload: `{"it's":{n}}`, program: []string{"./my worker", "-v"},
	}
	o := &chaos.Outcome{Seed: 9, Schedule: &chaos.Schedule{Seed: 9, DurationMS: 90_000}}
	assert.Equal(t, `reaper chaos --seed 9 --duration 1m30s --lease 500ms --redis 'redis://***@h:1/2' --prefix p --faults a,b --workers 3 --rate 7 `+
		`--profile steady --kind order.close --payload '{"it'\''s":{n}}' -- './my worker' -v`, c.again(o))
	c = &chaosCommand{prefix: "leaseq", workers: 4, concurrency: 16, rate: 200, profile: "mixed", lease: 2e9, schedule: "a b.json"}
	assert.Equal(t, `reaper chaos --schedule 'a b.json' --lease 2s`, c.again(o))
}

func TestAStrictStormFailsWhereItHasNotShownAll(t *testing.T) {
	t.Parallel()
	o := &chaos.Outcome{
		Report: &chaos.Report{}, Sometimes: map[string]int64{},
		Faults: []chaos.FaultCount{{Name: "a", Times: 1, Bit: 1}, {Name: "b", Times: 3}, {Name: "c", Unavailable: "no compiler"}},
	}
	for _, name := range chaos.Sometimes()[1:] {
		o.Sometimes[name] = 1
	}
	require.NoError(t, (&chaosCommand{}).verdict(o))
	err := (&chaosCommand{strict: true}).verdict(o)
	require.ErrorContains(t, err, "these faults had no effect: b; these cases did not happen: lease ran out")
	err = (&chaosCommand{strict: true, faults: []string{"a", "b", "c"}}).verdict(o)
	require.ErrorContains(t, err, "these faults had no effect: b, c (not here: no compiler)")

	o.Sometimes["lease ran out"], o.Faults[1].Bit = 1, 1
	require.NoError(t, (&chaosCommand{strict: true}).verdict(o))
	o.Problems = []string{"a worker ended by itself"}
	require.ErrorContains(t, (&chaosCommand{}).verdict(o), "not right: 0 lost, 0 unexpected, 0 violations, 0 duplicated (at most 0 are explained), 1 problems of the run")
}
