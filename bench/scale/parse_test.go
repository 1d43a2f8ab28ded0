package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestInfoIsRead(t *testing.T) {
	fields := parseInfo("# Commandstats\r\ncmdstat_evalsha:calls=3,usec=456,usec_per_call=152.00,rejected_calls=0,failed_calls=0\r\nused_memory:12\n")
	require.Equal(t, "12", fields["used_memory"])
	stat, err := parseCommandStat(fields["cmdstat_evalsha"])
	require.NoError(t, err)
	require.Equal(t, commandStat{calls: 3, usec: 456}, stat)
	for _, bad := range []string{"", "calls=3", "usec=3", "calls=x,usec=3", "calls=3,usec=1.5"} {
		_, err := parseCommandStat(bad)
		require.ErrorContains(t, err, "want calls=", bad)
	}
}

func TestTheTurnOfAThreadIsRead(t *testing.T) {
	got, err := parseTurn("40154290 6873680 26\n")
	require.NoError(t, err)
	require.Equal(t, turn{ran: 40154290, waited: 6873680}, got)
	for _, bad := range []string{"", "1 2", "a b c"} {
		_, err := parseTurn(bad)
		require.ErrorContains(t, err, "want three numbers", bad)
	}
	_, ok := turnOf(-1)
	require.False(t, ok)
}

func TestTheNameOfTheProcessorIsRead(t *testing.T) {
	require.Equal(t, "AMD EPYC 7B13", processorIn("processor\t: 0\nmodel name\t: AMD EPYC 7B13\nmodel name\t: other\n"))
	require.Empty(t, processorIn("nothing"))
}

func TestFlags(t *testing.T) {
	var help strings.Builder
	s, err := parse([]string{"-quick", "-max", "5000", "-out", "x", "-costs", "y"}, &help)
	require.NoError(t, err)
	require.Equal(t, settings{quick: true, max: 5000, out: "x", costs: "y"}, s)
	_, err = parse([]string{"-max", "999", "please"}, &help)
	require.ErrorContains(t, err, `unexpected argument "please"`)
	require.ErrorContains(t, err, "-max 999: want 1000 to 100000000")
	_, err = parse([]string{"-maximum"}, &help)
	require.ErrorContains(t, err, "-h lists the flags")
	_, err = parse([]string{"-whole"}, &help)
	require.ErrorContains(t, err, "-whole needs -from")
	require.Empty(t, help.String())
	_, err = parse([]string{"-h"}, &help)
	require.ErrorIs(t, err, errHelp)
	require.Contains(t, help.String(), "-costs")
}

func TestAPlanEndsWithTheLargestQueueThatIsAskedFor(t *testing.T) {
	p := (&settings{max: 10_000_000}).plan()
	require.Equal(t, []int{1_000, 10_000, 100_000, 1_000_000, 10_000_000}, p.due)
	require.Equal(t, []int{1_000, 10_000, 100_000, 1_000_000}, p.processing)
	p = (&settings{max: 2_000_000}).plan()
	require.Equal(t, []int{1_000, 10_000, 100_000, 1_000_000, 2_000_000}, p.due)
	p = (&settings{max: 10_000_000, quick: true}).plan()
	require.Equal(t, []int{1_000, 10_000, 100_000}, p.due)
	require.Equal(t, 20, p.rounds)
}

func TestIDsHaveTheSizeAndAreDifferent(t *testing.T) {
	for _, size := range []int{8, 26, 64, 256} {
		next, seen := idOf(size), map[string]bool{}
		for range 1000 {
			id := next()
			require.Len(t, id, size)
			require.False(t, seen[id], id)
			seen[id] = true
		}
	}
}

func TestNumbersAreEasyToRead(t *testing.T) {
	for _, c := range []struct {
		value float64
		place int
		want  string
	}{{0, 0, "0"}, {999, 0, "999"}, {10_000_000, 0, "10,000,000"}, {1234.56, 1, "1,234.6"}, {-1234.5, 1, "-1,234.5"}, {-0.5, 2, "-0.50"}} {
		require.Equal(t, c.want, commas(c.value, c.place))
	}
}

func TestACallThatWasKeptFromTheProcessorTookNoLongerForIt(t *testing.T) {
	require.Equal(t, 2*time.Millisecond, (&sample{server: 12 * time.Millisecond, ran: 2 * time.Millisecond, alone: true}).own())
	require.Equal(t, time.Millisecond, (&sample{server: time.Millisecond, ran: 2 * time.Millisecond, alone: true}).own())
	require.Equal(t, 12*time.Millisecond, (&sample{server: 12 * time.Millisecond}).own(), "where nobody tells of threads, all of it counts")
}
