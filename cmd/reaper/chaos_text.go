package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/leaseq/leaseq/chaos"
)

// writeText prints what a run has shown, for people.
func (c *chaosCommand) writeText(o *chaos.Outcome) error {
	w := &strings.Builder{}
	fmt.Fprintf(w, "%s\n\n%s\n", faultTable(o.Faults, true), checkTable(o.Report))
	for i := range o.Report.Checks {
		tellExamples(w, &o.Report.Checks[i])
	}
	if missing := o.Missing(); len(missing) > 0 {
		fmt.Fprintf(w, "\nDid not happen, so nothing is shown about it: %s\n", strings.Join(missing, ", "))
	}
	if silent := o.Silent(); len(silent) > 0 {
		fmt.Fprintf(w, "\nHad no effect, so nothing is shown about it: %s\n", strings.Join(silent, ", "))
	}
	for _, problem := range o.Problems {
		fmt.Fprintf(w, "\nProblem of the run: %s\n", problem)
	}
	word := "NOT RIGHT"
	if o.OK() {
		word = "Right"
	}
	fmt.Fprintf(w, `
%s: %d lost, %d unexpected, %d violations, %d duplicated (at most %d are explained)
%d jobs, %d acked, %d dead, %d SIGKILLs, %d SIGSTOPs; %d redelivered after an expiry
Recovery from a worker's death: p50 %.0f ms, p99 %.0f ms, longest %.0f ms (lease %s + 250 ms)
Again: %s
`, word, o.Lost, o.Unexpected, o.Violations, o.Duplicated, o.DuplicatesAllowed,
		o.Jobs, o.Acked, o.Dead, o.Kills, o.Stops, o.Recovered,
		o.RecoveryP50, o.RecoveryP99, o.RecoveryMax, length(c.lease), c.again(o))
	_, err := fmt.Fprint(c.app.out, w)
	return err
}

// faultTable lists faults, with how often they were made if there was a run.
func faultTable(faults []chaos.FaultCount, made bool) string {
	columns := []string{"fault", "here", "what happens"}
	if made {
		columns = []string{"fault", "times", "with effect", ""}
	}
	t := newTable(columns...)
	last := len(columns)
	t.SetColumnConfigs(alignedLeft(last, made))
	t.SuppressTrailingSpaces()
	for _, f := range faults {
		switch {
		case made && f.Unavailable != "":
			t.AppendRow(table.Row{f.Name, "-", "-", "not here: " + f.Unavailable})
		case made:
			t.AppendRow(table.Row{f.Name, f.Times, f.Bit, ""})
		case f.Unavailable != "":
			t.AppendRow(table.Row{f.Name, "no", f.What + "\nnot here: " + f.Unavailable})
		default:
			t.AppendRow(table.Row{f.Name, "yes", f.What})
		}
	}
	return t.Render()
}

// alignedLeft has texts in the first and the last column, and numbers between.
func alignedLeft(last int, numbers bool) []table.ColumnConfig {
	var configs []table.ColumnConfig
	for i := 1; i <= last; i++ {
		one := table.ColumnConfig{Number: i, Align: text.AlignLeft, AlignHeader: text.AlignLeft}
		if numbers && i > 1 && i < last {
			one.Align, one.AlignHeader = text.AlignRight, text.AlignRight
		}
		if i == last {
			one.WidthMax, one.WidthMaxEnforcer = 90, text.WrapSoft
		}
		configs = append(configs, one)
	}
	return configs
}

func checkTable(r *chaos.Report) string {
	t := newTable("check", "looked at", "not told", "excused", "violations", "")
	t.SetColumnConfigs(alignedLeft(6, true))
	t.SuppressTrailingSpaces()
	for i := range r.Checks {
		c := &r.Checks[i]
		note := ""
		switch {
		case c.Violations > 0:
			note = "VIOLATED"
		case c.Looked == 0:
			note = "looked at nothing"
		}
		t.AppendRow(table.Row{c.Name, c.Looked, c.Untold, c.Excused, c.Violations, note})
	}
	return t.Render()
}

// tellExamples prints the violations of a check that were kept, with the events of their jobs.
func tellExamples(w *strings.Builder, c *chaos.Result) {
	if len(c.Examples) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s: %s\n", c.Name, c.What)
	for _, v := range c.Examples {
		fmt.Fprintf(w, "  %q: %s\n", v.ID, v.Text)
		for i := range v.Events {
			fmt.Fprintf(w, "    %s\n", v.Events[i].String())
		}
	}
}

// tellFaults prints what can go wrong, and whether it can be made here.
func (c *chaosCommand) tellFaults(ctx context.Context) error {
	faults, err := chaos.Availability(ctx, &c.options)
	if err != nil {
		return c.noOutcome(ctx, err, false)
	}
	if err := c.cleanUp(); err != nil {
		return err
	}
	if c.json {
		return json.NewEncoder(c.app.out).Encode(map[string]any{"faults": byName(faults)})
	}
	_, err = fmt.Fprintln(c.app.out, faultTable(faults, false))
	return err
}
