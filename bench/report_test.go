package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNumbersAreEasyToRead(t *testing.T) {
	for _, c := range []struct {
		value float64
		place int
		want  string
	}{
		{0, 0, "0"}, {999, 0, "999"}, {1000, 0, "1,000"}, {1234567.89, 1, "1,234,567.9"}, {-1234.5, 1, "-1,234.5"}, {-0.5, 2, "-0.50"},
	} {
		require.Equal(t, c.want, number(c.value, c.place))
	}
}

func TestTheTableShowsMediansAndRatios(t *testing.T) {
	b := &bench{plan: wholePlan(), systems: known, results: newResults()}
	for _, value := range []float64{30000, 10000, 20000} {
		b.results.add("leaseq", "process_50", value)
	}
	b.results.add("asynq", "process_50", 8000)
	b.results.add("leaseq", "process_50_requests", 0.04)
	b.results.add("asynq", "process_50_requests", 2)
	b.results.add("leaseq", "process_10_requests", 1) // in the JSON only
	b.results.add("asynq", "late_min", -900)
	b.results.add("leaseq", "late_min", 0.5)
	d := newDocument(b, false, time.Now())
	encoded, err := d.encode()
	require.NoError(t, err)
	var out strings.Builder
	require.NoError(t, writeReport(&out, d, encoded))
	text := out.String()
	require.JSONEq(t, string(encoded), string(breakLines(encoded)))
	for _, line := range []string{
		"| figure | unit | leaseq | asynq | pop | leaseq ÷ asynq | leaseq ÷ pop |",
		"| process at 50 | jobs/s | 20,000 | 8,000 | – | 2.50 | – |",
		"| process at 50: requests | /job | 0.040 | 2.000 | – | 0.02 | – |",
		"| delayed jobs, lateness: earliest | ms | 0.50 | -900.00 | – | – | – |",
		"| leaseq | QueueOptions.Lease | 15s | 1s |  |",
		`"process_50_vs_asynq":2.5,`,
		`"process_50_vs_pop":null,`,
	} {
		require.Contains(t, text, "\n"+line+"\n")
	}
	require.NotContains(t, text, "| process at 10: requests")
	require.Contains(t, text, `"process_10_requests"`)
}

func TestEveryFigureHasItsOwnKeyAndTitle(t *testing.T) {
	keys, titles := map[string]bool{}, map[string]bool{}
	for _, f := range figuresOf(wholePlan()) {
		require.False(t, keys[f.Key], f.Key)
		require.False(t, titles[f.Title+f.Unit], f.Title)
		keys[f.Key], titles[f.Title+f.Unit] = true, true
	}
}

func TestJSONIsBrokenIntoLinesThatDoNotChangeIt(t *testing.T) {
	text := `{"a":1,"b":"x,{[\"}","c":[{"d":[1,2]},{"e":3}],"f":{"g":[{"h":1}],"i":{}}}`
	require.Equal(t, `{
"a":1,
"b":"x,{[\"}",
"c":[
{"d":[1,2]},
{"e":3}],
"f":{"g":[{"h":1}],"i":{}}
}`, string(breakLines([]byte(text))))
}
