package demo

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Lines of B that tell of its second delivery of b, and of what C, which was frozen, does when it wakes up.
const (
	effectOfB = `{"event":"effect","worker":"B","pid":2,"id":"b","attempt":2,"fence":1700000002003000}` + "\n"
	doubtOfB  = `{"event":"doubt","worker":"B","pid":2,"id":"b","attempt":2,"effect":"send","fence":1700000002003000}` + "\n"
	lateOfC   = `{"event":"effect","worker":"C","pid":3,"id":"b","attempt":1,"fence":1700000000000002}` + "\n"
	effectOfA = `{"event":"effect","worker":"A","pid":1,"id":"a","attempt":1,"fence":1700000000000001}` + "\n"
)

// changed swaps one text of the small history for another.
func changed(t *testing.T, from, to string) string {
	t.Helper()
	require.Contains(t, history, from)
	return strings.ReplaceAll(history, from, to)
}

func TestSideEffectThatHappenedTwiceIsToldWithItsCause(t *testing.T) {
	t.Parallel()
	b := compute(evidenceOf(t, history))
	require.Len(t, b.Effects.Twice, 1)
	assert.Equal(t, "a", b.Effects.Twice[0].ID)
	times := b.Effects.Twice[0].Times
	require.Len(t, times, 2)
	assert.Equal(t, [2]string{"A", "the worker was killed before its ack"}, [2]string{times[0].Worker, times[0].Ended})
	assert.Equal(t, [2]string{"B", "acked"}, [2]string{times[1].Worker, times[1].Ended})

	// C was frozen between the guard's answer and its effect: by its fence it is the first, though it comes last.
	b = compute(evidenceOf(t, changed(t, effectOfB, doubtOfB+effectOfB)+lateOfC))
	assert.Empty(t, b.Problems, "the guard said that it may happen")
	assert.Equal(t, map[int]int{0: 1, 1: 1, 2: 2}, b.Effects.Times)
	assert.Zero(t, b.Effects.Double)
	assert.Equal(t, "its ack came late, and was refused", b.Effects.Twice[1].Times[0].Ended)
	var page bytes.Buffer
	b.print(&page)
	assert.Contains(t, page.String(), "by C: its ack came late, and was refused")
	assert.Contains(t, page.String(), "In doubt: 2 ")
	assert.Contains(t, page.String(), "a, effect pay: begun by A, then by B")
	assert.Contains(t, page.String(), "b, effect send: begun by C, then by B")
	assert.NotContains(t, page.String(), "NEVER IN DOUBT")
}

func TestSecondSideEffectThatWasNeverInDoubtIsCountedAndFails(t *testing.T) {
	t.Parallel()
	b := compute(evidenceOf(t, history+lateOfC))
	const want = "b had its side effect 2 times, and no in-doubt answer explains 1 of them"
	assert.Equal(t, []string{want}, b.Problems)
	assert.Equal(t, 1, b.summary().Double)
	assert.Equal(t, 1, b.summary().InDoubt)
	assert.Equal(t, 3, b.summary().Effects)
	require.ErrorContains(t, b.verdict(true), want)
	var page bytes.Buffer
	b.print(&page)
	assert.Contains(t, page.String(), "b, NEVER IN DOUBT\n")
	assert.Contains(t, page.String(), want)

	// One answer explains one effect, not all that follow.
	second := `{"event":"effect","worker":"B","pid":2,"id":"a","attempt":2,"fence":1700000002001000}` + "\n"
	b = compute(evidenceOf(t, history+second))
	assert.Contains(t, b.Problems, "a had its side effect 3 times, and no in-doubt answer explains 1 of them")
	assert.Equal(t, 1, b.summary().Double)
}

func TestAckedJobWithoutItsSideEffectIsMissedAndFails(t *testing.T) {
	t.Parallel()
	b := compute(evidenceOf(t, without(t, history, `"effect"`, `"id":"c"`)))
	const want = "c was acked, and its side effect never happened"
	assert.Contains(t, b.Problems, want)
	assert.Equal(t, 2, b.summary().Effects)
	require.ErrorContains(t, b.verdict(true), want)
}

func TestEffectThatIsDoneAndNotRepeatedIsCounted(t *testing.T) {
	t.Parallel()
	// C had done b when it was frozen, and B finds it so.
	b := compute(evidenceOf(t, changed(t, effectOfB, "")+lateOfC))
	assert.Empty(t, b.Problems)
	assert.Equal(t, 3, b.Effects.Happened)
	assert.Equal(t, 1, b.Effects.Spared)
	assert.Equal(t, 1, b.summary().Spared)
}

func TestDoubtWhoseEffectHadNotHappenedIsADoubtAllTheSame(t *testing.T) {
	t.Parallel()
	b := compute(evidenceOf(t, changed(t, effectOfA, "")))
	assert.Empty(t, b.Problems)
	assert.Equal(t, 1, b.summary().InDoubt)
	assert.Empty(t, b.Effects.Twice)
	var page bytes.Buffer
	b.print(&page)
	assert.Contains(t, page.String(), "a, effect pay: begun by A, then by B\n")
}

// undoubted are changes to the answers of the guard in the small history, each with what the ledger says of it.
var undoubted = map[string]struct{ file, want string }{
	"done again, and nobody was told": {
		strings.Replace(history, `{"event":"doubt"`, `{"event":"trouble"`, 1), "a had its side effect 2 times, and no in-doubt answer explains 1 of them",
	},
	"killed inside it, and nobody was told": {
		strings.Replace(history, `{"event":"doubt"`, `{"event":"trouble"`, 1), "A was killed inside the side effect of a, and nobody was told that it is in doubt",
	},
	"the kill hit no effect": {
		strings.Replace(history, `{"event":"doubt"`, `{"event":"trouble"`, 1), "no side effect was in doubt: no worker was killed inside one",
	},
	"a doubt without a reason": {
		strings.Replace(history, `{"event":"effect","worker":"B","pid":2,"id":"c"`,
			`{"event":"doubt","worker":"B","pid":2,"id":"c","fence":1700000000000004}`+"\n"+`{"event":"effect","worker":"B","pid":2,"id":"c"`, 1),
		"c was in doubt, and nobody had left its side effect so",
	},
	"a doubt of what failed before it": {
		strings.Replace(history, `"id":"p","attempt":1,"fence":1700000000000003,"outcome":"dead"}`, `"id":"p","attempt":1,"fence":1700000000000003,"outcome":"retry"}`+"\n"+
			`{"event":"start","worker":"B","pid":2,"id":"p","attempt":2,"failures":1,"fence":1700000000000005}`+"\n"+
			`{"event":"doubt","worker":"B","pid":2,"id":"p","attempt":2,"fence":1700000000000005}`, 1),
		"p was in doubt, and nobody had left its side effect so",
	},
	"a doubt without a start": {
		history + `{"event":"doubt","worker":"B","pid":2,"id":"c","fence":1700000000000009}` + "\n",
		"worker B was in doubt about the side effect of c without having started it",
	},
	"a doubt after the effect": {
		history + `{"event":"doubt","worker":"B","pid":2,"id":"c","fence":1700000000000004}` + "\n",
		"worker B was in doubt about the side effect of c, which it had done itself",
	},
}

func TestAnswersOfTheGuardThatDoNotFitAreProblems(t *testing.T) {
	t.Parallel()
	for name, c := range undoubted {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NotEqual(t, history, c.file)
			b := compute(evidenceOf(t, c.file))
			assert.Contains(t, b.Problems, c.want)
			assert.Error(t, b.verdict(false))
		})
	}
}
