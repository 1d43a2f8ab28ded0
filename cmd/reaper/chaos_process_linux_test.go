package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/chaos"
	"github.com/leaseq/leaseq/internal/redistest"
)

// stormBound is how long a storm may take: its duration and 15 s.
func stormBound(duration time.Duration) time.Duration { return duration + 15*time.Second }

// A storm is `reaper chaos` as a process with a temporary folder of its own, which its children have too.
type stormProcess struct {
	*child
	temp string
}

func spawnStorm(t *testing.T, env []string, args ...string) *stormProcess {
	t.Helper()
	temp := t.TempDir()
	return &stormProcess{child: spawnWith(t, append(env, "TMPDIR="+temp), append([]string{"chaos"}, args...)...), temp: temp}
}

// processes are those that live and have the storm's temporary folder in their environment, the storm itself too.
func (s *stormProcess) processes(t *testing.T) (pids []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	require.NoError(t, err)
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		env, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "environ"))
		if err == nil && bytes.Contains(env, []byte("TMPDIR="+s.temp+"\x00")) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// requireNothingLeft looks for processes and files.
func (s *stormProcess) requireNothingLeft(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return len(s.processes(t)) == 0 }, within, 5*time.Millisecond, "processes are left: %v", s.processes(t))
	entries, err := os.ReadDir(s.temp)
	require.NoError(t, err)
	assert.Empty(t, entries, "files are left")
}

func (s *stormProcess) wait(t *testing.T, bound time.Duration) (code int) {
	t.Helper()
	select {
	case <-s.ended:
		return s.cmd.ProcessState.ExitCode()
	case <-time.After(bound):
		t.Fatalf("the storm does not end; it said:\n%s", &s.err)
		return -1
	}
}

// needRedisProgram skips where a storm cannot have a server of its own.
func needRedisProgram(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip(redistest.SkipReason)
	}
}

// read reads the one object that is on standard output.
func (s *stormProcess) read(t *testing.T) (fields map[string]json.RawMessage, o *stormFields) {
	t.Helper()
	require.Equal(t, 1, strings.Count(s.out.String(), "\n"), "one line")
	require.NoError(t, json.Unmarshal([]byte(s.out.String()), &fields))
	o = &stormFields{}
	require.NoError(t, json.Unmarshal([]byte(s.out.String()), o))
	return fields, o
}

// stormFields are what scripts read.
type stormFields struct {
	OK                                                  bool
	Seed                                                uint64
	Jobs, Acked, Dead, Kills, Stops                     int64
	Lost, Unexpected, Duplicated, Recovered, Violations int64
	DuplicatesAllowed                                   int64   `json:"duplicates_allowed"`
	P50                                                 float64 `json:"recovery_ms_p50"`
	P99                                                 float64 `json:"recovery_ms_p99"`
	Faults                                              map[string]chaos.FaultCount
	Sometimes                                           map[string]int64
	Silent, Missing, Problems                           []string
	Dir                                                 string
	Schedule                                            *chaos.Schedule
}

// requireRight looks at what holds for each run on this machine, however busy it is: the promises. A worker that has no
// time to start is a problem of the run, and the exit code says so.
func (o *stormFields) requireRight(t *testing.T, s *stormProcess, code int) {
	t.Helper()
	assert.Zero(t, o.Lost, &s.out)
	assert.Zero(t, o.Unexpected, &s.out)
	assert.Equal(t, o.OK, code == exitOK, "%s\n%s", &s.out, &s.err)
	assert.Equal(t, o.OK, o.Lost+o.Unexpected+o.Violations == 0 && o.Duplicated <= o.DuplicatesAllowed && len(o.Problems) == 0, &s.out)
	if !o.OK {
		assert.Equal(t, exitFailure, code)
		assert.True(t, s.err.has("reaper: not right"), &s.err)
		assert.DirExists(t, o.Dir, "the histories stay")
		require.NoError(t, os.RemoveAll(o.Dir))
	}
}

func TestAStormTellsWhatItHasFoundAndLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	needRedisProgram(t)
	files := t.TempDir()
	report, schedule := filepath.Join(files, "storm.html"), filepath.Join(files, "storm.json")
	_, err := build() // which takes its time
	require.NoError(t, err)
	began := time.Now()
	s := spawnStorm(t, []string{"LEASEQ_REDIS=redis://127.0.0.1:1"}, "--duration", "6s", "--lease", "500ms", "--workers", "3", "--rate", "80",
		"--json", "--report", report, "--save-schedule", schedule, "--seed", "20261130")
	code := s.wait(t, stormBound(6*time.Second)+within)
	assert.Less(t, time.Since(began), stormBound(6*time.Second)+5*time.Second, "and a busy machine's time to start")
	fields, o := s.read(t)
	for _, name := range strings.Fields("ok seed jobs acked dead kills stops lost unexpected duplicated duplicates_allowed recovered violations " +
		"recovery_ms_p50 recovery_ms_p99 recovery_ms_max quiet_ms faults silent sometimes missing problems schedule windows seconds report") {
		assert.NotEmpty(t, fields[name], name)
		assert.NotEqual(t, "null", string(fields[name]), name)
	}
	o.requireRight(t, s, code)
	assert.EqualValues(t, 20261130, o.Seed)
	assert.Positive(t, o.Jobs)
	assert.Positive(t, o.Acked)
	assert.Positive(t, o.Kills)
	assert.Positive(t, o.Faults["worker-kill"].Times)
	assert.Contains(t, o.Sometimes, "lease ran out")
	assert.True(t, s.err.has("seed 20261130: 6s, lease 500ms, 3 workers with 16 jobs each, on a redis-server of its own"), &s.err)
	assert.True(t, s.err.has("storm ", "/6s: ", " jobs, ", " kills, ", " 0 violations"), &s.err)
	assert.True(t, s.err.has("drain "), &s.err)
	s.requireNothingLeft(t)

	saved, err := chaos.ReadSchedule(schedule)
	require.NoError(t, err)
	assert.Equal(t, o.Schedule, saved)
	requireParses(t, report, "reaper chaos --seed 20261130 --duration 6s --lease 500ms --workers 3 --rate 80")
}

// requireParses reads a report, as strictly as XML is.
func requireParses(t *testing.T, report string, parts ...string) {
	t.Helper()
	page, err := os.ReadFile(report)
	require.NoError(t, err)
	text := &strings.Builder{}
	decoder := xml.NewDecoder(bytes.NewReader(page))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if data, ok := token.(xml.CharData); ok {
			text.Write(data)
		}
	}
	for _, part := range parts {
		assert.Contains(t, text.String(), part)
	}
}

func TestAScheduleIsPlayedAgainOnAServerOfOurs(t *testing.T) {
	t.Parallel()
	redistest.NeedServer(t)
	files, prefix := t.TempDir(), newPrefix()
	given, saved := filepath.Join(files, "given.json"), filepath.Join(files, "saved.json")
	require.NoError(t, (&chaos.Schedule{Seed: 77, DurationMS: 6000, Faults: []chaos.Planned{
		{Name: "worker-kill", Lane: chaos.Kills, AtMS: 300, ForMS: 100, Pick: 1},
		{Name: "worker-stop", Lane: chaos.Freezes, AtMS: 400, ForMS: 700, Pick: 2},
		{Name: "worker-kill", Lane: chaos.Kills, AtMS: 900, ForMS: 50, Pick: 3},
	}}).Save(given))
	s := spawnStorm(t, nil, "--schedule", given, "--save-schedule", saved, "--lease", "500ms", "--workers", "2", "--rate", "100",
		"--redis", serverURL(t), "--prefix", prefix, "--json")
	code := s.wait(t, stormBound(6*time.Second)+within)
	_, o := s.read(t)
	o.requireRight(t, s, code)
	assert.EqualValues(t, 77, o.Seed)
	assert.EqualValues(t, 2, o.Kills)
	assert.EqualValues(t, 2, o.Faults["worker-kill"].Times)
	assert.EqualValues(t, 1, o.Stops)
	assert.Zero(t, o.Faults["reply-drop"].Times, "it is not in the schedule")
	assert.NotEmpty(t, o.Faults["server-stop"].Unavailable)
	s.requireNothingLeft(t)
	want, err := os.ReadFile(given)
	require.NoError(t, err)
	got, err := os.ReadFile(saved)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got))
	left, err := redistest.Client(t).Keys(t.Context(), prefix+":*").Result()
	require.NoError(t, err)
	assert.Empty(t, left, "the queue of the run is removed")
}

func TestAProgramOfTheUsersIsAWorkerInAStorm(t *testing.T) {
	t.Parallel()
	needRedisProgram(t)
	self, err := os.Executable()
	require.NoError(t, err)
	s := spawnStorm(t, []string{ownWorkerVariable + "=1"}, "--duration", "6s", "--lease", "500ms", "--workers", "2", "--rate", "100",
		"--faults", "worker-kill", "--kind", "order.close", "--payload", `{"order":{n}}`, "--profile", "steady", "--", self, "-test.run=^$")
	code := s.wait(t, stormBound(6*time.Second)+within)
	if code == exitOK {
		s.requireNothingLeft(t)
	} else {
		assert.True(t, s.err.has("reaper: not right: 0 lost, 0 unexpected, 0 violations, "), &s.err)
		assert.True(t, s.err.has("problems of the run; the histories are in "+s.temp), &s.err)
	}
	assert.True(t, s.out.has(" 0 lost, 0 unexpected, 0 violations, "), &s.out)
	assert.True(t, s.out.has("Again: reaper chaos --seed ", ` --faults worker-kill `, ` --kind order.close --payload '{"order":{n}}' -- `), &s.out)
	for line := range strings.Lines(s.out.String()) {
		if strings.HasPrefix(line, " lost ") { // the check's line: how many jobs it has looked at
			assert.NotEqual(t, "0", strings.Fields(line)[1])
		}
	}
	assert.True(t, s.out.has(" jobs, ", " acked, 0 dead, "), "no job was discarded, which one that was not asked for is: %s", &s.out)
}

func TestAnInterruptEndsAllThatAStormHasStarted(t *testing.T) {
	t.Parallel()
	needRedisProgram(t)
	files := t.TempDir()
	s := spawnStorm(t, nil, "--duration", "10m", "--lease", "500ms", "--workers", "3", "--json",
		"--report", filepath.Join(files, "storm.html"), "--save-schedule", filepath.Join(files, "storm.json"))
	require.Eventually(t, func() bool { return len(s.processes(t)) >= 5 }, within, 5*time.Millisecond, "itself, a server, three workers")
	s.err.await(t, "storm ")
	require.NoError(t, s.cmd.Process.Signal(os.Interrupt))
	asked := time.Now()
	require.Equal(t, exitFailure, s.wait(t, within), &s.err)
	t.Logf("it took %v", time.Since(asked))
	assert.True(t, s.err.has("reaper: stopped: signal: interrupt", "it is void and shows nothing"), &s.err)
	assert.Empty(t, s.out.String())
	s.requireNothingLeft(t)
	entries, err := os.ReadDir(files)
	require.NoError(t, err)
	assert.Empty(t, entries, "nothing is told of a run that is void")
}
