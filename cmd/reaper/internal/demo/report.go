package demo

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// print writes the ledger for people.
func (b *ledger) print(out io.Writer) {
	fmt.Fprintf(out, "\nThe ledger, computed from %d lines that the workers wrote and from Redis (%s%s)\n", b.Lines, b.Server, b.Version)
	b.printSums(out)
	b.printCuts(out)
	b.printEffects(out)
	b.printLetters(out)
	b.printLimits(out)
	if len(b.Problems) > 0 {
		fmt.Fprintln(out, "\nTHE LEDGER DOES NOT BALANCE:")
		for _, problem := range b.Problems {
			fmt.Fprintf(out, "  - %s\n", problem)
		}
		return
	}
	fmt.Fprintf(out, "\nThe ledger balances: %d jobs = %d acked + %d dead, and none is lost. It took %v.\n",
		b.Jobs, b.Acked, b.Dead, b.Took.Round(100*time.Millisecond))
}

func newTable(out io.Writer, header ...any) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(out)
	style := table.StyleLight
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	if len(header) > 0 {
		t.AppendHeader(header)
	}
	return t
}

func (b *ledger) printSums(out io.Writer) {
	t := newTable(out)
	t.SetColumnConfigs([]table.ColumnConfig{{Number: 2, Align: text.AlignRight}})
	row := func(what string, n any, remark string) { t.AppendRow(table.Row{what, n, remark}) }
	row("jobs enqueued", b.Jobs, "")
	row("acked", b.Acked, "")
	row("dead", b.Dead, "dead letters, see below")
	row("lost", len(b.Lost), "IDs neither acked nor in a place")
	t.AppendSeparator()
	row("deliveries", b.Deliveries, fmt.Sprintf("starts of handlers, %d of them not the first", b.Retries))
	row("workers killed", b.Kills, b.killRemark())
	row("leases expired", b.Expired, "each put its job back, and raised its retry count")
	if len(b.Cuts) > 0 {
		row("expiry to next claim", short(b.P50), fmt.Sprintf("p50; at most %s; by Redis' clock", short(b.Max)))
	}
	if b.Frozen {
		row("late settles refused", b.Refused, "from a worker that was frozen past its leases")
	} else {
		row("late settles refused", b.Refused, "no worker was frozen")
	}
	if late := b.Graces - 1; late > 0 {
		row("late sweeps", late, "each spared holders for a lease: a busy machine")
	}
	t.AppendSeparator()
	row("effects", b.Effects.Happened, "jobs whose side effect happened")
	row("done, not repeated", b.Effects.Spared, "jobs that ran again after their effect: the guard knew")
	row("in doubt", len(b.Effects.Doubts), "begun, and not written down as done: see below")
	row("double effects", b.Effects.Double, "beyond the first, and no doubt explains them")
	t.Render()
}

func (b *ledger) killRemark() string {
	var parts []string
	for pid, name := range b.victims {
		parts = append(parts, fmt.Sprintf("%s, in the middle of %d jobs", name, b.interrupted[pid]))
	}
	slices.Sort(parts)
	return strings.Join(parts, "; ")
}

func (b *ledger) printCuts(out io.Writer) {
	if len(b.Cuts) == 0 {
		return
	}
	fmt.Fprintln(out, "\nInterrupted in the middle (again after: from the stored expiry to the next claim)")
	t := newTable(out, "job", "worker", "again after", "by", "retries", "in the end")
	t.SetColumnConfigs([]table.ColumnConfig{{Number: 3, Align: text.AlignRight}, {Number: 5, Align: text.AlignRight}})
	for _, c := range b.Cuts {
		if !c.Again {
			t.AppendRow(table.Row{c.ID, c.Worker + " " + c.How, "never", "", "", c.End})
			continue
		}
		t.AppendRow(table.Row{c.ID, c.Worker + " " + c.How, short(c.After), c.By, c.Retries, c.End})
	}
	t.Render()
}

func (b *ledger) printEffects(out io.Writer) {
	fmt.Fprintln(out, "\nSide effects per job")
	t := newTable(out, "times", "jobs", "")
	for _, n := range b.Effects.times() {
		remark := ""
		switch {
		case n == 0 && b.Effects.Times[0] == b.Dead:
			remark = "dead letters, which failed before it"
		case n > 1:
			remark = "see below"
		}
		t.AppendRow(table.Row{n, b.Effects.Times[n], remark})
	}
	t.Render()
	if n := len(b.Effects.Doubts); n > 0 {
		fmt.Fprintf(out, "\nIn doubt: %d (begun by a worker that was cut off; the next one was told that it may have happened)\n", n)
	}
	for _, d := range b.Effects.Doubts {
		fmt.Fprintf(out, "%s, effect %s: begun by %s, then by %s\n", d.ID, d.Effect, d.Left, d.Worker)
		printTimes(out, d.Times)
	}
	for _, d := range b.Effects.Twice {
		if !b.Effects.doubted(d.ID) {
			fmt.Fprintf(out, "%s, NEVER IN DOUBT\n", d.ID)
			printTimes(out, d.Times)
		}
	}
}

func printTimes(out io.Writer, times []effect) {
	for _, e := range times {
		fmt.Fprintf(out, "  at %s by %s: %s\n", e.Time.Local().Format("15:04:05.000"), e.Worker, e.Ended)
	}
}

func (b *ledger) printLetters(out io.Writer) {
	if len(b.Letters) == 0 {
		return
	}
	fmt.Fprintln(out, "\nDead letters")
	t := newTable(out, "job", "attempts", "last reason")
	for _, l := range b.Letters {
		t.AppendRow(table.Row{l.ID, l.Attempts, l.Reason})
	}
	t.Render()
}

// printLimits says what the guard does, and what can be promised by nobody.
func (b *ledger) printLimits(out io.Writer) {
	fmt.Fprint(out, `
The side effects went through the guard (Job.BeginOnce), which writes down that one begins
and that it is done. What is done is not done again, whoever runs the job next.

What can still happen twice is an effect that was begun and not written down as done: its
worker died before it or after it, and no queue can know which. The guard says so: it is in
doubt. By default it is done again; a handler may ask the other side first. In a database
of your own the effect and its record can be one transaction (idempotency/sqlguard).
`)
}

// short writes a duration in milliseconds.
func short(d time.Duration) string { return fmt.Sprintf("%.1f ms", milliseconds(d)) }
