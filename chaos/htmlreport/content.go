package htmlreport

import (
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/leaseq/leaseq/chaos"
)

// A content is what the template shows. Its texts are clean; the template escapes them.
type content struct {
	Title, Subtitle, Faulty string
	OK                      bool
	Problems, Notes         []string
	Tiles                   []tile
	Plots                   []figure
	Faults                  []faultRow
	Checks                  []checkRow
	Sometimes, Cases        []caseRow
	Seed                    uint64
	Command, Schedule, Dir  string
	Planned                 int
}

type tile struct{ Name, Value, Note, Class string }

// A figure is a plot with its title, its key and a caption.
type figure struct {
	Title   string
	SVG     template.HTML // "" where there is nothing to show
	Key     []keyEntry
	Caption string
}

type keyEntry struct{ Name, Text string } // Name is that of a colour

type faultRow struct {
	Name, What, Row, Unavailable, Class string
	Lane                                chaos.Lane
	Times, Bit                          int64
	Silent                              bool
}

type checkRow struct {
	Name, What                          string
	Invariant                           int
	Looked, Untold, Excused, Violations int64
	Examples                            []example
}

type example struct {
	ID, Text string
	Events   []string
}

type caseRow struct {
	Name  string
	Times int64
}

func (p *Page) content() (*content, error) {
	o := p.Outcome
	c := &content{
		Title: fmt.Sprintf("Chaos run %d: %s", o.Seed, verdict(o)), Subtitle: subtitle(o), Faulty: faulty(o), OK: o.OK(),
		Tiles: tiles(o), Faults: faultRows(o), Checks: checkRows(o.Report), Sometimes: sometimes(o),
		Seed: o.Seed, Command: clean(p.Command), Dir: clean(o.Dir),
	}
	for _, problem := range o.Problems {
		c.Problems = append(c.Problems, clean(problem))
	}
	c.Notes = notes(o)
	if c.Command == "" {
		c.Command = "reaper chaos" + again(o)
	}
	if o.Report != nil {
		for _, name := range slices.Sorted(maps.Keys(o.Report.Cases)) {
			c.Cases = append(c.Cases, caseRow{Name: clean(name), Times: o.Report.Cases[name]})
		}
	}
	if o.Schedule != nil {
		text, err := json.MarshalIndent(o.Schedule, "", " ")
		if err != nil {
			return nil, err
		}
		c.Schedule, c.Planned = inASCII(string(text)), len(o.Schedule.Faults)
	}
	var err error
	c.Plots, err = figures(o)
	return c, err
}

func verdict(o *chaos.Outcome) string {
	if o.OK() {
		return "right"
	}
	return "not right"
}

func subtitle(o *chaos.Outcome) string {
	text := fmt.Sprintf("Queue %s, %s, seed %d.", clean(o.Queue), inSeconds(o.DurationMS), o.Seed)
	if o.Report != nil {
		text = fmt.Sprintf("Queue %s, lease %v, %s in all, seed %d, %s events of %d processes.", clean(o.Queue), leaseOf(o), inSeconds(o.DurationMS),
			o.Seed, grouped(o.Report.Events), o.Report.Processes)
	}
	return text
}

func leaseOf(o *chaos.Outcome) time.Duration {
	if o.Report == nil {
		return 0
	}
	return time.Duration(o.Report.LeaseMS) * time.Millisecond
}

func inSeconds(ms int64) string {
	return (time.Duration(ms) * time.Millisecond).Round(100 * time.Millisecond).String()
}

// faulty names what was not right, in a few words.
func faulty(o *chaos.Outcome) string {
	var parts []string
	add := func(n int64, what string) {
		if n > 0 {
			parts = append(parts, grouped(n)+" "+what)
		}
	}
	add(o.Lost, "lost")
	add(o.Unexpected, "unexpected")
	add(o.Violations, "violations")
	add(max(o.Duplicated-o.DuplicatesAllowed, 0), "more duplicates than faults explain")
	add(int64(len(o.Problems)), "problems of the run itself")
	if o.Report == nil {
		parts = append(parts, "it was not judged")
	}
	return strings.Join(parts, ", ")
}

// notes are what makes the verdict say less than it seems to.
func notes(o *chaos.Outcome) []string {
	var out []string
	if silent := o.Silent(); len(silent) > 0 {
		out = append(out, "The run has shown nothing about these faults, which never had an effect: "+clean(strings.Join(silent, ", "))+".")
	}
	if missing := o.Missing(); len(missing) > 0 {
		out = append(out, "It has shown nothing about these cases, which did not happen: "+clean(strings.Join(missing, ", "))+".")
	}
	return out
}

func tiles(o *chaos.Outcome) []tile {
	zero := func(name string, n int64) tile {
		if n == 0 {
			return tile{Name: name, Value: "0", Class: "good"}
		}
		return tile{Name: name, Value: grouped(n), Class: "bad"}
	}
	duplicated := tile{Name: "duplicated", Value: grouped(o.Duplicated), Note: "at most " + grouped(o.DuplicatesAllowed) + " are explained"}
	if o.Duplicated > o.DuplicatesAllowed {
		duplicated.Class = "bad"
	}
	bound := fmt.Sprintf("bound %v", leaseOf(o)+prompt)
	return []tile{
		zero("lost", o.Lost), zero("unexpected", o.Unexpected), zero("violations", o.Violations), duplicated,
		{Name: "jobs", Value: grouped(o.Jobs)}, {Name: "acked", Value: grouped(o.Acked)}, {Name: "dead at the end", Value: grouped(o.Dead)},
		{Name: "SIGKILLs", Value: grouped(o.Kills)}, {Name: "SIGSTOPs", Value: grouped(o.Stops)},
		{Name: "redelivered", Value: grouped(o.Recovered), Note: "jobs whose lease ran out"},
		{Name: "recovery p50", Value: fmt.Sprintf("%.0f ms", o.RecoveryP50), Note: "from a worker's death"},
		{Name: "recovery p99", Value: fmt.Sprintf("%.0f ms", o.RecoveryP99), Note: bound},
		{Name: "recovery max", Value: fmt.Sprintf("%.0f ms", o.RecoveryMax), Note: bound},
		{Name: "quiet after", Value: grouped(o.QuietMS) + " ms", Note: "from the last fault until nothing was overdue"},
	}
}

// prompt is what a sweeper may take beyond the lease, as docs/reliability.md promises.
const prompt = 250 * time.Millisecond

func faultRows(o *chaos.Outcome) []faultRow {
	lanes := lanesOf(o)
	var out []faultRow
	for _, f := range o.Faults {
		row := faultRow{
			Name: clean(f.Name), What: clean(f.What), Unavailable: clean(f.Unavailable), Lane: lanes.of(f.Name), Times: f.Times, Bit: f.Bit,
			Silent: f.Unavailable == "" && f.Bit == 0,
		}
		if f.Row > 0 {
			row.Row = strconv.Itoa(f.Row)
		}
		if row.Silent {
			row.Class = "odd"
		}
		out = append(out, row)
	}
	return out
}

func checkRows(r *chaos.Report) []checkRow {
	if r == nil {
		return nil
	}
	var out []checkRow
	for i := range r.Checks {
		c := &r.Checks[i]
		row := checkRow{
			Name: clean(c.Name), What: clean(c.What), Invariant: c.Invariant,
			Looked: c.Looked, Untold: c.Untold, Excused: c.Excused, Violations: c.Violations,
		}
		for _, v := range c.Examples {
			e := example{Text: clean(v.Text)}
			if v.ID != "" {
				e.ID = strconv.Quote(v.ID) // whatever it is made of
			}
			for _, shown := range v.Events {
				e.Events = append(e.Events, clean(shown.String()))
			}
			row.Examples = append(row.Examples, e)
		}
		out = append(out, row)
	}
	return out
}

func sometimes(o *chaos.Outcome) []caseRow {
	names := chaos.Sometimes()
	for _, name := range slices.Sorted(maps.Keys(o.Sometimes)) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	out := make([]caseRow, len(names))
	for i, name := range names {
		out[i] = caseRow{Name: clean(name), Times: o.Sometimes[name]}
	}
	return out
}

// again are the flags that an Outcome knows.
func again(o *chaos.Outcome) string {
	text := fmt.Sprintf(" --seed %d", o.Seed)
	if o.Schedule != nil {
		text += " --duration " + (time.Duration(o.Schedule.DurationMS) * time.Millisecond).String()
	}
	if lease := leaseOf(o); lease > 0 {
		text += " --lease " + lease.String()
	}
	return text
}

// clean makes a text that shows what is in it, and can stand in HTML and in XML: what is not printable is written out.
func clean(text string) string {
	odd := func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) || r == unicode.ReplacementChar }
	if strings.IndexFunc(text, odd) < 0 {
		return text
	}
	w := &strings.Builder{}
	for i, line := range strings.Split(text, "\n") {
		if i > 0 {
			w.WriteByte('\n')
		}
		quoted := strconv.Quote(line)
		quoted = strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
		w.WriteString(quoted)
	}
	return w.String()
}

// inASCII writes JSON, which may hold any text, so that a person sees all of it, and that it is the same when it is read.
func inASCII(text string) string {
	w := &strings.Builder{}
	for _, unit := range utf16.Encode([]rune(text)) {
		if unit < unicode.MaxASCII {
			w.WriteByte(byte(unit))
			continue
		}
		fmt.Fprintf(w, `\u%04x`, unit)
	}
	return w.String()
}

// grouped writes a number with a comma after each three digits.
func grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for at := len(text) - 3; at > 0 && text[at-1] != '-'; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}
