package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// mainCounters have a column each, in the order of a job's life; the others share one.
var mainCounters = []string{"enqueued", "claimed", "acked", "nacked", "released", "buried", "expired", "died", "redriven"}

// writeTables prints two tables: how the queues are, and their counters.
func writeTables(w io.Writer, told, prefix string, queues []queueStats, complete bool) error {
	if len(queues) == 0 {
		if !complete {
			return nil // the errors say it all
		}
		return writeNone(w, told, prefix)
	}
	state := newTable("queue", "due", "claimable", "processing", "expired", "dead", "oldest due", "last sweep")
	counters := newTable(append(append([]string{"queue"}, mainCounters...), "others")...)
	for _, q := range queues {
		name := q.Queue
		if !q.Registered {
			name += " (not in the registry)"
		}
		state.AppendRow(table.Row{name, q.Due, q.Claimable, q.Processing, q.Expired, q.Dead, age(q.oldestDue()), ago(q.SinceSweep)})
		row := table.Row{q.Queue}
		for _, counter := range mainCounters {
			row = append(row, q.Counters[counter])
		}
		counters.AppendRow(append(row, others(q.Counters)))
	}
	text := fmt.Sprintf("%s\n\nCounters\n%s\n", state.Render(), counters.Render())
	for _, q := range queues {
		if q.Paused {
			text += fmt.Sprintf("\nQueue %s is %s.\n", q.Queue, paused(&q.Stats))
		}
		if q.Done > 0 {
			text += fmt.Sprintf("\nQueue %s keeps %d finished jobs in done.\n", q.Queue, q.Done)
		}
		if q.Policies != "" {
			text += fmt.Sprintf("\nQueue %s: live deployments publish different limits: %s\n", q.Queue, q.Policies)
		}
	}
	_, err := io.WriteString(w, text)
	return err
}

// writeNone says that the registry is empty.
func writeNone(w io.Writer, told, prefix string) error {
	_, err := fmt.Fprintf(w, "No queue has been used yet at %s under prefix %s.\n", told, prefix)
	return err
}

func newTable(columns ...string) table.Writer {
	t := table.NewWriter()
	style := table.StyleLight
	style.Options = table.OptionsNoBordersAndSeparators
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	header := make(table.Row, len(columns))
	configs := make([]table.ColumnConfig, len(columns))
	for i, name := range columns {
		header[i] = name
		align := text.AlignRight
		if i == 0 || name == "others" {
			align = text.AlignLeft
		}
		configs[i] = table.ColumnConfig{Number: i + 1, Align: align, AlignHeader: align}
	}
	t.AppendHeader(header)
	t.SetColumnConfigs(configs)
	return t
}

// others lists the counters without a column.
func others(counters map[string]int64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counters)) {
		if !slices.Contains(mainCounters, name) {
			parts = append(parts, fmt.Sprintf("%s %d", name, counters[name]))
		}
	}
	return strings.Join(parts, ", ")
}

// age is short: two digits behind the point tell nobody anything. A negative duration says that there is none.
func age(d time.Duration) string {
	switch {
	case d < 0:
		return "-"
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func ago(d time.Duration) string {
	if d < 0 {
		return "never"
	}
	return age(d) + " ago"
}
