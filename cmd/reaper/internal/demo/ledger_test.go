package demo

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/reliable"
)

// The small history that all these tests begin with. A (pid 1) is killed inside the side effect of job a, C
// (pid 3) is frozen in the middle of b and comes late; B (pid 2) does the rest, and has c acked and p dead. Leases end
// 2 s after their claim.
const history = `
{"event":"up","worker":"A","pid":1}
{"event":"up","worker":"B","pid":2}
{"event":"up","worker":"C","pid":3}
{"event":"start","worker":"A","pid":1,"id":"a","attempt":1,"fence":1700000000000001}
{"event":"effect","worker":"A","pid":1,"id":"a","attempt":1,"fence":1700000000000001}
{"event":"start","worker":"C","pid":3,"id":"b","attempt":1,"fence":1700000000000002}
{"event":"start","worker":"B","pid":2,"id":"p","attempt":1,"fence":1700000000000003}
{"event":"finish","worker":"B","pid":2,"id":"p","attempt":1,"fence":1700000000000003,"outcome":"dead"}
{"event":"start","worker":"B","pid":2,"id":"c","attempt":1,"fence":1700000000000004}
{"event":"effect","worker":"B","pid":2,"id":"c","attempt":1,"fence":1700000000000004}
{"event":"finish","worker":"B","pid":2,"id":"c","attempt":1,"fence":1700000000000004,"outcome":"acked"}
{"event":"start","worker":"B","pid":2,"id":"a","attempt":2,"expiries":1,"fence":1700000002001000}
{"event":"doubt","worker":"B","pid":2,"id":"a","attempt":2,"effect":"pay","fence":1700000002001000}
{"event":"effect","worker":"B","pid":2,"id":"a","attempt":2,"fence":1700000002001000}
{"event":"finish","worker":"B","pid":2,"id":"a","attempt":2,"fence":1700000002001000,"outcome":"acked"}
{"event":"start","worker":"B","pid":2,"id":"b","attempt":2,"expiries":1,"fence":1700000002003000}
{"event":"effect","worker":"B","pid":2,"id":"b","attempt":2,"fence":1700000002003000}
{"event":"finish","worker":"B","pid":2,"id":"b","attempt":2,"fence":1700000002003000,"outcome":"acked"}
{"event":"finish","worker":"C","pid":3,"id":"b","attempt":1,"fence":1700000000000002,"outcome":"lost"}
{"event":"down","worker":"C","pid":3}
{"event":"down","worker":"B","pid":2}
`

// evidenceOf reads a hand-made file, and adds what Redis would say of the history above.
func evidenceOf(t *testing.T, file string) *evidence {
	t.Helper()
	lines, err := readLines(write(t, strings.TrimLeft(file, "\n")))
	require.NoError(t, err)
	expiry := time.UnixMilli(1_700_000_002_000)
	dead := reliable.Info{ID: "p", Place: reliable.Dead, Failures: 1, Errors: []reliable.Failure{{Reason: "no"}}}
	return &evidence{
		enqueued: []string{"a", "b", "c", "p"},
		lines:    lines,
		stats: reliable.Stats{Dead: 1, Records: 1, Counters: map[string]int64{
			"enqueued": 4, "claimed": 6, "acked": 3, "nacked": 1, "expired": 2, "refused": 1, "graces": 1,
		}},
		jobs: []reliable.Info{{ID: "a"}, {ID: "b"}, {ID: "c"}, dead},
		dead: []reliable.Info{dead},
		broken: []*interrupted{
			{line: line{ID: "a", Worker: "A", PID: 1, Fence: 1_700_000_000_000_001}, how: "killed", inside: true, expiry: expiry},
			{line: line{ID: "b", Worker: "C", PID: 3, Fence: 1_700_000_000_000_002}, how: "frozen", expiry: expiry},
		},
		signals: []int{1},
		froze:   true,
	}
}

// without takes the lines away that hold all of the words.
func without(t *testing.T, file string, words ...string) string {
	t.Helper()
	var kept []string
	taken := false
	for _, row := range strings.Split(file, "\n") {
		all := true
		for _, word := range words {
			all = all && strings.Contains(row, word)
		}
		taken = taken || all
		if !all {
			kept = append(kept, row)
		}
	}
	require.True(t, taken, "no line holds %q", words)
	return strings.Join(kept, "\n")
}

func TestLedgerOfASmallHistory(t *testing.T) {
	t.Parallel()
	b := compute(evidenceOf(t, history))
	assert.Empty(t, b.Problems)
	require.NoError(t, b.verdict(true))
	s := b.summary()
	assert.Equal(t, 4, s.Jobs)
	assert.Equal(t, 3, s.Acked)
	assert.Equal(t, 1, s.Dead)
	assert.Zero(t, s.Lost)
	assert.Equal(t, 6, s.Deliveries)
	assert.Equal(t, 1, s.Kills)
	assert.Equal(t, 2, s.Expired)
	assert.Equal(t, 1, s.Refused)
	assert.InDelta(t, 1.0, s.RecoveryP50, 1e-9)
	assert.InDelta(t, 3.0, s.RecoveryMax, 1e-9)
	assert.Equal(t, 3, s.Effects)
	assert.Zero(t, s.Double, "the second of a was in doubt")
	assert.Equal(t, 1, s.InDoubt)
	assert.Zero(t, s.Spared)
	assert.Equal(t, map[string]int{"0": 1, "1": 2, "2": 1}, s.Times)
	assert.Equal(t, []string{"a"}, s.Twice)
	assert.Equal(t, []doubtJSON{{ID: "a", Effect: "pay", Worker: "B", Left: "A"}}, s.Doubts)
	assert.Equal(t, []letterJSON{{ID: "p", Attempts: 1, Reason: "no"}}, s.Letters)
	assert.Equal(t, []cut{
		{ID: "a", Worker: "A", How: "killed", By: "B", Retries: 1, After: time.Millisecond, Again: true, End: "acked by B"},
		{ID: "b", Worker: "C", How: "frozen", By: "B", Retries: 1, After: 3 * time.Millisecond, Again: true, End: "acked by B"},
	}, b.Cuts)
	assert.Equal(t, map[int]int{1: 1}, b.interrupted)
}

func TestJobThatNobodyAckedAndThatIsNowhereIsLost(t *testing.T) {
	t.Parallel()
	file := without(t, history, `"id":"c"`)
	e := evidenceOf(t, file)
	e.stats.Counters["acked"], e.stats.Counters["claimed"] = 2, 5
	b := compute(e)
	assert.Equal(t, []string{"c"}, b.Lost)
	assert.Equal(t, 1, b.summary().Lost)
	assert.Contains(t, b.Problems, "lost: [c]")
	assert.ErrorContains(t, b.verdict(true), "lost: [c]")
	var page bytes.Buffer
	b.print(&page)
	assert.Contains(t, page.String(), "THE LEDGER DOES NOT BALANCE")
}

// A worker can be killed between the answer to its ack and the line that says so.
func TestAckWithoutALineCountsOnlyIfRedisCountedItAndTheWorkerWasKilled(t *testing.T) {
	t.Parallel()
	// A second victim, D, had done c when it was killed, and was in the middle of b before C was.
	file := strings.ReplaceAll(history, `"worker":"B","pid":2,"id":"c"`, `"worker":"D","pid":4,"id":"c"`)
	file = without(t, file, `"id":"c"`, `"finish"`)
	file = `{"event":"up","worker":"D","pid":4}` + file +
		`{"event":"start","worker":"D","pid":4,"id":"b","attempt":1,"fence":1700000000000000}` + "\n"
	given := func() *evidence {
		e := evidenceOf(t, file)
		e.signals = []int{1, 4}
		e.stats.Counters["claimed"], e.stats.Counters["expired"] = 7, 3
		return e
	}
	b := compute(given())
	assert.Equal(t, 3, b.Acked)
	assert.Empty(t, b.Lost)
	for _, problem := range b.Problems {
		assert.Contains(t, problem, "the kill missed", "b was not put back from D")
	}

	e := given()
	e.stats.Counters["acked"], e.stats.Counters["expired"] = 2, 4
	b = compute(e)
	assert.Equal(t, []string{"c"}, b.Lost, "Redis took no such ack")

	e = given()
	e.lines = append(e.lines, line{Event: isDown, Worker: "D", PID: 4})
	e.signals = []int{1}
	b = compute(e)
	assert.Equal(t, []string{"c"}, b.Lost, "D was not killed, and would have written it")
}

// unbalanced are changes to the small history, each with what the ledger says of it.
var unbalanced = map[string]struct {
	drop   []string // the lines that hold all of these words are taken away
	add    string   // lines at the end
	swap   []string // old and new text, in turn
	change func(e *evidence)
	want   string
}{
	"the kill missed": {
		drop: []string{`"pid":1`, `"id":"a"`}, want: "the kill missed: worker A (pid 1) was in the middle of no job",
	},
	"what the victim did was finished": {
		add:  `{"event":"finish","worker":"A","pid":1,"id":"a","attempt":1,"fence":1700000000000001,"outcome":"lost"}`,
		want: "the kill missed",
	},
	"nobody was killed": {
		add: `{"event":"down","worker":"A","pid":1}`, want: "the worker with pid 1 was killed, and its lines do not show it",
	},
	"a worker fell over by itself": {
		drop: []string{`"down"`, `"pid":3`}, want: "worker C (pid 3) ended without a word, and nobody had killed it",
	},
	"an interrupted job never came again": {
		drop: []string{`"pid":2`, `"id":"b"`}, want: "b was interrupted, and never started again",
	},
	"a lease was taken before its expiry": {
		change: func(e *evidence) { e.broken[0].expiry = e.broken[0].expiry.Add(2 * time.Millisecond) },
		want:   "a was claimed 1ms before the lease of A had run out",
	},
	"a retry count did not grow": {
		swap: []string{`"expiries":1,"fence":1700000002003000`, `"fence":1700000002003000`},
		want: "b was put back without its retry count growing",
	},
	"two acks": {
		swap: []string{`"outcome":"lost"`, `"outcome":"acked"`}, want: "b was acked twice, by B and by C",
	},
	"started again after its ack": {
		add:  `{"event":"start","worker":"B","pid":2,"id":"c","attempt":1,"fence":1700000009000000}`,
		want: "c was acked by B, and started again by B",
	},
	"acked without its effect": {
		drop: []string{`"effect"`, `"id":"c"`}, want: "c was acked, and its side effect never happened",
	},
	"acked and still there": {
		change: func(e *evidence) { e.jobs[2].Place = reliable.Due }, want: "c was acked, and is in due",
	},
	"an effect without a start": {
		drop: []string{`"start"`, `"id":"c"`}, want: "worker B did the side effect of c without having started it",
	},
	"a verdict without a start": {
		drop: []string{`"start"`, `"id":"c"`}, want: `worker B says "acked" of c without having started it`,
	},
	"one fence twice": {
		swap: []string{"1700000000000004", "1700000000000003"}, want: "p and c were started under one fence",
	},
	"a job that nobody enqueued": {
		change: func(e *evidence) { e.enqueued, e.jobs = e.enqueued[1:], e.jobs[1:] }, want: "worked on a, which nobody enqueued",
	},
	"Redis took more acks than were written": {
		change: func(e *evidence) { e.stats.Counters["acked"] += 2 }, want: "Redis counted 5 acks, and the workers' lines account for 3",
	},
	"Redis took fewer verdicts than were written": {
		change: func(e *evidence) { e.stats.Counters["nacked"] = 0 }, want: "Redis counted 0 verdicts nacked or buried, and the workers wrote down 1",
	},
	"nothing was refused": {
		change: func(e *evidence) { e.stats.Counters["refused"] = 0 }, want: "no late verdict was refused",
	},
	"a refusal was not counted": {
		change: func(e *evidence) { e.stats.Counters["refused"] = 0; e.froze = false }, want: "Redis counted 0 verdicts refused, and the workers wrote down 1",
	},
	"a claim without an end": {
		change: func(e *evidence) { e.stats.Counters["claimed"]++ }, want: "Redis counted 7 claims, and 6 ends of claims",
	},
	"more starts than claims": {
		change: func(e *evidence) { e.stats.Counters["claimed"] -= 2; e.stats.Counters["expired"] = 0 }, want: "Redis counted 4 claims, and the workers started 6 jobs",
	},
	"fewer expiries than interruptions": {
		change: func(e *evidence) { e.stats.Counters["expired"] = 1 }, want: "2 deliveries were interrupted, and only 1 leases ran out",
	},
	"a job still runs": {
		change: func(e *evidence) { e.stats.Processing = 1 }, want: "0 jobs are still due, and 1 in processing",
	},
	"an enqueue came twice": {
		change: func(e *evidence) { e.stats.Counters["enqueued"] = 5 }, want: "4 jobs were enqueued, and Redis counted 5",
	},
	"an orphan record": {
		change: func(e *evidence) { e.stats.Records = 2 }, want: "Redis keeps 2 records for 1 jobs",
	},
	"a dead letter too few": {
		change: func(e *evidence) { e.dead = nil }, want: "3 acked and 0 dead are not 4 jobs",
	},
	"a dead letter without a reason": {
		change: func(e *evidence) { e.dead[0].Errors = nil }, want: "p is dead, and nobody says why",
	},
}

func TestLedgerThatDoesNotBalanceSaysWhy(t *testing.T) {
	t.Parallel()
	for name, c := range unbalanced {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := strings.NewReplacer(c.swap...).Replace(history)
			if c.drop != nil {
				file = without(t, file, c.drop...)
			}
			if c.add != "" {
				file += c.add + "\n"
			}
			e := evidenceOf(t, file)
			if c.change != nil {
				c.change(e)
			}
			b := compute(e)
			assert.Contains(t, strings.Join(b.Problems, "\n"), c.want)
			require.Error(t, b.verdict(false))
			text, err := json.Marshal(b.summary())
			require.NoError(t, err)
			assert.Contains(t, string(text), `"problems":["`)
		})
	}
}

func TestReleasedBeforeItsStartIsNoProblem(t *testing.T) {
	t.Parallel()
	e := evidenceOf(t, history+`{"event":"finish","worker":"C","pid":3,"id":"c","attempt":1,"fence":1700000000000000,"outcome":"released"}`+"\n")
	e.stats.Counters["claimed"], e.stats.Counters["released"] = 7, 1
	assert.Empty(t, compute(e).Problems)
}

func TestVerdictThatWasOnItsWayAtTheKillIsNoInterruption(t *testing.T) {
	t.Parallel()
	// Redis took A's ack of d after it had told that A holds d.
	acked := history + `{"event":"start","worker":"A","pid":1,"id":"d","attempt":1,"fence":1700000000000005}` + "\n" +
		`{"event":"effect","worker":"A","pid":1,"id":"d","attempt":1,"fence":1700000000000005}` + "\n"
	given := func(file string) *evidence {
		e := evidenceOf(t, file)
		e.enqueued, e.jobs = append(e.enqueued, "d"), append(e.jobs, reliable.Info{ID: "d"})
		e.broken = append(e.broken, &interrupted{
			line: line{ID: "d", Worker: "A", PID: 1, Fence: 1_700_000_000_000_005}, how: "killed", expiry: e.broken[0].expiry,
		})
		e.stats.Counters["enqueued"], e.stats.Counters["claimed"], e.stats.Counters["acked"] = 5, 7, 4
		return e
	}
	b := compute(given(acked))
	assert.Empty(t, b.Problems)
	assert.Equal(t, 4, b.Acked)
	assert.Len(t, b.Cuts, 2)

	// The same with a nack, after which B does d, long before the lease would have run out.
	nacked := without(t, acked, `"id":"d"`, `"effect"`) +
		`{"event":"start","worker":"B","pid":2,"id":"d","attempt":2,"failures":1,"fence":1700000000500000}` + "\n" +
		`{"event":"effect","worker":"B","pid":2,"id":"d","attempt":2,"fence":1700000000500000}` + "\n" +
		`{"event":"finish","worker":"B","pid":2,"id":"d","attempt":2,"fence":1700000000500000,"outcome":"acked"}` + "\n"
	e := given(nacked)
	e.stats.Counters["claimed"], e.stats.Counters["nacked"] = 8, 2
	b = compute(e)
	assert.Empty(t, b.Problems)
	assert.Len(t, b.Cuts, 2)
}
