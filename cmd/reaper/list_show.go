package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/leaseq/leaseq/reliable"
)

// The JSON of `reaper list --json`.
type listJSON struct {
	Queue string         `json:"queue"`
	Place reliable.Place `json:"place"`
	Jobs  []jobJSON      `json:"jobs"`
	Next  *string        `json:"next"` // null: there is no more
}

func (c *listCommand) tell(jobs []reliable.Info, next string) error {
	place := reliable.Place(c.filter.place)
	if c.json {
		out := listJSON{Queue: c.queue, Place: place, Jobs: make([]jobJSON, len(jobs))}
		for i := range jobs {
			out.Jobs[i] = newJobJSON(&jobs[i], false)
		}
		if next != "" {
			out.Next = &next
		}
		return writeJSONLine(c.app.out, out)
	}
	var err error
	switch {
	case len(jobs) == 0 && next == "":
		_, err = fmt.Fprintf(c.app.out, "No jobs in %s of queue %s%s.\n", place, c.queue, c.filter.told())
		return err
	case len(jobs) > 0:
		_, err = fmt.Fprintln(c.app.out, jobTable(place, jobs))
	}
	if err == nil && next != "" {
		_, err = fmt.Fprintf(c.app.out, "There are more: --after %s\n", shellWord(next))
	}
	return err
}

// told says that a listing was narrowed down.
func (f *filterFlags) told() string {
	if f.given() {
		return " are so"
	}
	return ""
}

// shellWord is a text as a shell takes it.
func shellWord(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// jobTable shows jobs of one place.
func jobTable(place reliable.Place, jobs []reliable.Info) string {
	columns := map[reliable.Place][]string{
		reliable.Due:        {"id", "kind", "due", "attempt", "redrives", "bytes", "last error"},
		reliable.Processing: {"id", "kind", "lease left", "attempt", "redrives", "bytes", "holder"},
		reliable.Dead:       {"id", "kind", "died", "starts", "redrives", "bytes", "class", "last error"},
		reliable.Done:       {"id", "done"}, // nothing else is kept
	}[place]
	t := newTextTable(columns...)
	for i := range jobs {
		info := &jobs[i]
		last, _ := info.LastError()
		row := table.Row{plain(info.ID), kindOf(info), when(info), info.Attempt, info.Redrives, info.PayloadSize}
		switch place {
		case reliable.Due:
			row = append(row, short(last.Reason))
		case reliable.Processing:
			row = append(row, holderOf(info))
		case reliable.Done:
			row = table.Row{plain(info.ID), when(info)}
		case reliable.Dead:
			row[3] = info.Failures + info.Expiries
			row = append(row, string(info.Class), short(last.Reason))
		}
		t.AppendRow(row)
	}
	return t.Render()
}

// textColumns are those of words, which stand at the left.
var textColumns = []string{"id", "kind", "holder", "class", "last error"}

// newTextTable is newTable with columns of words.
func newTextTable(columns ...string) table.Writer {
	t := newTable(columns...)
	configs := make([]table.ColumnConfig, len(columns))
	for i, name := range columns {
		align := text.AlignRight
		if slices.Contains(textColumns, name) {
			align = text.AlignLeft
		}
		configs[i] = table.ColumnConfig{Number: i + 1, Align: align, AlignHeader: align}
	}
	t.SetColumnConfigs(configs)
	return t
}

// when tells a job's time in its place, from now.
func when(info *reliable.Info) string {
	switch {
	case info.At.IsZero():
		return "-"
	case info.Place == reliable.Processing && info.In < 0:
		return "run out " + ago(-info.In)
	case info.Place == reliable.Processing:
		return age(info.In)
	case info.In > 0:
		return "in " + age(info.In)
	}
	return ago(-info.In)
}

func kindOf(info *reliable.Info) string {
	switch {
	case info.Undecoded != nil:
		return "(undecodable)"
	case info.Kind == "" && info.Place == reliable.Done:
		return "-"
	case info.Kind == "":
		return "(no record)"
	}
	return info.Kind
}

func holderOf(info *reliable.Info) string {
	if info.Cancelling {
		return info.Holder + " (cancelled)"
	}
	return info.Holder
}

// shortReason is how many characters of a reason a table shows.
const shortReason = 60

func short(reason string) string {
	reason = plain(reason)
	if runes := []rune(reason); len(runes) > shortReason {
		return string(runes[:shortReason-1]) + "…"
	}
	return reason
}

// plain shows a text on one line, so that it does nothing to a terminal, whoever has stored it.
func plain(s string) string { return harmless(s, "") }

// plainLines is plain, but that lines stay lines.
func plainLines(s string) string { return harmless(strings.ReplaceAll(s, "\r\n", "\n"), "\n\t") }

func harmless(s, kept string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case strings.ContainsRune(kept, r):
			return r
		case r < ' ':
			return '\u2400' + r
		case r == 0x7f || r >= 0x80 && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069:
			return utf8.RuneError
		}
		return r
	}, s)
}

// A group is some dead jobs that are alike.
type group struct{ kind, class string }

type groupBooks struct {
	jobs          int
	oldest, newer time.Duration // ages
}

// The JSON of `reaper dead --summary --json`.
type summaryJSON struct {
	Queue  string      `json:"queue"`
	Jobs   int         `json:"jobs"`
	Groups []groupJSON `json:"groups"`
}

type groupJSON struct {
	Kind   string `json:"kind"`
	Class  string `json:"class"`
	Jobs   int    `json:"jobs"`
	Oldest int64  `json:"oldest_ms"`
	Newest int64  `json:"newest_ms"`
}

// summarize counts all that the flags ask for.
func (c *listCommand) summarize(ctx context.Context, w *walk) error {
	groups, sum := map[group]*groupBooks{}, 0
	show := newProgress(c.app.err, -1)
	defer show.hide()
	for {
		ok, err := w.next(ctx)
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		for i := range w.page.Jobs {
			info := &w.page.Jobs[i]
			books := groups[group{kindOf(info), string(info.Class)}]
			if books == nil {
				books = &groupBooks{newer: -info.In}
				groups[group{kindOf(info), string(info.Class)}] = books
			}
			books.jobs++
			books.oldest, books.newer = max(books.oldest, -info.In), min(books.newer, -info.In)
		}
		sum += len(w.page.Jobs)
		show.update(int64(sum), "%d jobs", sum)
	}
	show.hide()
	if sum == 0 {
		if err := c.known(ctx); err != nil {
			return err
		}
	}
	return c.tellSummary(c.app.out, groups, sum)
}

func (c *listCommand) tellSummary(w io.Writer, groups map[group]*groupBooks, sum int) error {
	order := slices.SortedFunc(maps.Keys(groups), func(a, b group) int {
		return cmp.Or(cmp.Compare(groups[b].jobs, groups[a].jobs), cmp.Compare(a.kind, b.kind), cmp.Compare(a.class, b.class))
	})
	if c.json {
		out := summaryJSON{Queue: c.queue, Jobs: sum, Groups: []groupJSON{}}
		for _, g := range order {
			b := groups[g]
			out.Groups = append(out.Groups, groupJSON{g.kind, g.class, b.jobs, b.oldest.Milliseconds(), b.newer.Milliseconds()})
		}
		return writeJSONLine(w, out)
	}
	if sum == 0 {
		return c.tell(nil, "")
	}
	t := newTextTable("kind", "class", "jobs", "oldest", "newest")
	for _, g := range order {
		t.AppendRow(table.Row{g.kind, g.class, groups[g].jobs, ago(groups[g].oldest), ago(groups[g].newer)})
	}
	_, err := fmt.Fprintln(w, t.Render())
	return err
}
