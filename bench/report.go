package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// writeReport writes the table of figures, the table of settings, and the JSON, as Markdown.
func writeReport(w io.Writer, d *document, json []byte) error {
	_, err := fmt.Fprintf(w, "%s\n\n%s\n\nSettings. What is no default of the system has a reason:\n\n%s\n\n```json\n%s\n```\n",
		d.heading(), d.table(), d.settingsTable(), json)
	return err
}

// heading says what was measured, on what.
func (d *document) heading() string {
	what := "medians of " + strconv.Itoa(d.Rounds) + " rounds (of jobs/s and costs a job; everything else was measured once)"
	persistence := "without persistence"
	if d.AOF {
		persistence = "appendonly, appendfsync everysec"
	}
	return fmt.Sprintf("%s, %d CPUs, %s; redis-server %s on loopback, %s; payloads of %d bytes; %s. "+
		"A ratio above 1 is good for %s where the unit is jobs/s, and bad elsewhere.",
		d.Platform, d.CPUs, d.Go, d.Redis, persistence, payloadSize, what, d.Systems[0])
}

// table is the Markdown table of the figures.
func (d *document) table() string {
	t := table.NewWriter()
	head := table.Row{"figure", "unit"}
	configs := []table.ColumnConfig{}
	for _, name := range d.Systems {
		head = append(head, name)
	}
	for _, name := range d.others() {
		head = append(head, d.Systems[0]+" ÷ "+name)
	}
	for i := 2; i < len(head); i++ {
		configs = append(configs, table.ColumnConfig{Number: i + 1, Align: text.AlignRight})
	}
	t.SetColumnConfigs(configs)
	t.AppendHeader(head)
	for _, f := range d.Figures {
		if f.hide {
			continue
		}
		row := table.Row{f.Title, f.Unit}
		for _, name := range d.Systems {
			row = append(row, cell(f.Systems[name], f.place))
		}
		for _, name := range d.others() {
			row = append(row, ratioCell(f.Ratios, name))
		}
		t.AppendRow(row)
	}
	return t.RenderMarkdown()
}

func (d *document) others() []string {
	if len(d.Systems) == 0 {
		return nil
	}
	return d.Systems[1:]
}

func cell(m *measured, place int) string {
	if m == nil {
		return "–"
	}
	return number(m.Median, place)
}

func ratioCell(ratios map[string]float64, name string) string {
	value, ok := ratios[name]
	if !ok {
		return "–"
	}
	if value < 0.1 {
		return strconv.FormatFloat(value, 'g', 2, 64)
	}
	return strconv.FormatFloat(value, 'f', 2, 64)
}

// number writes a number with so many digits after the point, and commas between thousands.
func number(value float64, place int) string {
	digits := strconv.FormatFloat(value, 'f', place, 64)
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	whole, rest, found := strings.Cut(digits, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if found {
		whole += "." + rest
	}
	return sign + whole
}

// settingsTable is the Markdown table of the settings.
func (d *document) settingsTable() string {
	t := table.NewWriter()
	t.AppendHeader(table.Row{"system", "setting", "value", "fast settings", "why it is set"})
	t.AppendRow(table.Row{"all", "redis.Options.PoolSize", poolSize, "", "more than there are callers; else go-redis' defaults"})
	for _, name := range d.Systems {
		for _, s := range d.Settings[name] {
			t.AppendRow(table.Row{name, s.Name, s.Default, s.Fast, s.Why})
		}
	}
	return t.RenderMarkdown()
}
