package htmlreport

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/chaos"
	"github.com/leaseq/leaseq/chaos/record"
)

// hostile is text that would do harm in a page that believes it.
const hostile = "</script></pre><img src=http://example.org/x onerror=alert(1)>\"'&\x00\x1b[31m\u202e\xff{{.}}"

// sample is the outcome of a run with all that can be in one.
func sample() *chaos.Outcome {
	o := &chaos.Outcome{
		Seed: 4711, Queue: "orders", Jobs: 123456, Acked: 120000, Dead: 17, Kills: 12, Stops: 3, Duplicated: 9, DuplicatesAllowed: 40,
		Recovered: 8, RecoveryP50: 510, RecoveryP99: 702.5, RecoveryMax: 731, QuietMS: 420, DurationMS: 61_250,
		Faults: []chaos.FaultCount{
			{Name: "worker-kill", What: "a worker gets SIGKILL", Row: 1, Times: 12, Bit: 11},
			{Name: "server-stop", What: "the server stands still", Row: 6, Times: 2},
			{Name: "power-cut", What: "what was not written is gone", Row: 10, Unavailable: "there is no compiler"},
		},
		Sometimes: map[string]int64{"lease ran out": 9, "settle lost": 4},
		Schedule: &chaos.Schedule{Seed: 4711, DurationMS: 60_000, Faults: []chaos.Planned{
			{Name: "worker-kill", Lane: chaos.Kills, AtMS: 400, ForMS: 100, Pick: 5},
		}},
		Report: &chaos.Report{Queue: "orders", LeaseMS: 500, Processes: 16, Events: 654_321, Cases: map[string]int64{"kill": 12}, Checks: []chaos.Result{
			{Name: chaos.CheckLost, Invariant: 8, What: "nothing is lost", Looked: 123456, Untold: 3, Excused: 2},
			{Name: chaos.CheckOverlap, Invariant: 5, What: "no two holders"},
		}},
	}
	for i := range 61 {
		o.Seconds = append(o.Seconds, chaos.Second{Enqueued: int64(2000 + i), Started: int64(1990 + i), Acked: int64(1980 + i), Failed: int64(i % 7), Expired: int64(i % 3)})
		o.Windows = append(o.Windows, chaos.Window{Name: "worker-kill", FromMS: int64(i)*1000 + 300, ToMS: int64(i)*1000 + 400})
	}
	return o
}

// violated is sample with a violation, and hostile text wherever text can come from.
func violated() *chaos.Outcome {
	o := sample()
	o.Queue, o.Lost, o.Violations = hostile, 1, 1
	o.Problems = []string{"worker-1.1 ended by itself: " + hostile}
	o.Dir = "/tmp/" + hostile
	o.Faults = append(o.Faults, chaos.FaultCount{Name: hostile, What: hostile, Times: 1, Bit: 1}, chaos.FaultCount{Name: "b" + hostile, Unavailable: hostile})
	o.Windows = append(o.Windows, chaos.Window{Name: hostile, FromMS: 5000, ToMS: 9000})
	o.Schedule.Faults = append(o.Schedule.Faults, chaos.Planned{Name: hostile, Lane: chaos.Lane(hostile)})
	o.Sometimes[hostile] = 1
	o.Report.Cases[hostile] = 1
	o.Report.Checks[0].Violations = 1
	o.Report.Checks[0].Examples = []chaos.Violation{{
		ID: hostile, Text: hostile,
		Events: []chaos.Shown{{Process: hostile, Event: record.Event{Kind: record.Started, ID: hostile, Op: hostile, Fence: 99}}},
	}}
	o.Report.Checks = append(o.Report.Checks, chaos.Result{Name: hostile, What: hostile})
	return o
}

func written(t *testing.T, p *Page) string {
	t.Helper()
	text := &bytes.Buffer{}
	require.NoError(t, p.Write(text))
	return text.String()
}

// An element is one of a page, with the text that is directly in it.
type element struct {
	name  string
	attrs map[string]string
	text  string
	path  string
}

// parse reads a page as strictly as XML is: every element is closed, every character is a legal one.
func parse(t *testing.T, page string) []*element {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(page))
	var all, open []*element
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			require.Empty(t, open)
			return all
		}
		require.NoError(t, err)
		switch token := token.(type) {
		case xml.StartElement:
			e := &element{name: token.Name.Local, attrs: map[string]string{}}
			for _, a := range token.Attr {
				e.attrs[a.Name.Local] = a.Value
			}
			for _, o := range open {
				e.path += o.name + "/"
			}
			all, open = append(all, e), append(open, e)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			if len(open) > 0 {
				open[len(open)-1].text += string(token)
			}
		}
	}
}

func named(all []*element, name string) []*element {
	return slices.DeleteFunc(slices.Clone(all), func(e *element) bool { return e.name != name })
}

// textOf joins what a person reads.
func textOf(all []*element) string {
	w := &strings.Builder{}
	for _, e := range all {
		if e.name != "style" {
			w.WriteString(strings.Join(strings.Fields(e.text), " ") + "\n")
		}
	}
	return w.String()
}

func TestAReportHasAllThatARunHasShown(t *testing.T) {
	t.Parallel()
	all := parse(t, written(t, &Page{Outcome: sample()}))
	text := textOf(all)
	for _, part := range []string{
		"Chaos run 4711: right", "123,456", "at most 40 are explained", "702 ms", "bound 750ms", // the numbers
		"worker-kill", "a worker gets SIGKILL", "Not here: there is no compiler", "Shows nothing: it never had an effect.", // faults
		"8: nothing is lost", "5: no two holders", "It looked at nothing, and so has shown nothing.", // checks
		"lease ran out", "settle lost", "0, did not happen", "context ended: shutdown", // cases
		"4711", "reaper chaos --seed 4711 --duration 1m0s --lease 500ms", `"for_ms": 100`, // how to do it again
	} {
		assert.Contains(t, text, part)
	}
	headings := named(all, "h1")
	require.Len(t, headings, 1)
	assert.Contains(t, headings[0].text, "nothing lost, unexpected or violated")
	assert.NotContains(t, text, "Not right")

	page := written(t, &Page{Outcome: sample(), Command: "reaper chaos --rate 7 <&>"})
	assert.Contains(t, textOf(parse(t, page)), "reaper chaos --rate 7 <&>")
}

func TestEveryPlotHasATitleUnitsAndWordsForThoseWhoDoNotSeeIt(t *testing.T) {
	t.Parallel()
	all := parse(t, written(t, &Page{Outcome: sample()}))
	plots := named(all, "svg")
	require.Len(t, plots, 2, "of recovery times there are none in this sample")
	text := textOf(all)
	for _, plot := range plots {
		assert.Equal(t, "img", plot.attrs["role"])
		assert.NotEmpty(t, plot.attrs["viewBox"])
		assert.NotContains(t, plot.attrs, "width", "the page says how wide it is")
		for _, id := range strings.Fields(plot.attrs["aria-labelledby"]) {
			i := slices.IndexFunc(all, func(e *element) bool { return e.attrs["id"] == id })
			require.Positive(t, i, id)
			assert.NotEmpty(t, all[i].text)
		}
	}
	assert.Contains(t, text, "jobs per second")
	assert.Contains(t, text, "seconds since the run began")
	assert.Contains(t, text, "Faults with an effect: worker-kill 11 times.")
	assert.Contains(t, text, "Nothing to show.")
	bands := 0
	for _, e := range named(all, "path") {
		assert.NotRegexp(t, `#5EA0|-8000`, e.attrs["style"], "every ink was exchanged for one of the style sheet")
		if strings.Contains(e.attrs["style"], "var(--kills)") {
			bands += strings.Count(e.attrs["d"], "Z")
		}
	}
	assert.Equal(t, 3*61, bands, "a window in both plots over time, and in the strip of its fault")
}

func TestRecoveryTimesAreShownBesideTheirBound(t *testing.T) {
	t.Parallel()
	f, err := recoveriesOf(sample(), []time.Duration{400 * time.Millisecond, 500 * time.Millisecond, 500 * time.Millisecond, 900 * time.Millisecond})
	require.NoError(t, err)
	all := parse(t, string(f.SVG))
	text := textOf(all)
	assert.Contains(t, text, "milliseconds from the worker's death to the next claim")
	assert.Contains(t, text, "Histogram of 4 recovery times")
	assert.Contains(t, text, "a mark at 750 ms")
	assert.Contains(t, f.Caption, "4 jobs, of which 1 took longer than the bound")
	filled, dashed := 0, 0
	for _, e := range named(all, "path") {
		if strings.Contains(e.attrs["style"], "fill:var(--bars)") {
			filled++
		}
		if strings.Contains(e.attrs["style"], "stroke-dasharray") {
			dashed++
		}
	}
	assert.Equal(t, 3, filled, "bars")
	assert.Equal(t, 1, dashed, "the bound")
}

func TestAReportRefersToNothingOutsideOfItself(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]*chaos.Outcome{"right": sample(), "empty": {}} {
		page := written(t, &Page{Outcome: o})
		assert.NotRegexp(t, `(?i)https?:|src=|href=|url\(|@import|<script|<link|<iframe`, page, name)
	}
	// Here the text of a hostile ID may say so; what the page is made of may not.
	for _, e := range parse(t, written(t, &Page{Outcome: violated()})) {
		assert.NotContains(t, []string{"script", "img", "link", "iframe", "object", "image", "use"}, e.name)
		for name := range e.attrs {
			assert.NotRegexp(t, regexp.MustCompile(`(?i)^(on.*|src|href|srcset|action|xmlns.*)$`), name)
		}
	}
}

func TestHostileTextStaysText(t *testing.T) {
	t.Parallel()
	page := written(t, &Page{Outcome: violated(), Command: hostile})
	all := parse(t, page)
	text := textOf(all)
	for _, odd := range []string{"<img", "\u202e", "\x1b", "ZgotmplZ"} {
		assert.False(t, strings.Contains(page, odd), "%q: what turns the direction of text, or is none, is written out", odd)
	}
	assert.Contains(t, text, `</script></pre><img src=http://example.org/x onerror=alert(1)>"'&\x00\x1b[31m\u202e\xff{{.}}`, "and all of it is to be read")
	assert.Contains(t, text, `1 events of this job`)
	assert.Contains(t, text, "1 lost, 1 violations, 1 problems of the run itself")
}

func TestAnOutcomeWithoutAnythingIsShown(t *testing.T) {
	t.Parallel()
	text := textOf(parse(t, written(t, &Page{Outcome: &chaos.Outcome{}})))
	for _, part := range []string{"Not right", "it was not judged", "The run was not judged.", "Nothing to show.", "There were none"} {
		assert.Contains(t, text, part)
	}
	require.ErrorContains(t, Write(io.Discard, nil), "Outcome is nil")
}

func TestALongRunMakesAPageThatABrowserCanShow(t *testing.T) {
	t.Parallel()
	o := sample()
	o.Seconds, o.Windows = nil, nil
	for i := range 12 * 3600 {
		o.Seconds = append(o.Seconds, chaos.Second{Enqueued: int64(i % 500), Acked: 1, Failed: 7})
		o.Windows = append(o.Windows, chaos.Window{Name: fmt.Sprintf("fault-%d", i%20), FromMS: int64(i) * 1000, ToMS: int64(i)*1000 + 900})
	}
	page := written(t, &Page{Outcome: o})
	assert.Less(t, len(page), 600_000)
	parse(t, page)
}

// An outWriter fails.
type outWriter struct{}

func (outWriter) Write([]byte) (int, error) { return 0, errors.New("the disk is full") }

func TestAWriteThatFailsIsToldOf(t *testing.T) {
	t.Parallel()
	require.EqualError(t, Write(outWriter{}, sample()), "the disk is full")
}

func TestNumbersAreGrouped(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000", -100: "-100"} {
		assert.Equal(t, want, grouped(n))
	}
}
