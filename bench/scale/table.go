package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// markdown is all tables, with a line before each that says what it is.
func (d *document) markdown() string {
	var out strings.Builder
	add := func(words, rows string) { fmt.Fprintf(&out, "%s\n\n%s\n\n", words, rows) }
	fmt.Fprintf(&out, "`%s`, %s.\n\n", d.Command, d.machine())
	add("µs of the server for a call, medians, by the number of jobs in due.", d.pace().table(d.Due))
	add("The same by the number of jobs in processing.", d.pace().table(d.Processing))
	add("How due was filled, in calls of 1,000 jobs.", d.loadTable())
	add("Jobs of several sizes: bytes in Redis beside the payload, and µs of the server for a job, in calls of 50.", d.jobTable())
	add("From end to end, for a job: `EnqueueMany` from one goroutine, and a `Consumer` whose handlers do nothing. The cheapest of several tries.", d.wholeTable())
	fmt.Fprintf(&out, "A script that only counts took %s. What is not as it has to be:", d.noise())
	if err := d.judge(); err != nil {
		fmt.Fprintf(&out, "\n\n- %s\n", strings.ReplaceAll(err.Error(), "\n", "\n- "))
	} else {
		out.WriteString(" nothing.")
	}
	return strings.TrimSpace(out.String()) + "\n"
}

// newTable makes a table whose columns from the given one on are numbers.
func newTable(numbers int, head ...any) table.Writer {
	t := table.NewWriter()
	var configs []table.ColumnConfig
	for i := numbers; i < len(head); i++ {
		configs = append(configs, table.ColumnConfig{Number: i + 1, Align: text.AlignRight})
	}
	t.SetColumnConfigs(configs)
	t.AppendHeader(head)
	return t
}

// table has a row for each kind of call, and a column for each number of jobs.
func (p pace) table(costs []cost) string {
	sizes := sizesOf(costs)
	head := []any{"call"}
	for _, size := range sizes {
		head = append(head, commas(float64(size), 0))
	}
	head = append(head, "a job", "CPU a job", "longest, ms", "client", "times log n")
	t := newTable(1, head...)
	for _, g := range p.growths(costs) {
		if g.Op == opCount {
			continue
		}
		row := table.Row{fmt.Sprintf("%s %d", g.Op, g.Batch)}
		var last cost
		longest := 0.0
		for _, size := range sizes {
			i := slices.IndexFunc(costs, func(c cost) bool { return c.Op == g.Op && c.Batch == g.Batch && c.Size == size })
			if i < 0 {
				row = append(row, "–")
				continue
			}
			last = costs[i]
			longest = max(longest, last.Longest)
			row = append(row, commas(last.Server, 0))
		}
		cpu := "–"
		if last.CPU > 0 {
			cpu = commas(last.CPUPerJob, 1)
		}
		t.AppendRow(append(row, commas(last.PerJob, 1), cpu, commas(longest/1e3, 2), commas(last.Client, 0), commas(g.Excess, 2)))
	}
	return t.RenderMarkdown()
}

// noise tells what the machine did to a script that only counts.
func (d *document) noise() string {
	p, most := d.pace(), 1.0
	if p.best == 0 {
		return "an unknown time"
	}
	for _, costs := range [][]cost{d.Due, d.Processing} {
		for _, slow := range p.slow(costs) {
			most = max(most, slow)
		}
	}
	return fmt.Sprintf("%s ms as a median at its best, %s times as long at the worst of the sizes, and once %s ms longer", commas(p.best/1e3, 1), commas(most, 1), commas(p.hiccup/1e3, 1))
}

func sizesOf(costs []cost) (sizes []int) {
	for _, c := range costs {
		if !slices.Contains(sizes, c.Size) {
			sizes = append(sizes, c.Size)
		}
	}
	slices.Sort(sizes)
	return sizes
}

func (d *document) loadTable() string {
	t := newTable(0, "jobs in due", "loaded, jobs/s", "bytes beside the payload", "calls", "a call, ms", "over 10 ms", "longest, ms")
	for _, l := range d.Loads {
		t.AppendRow(table.Row{commas(float64(l.Size), 0), commas(l.Rate, 0), commas(l.Bytes, 0), l.Calls, commas(l.Median, 1), l.Slow, commas(l.Worst, 1)})
	}
	return t.RenderMarkdown()
}

func (d *document) jobTable() string {
	head := []any{"payload", "ID", "bytes beside the payload"}
	for _, op := range ops {
		head = append(head, op)
	}
	t := newTable(0, head...)
	for _, j := range d.Jobs {
		row := table.Row{commas(float64(j.Payload), 0), j.ID, commas(j.Beside, 0)}
		for _, c := range j.Calls {
			row = append(row, commas(c.PerJob, 1))
		}
		t.AppendRow(row)
	}
	return t.RenderMarkdown()
}

func (d *document) wholeTable() string {
	t := newTable(1, "", "server CPU, µs", "client CPU, µs", "round trips", "bytes to the server", "bytes from the server")
	for _, s := range d.Producers {
		t.AppendRow(s.row(fmt.Sprintf("enqueue, %d a call", s.Batch)))
	}
	for _, s := range d.Consumers {
		t.AppendRow(s.row(fmt.Sprintf("work off, concurrency %d", s.Handlers)))
	}
	return t.RenderMarkdown()
}

func (s *spending) row(name string) table.Row {
	return table.Row{name, commas(s.Server, 1), commas(s.Client, 1), commas(s.Requests, 3), commas(s.In, 0), commas(s.Out, 0)}
}

// commas writes a number with so many digits after the point, and commas between thousands.
func commas(value float64, place int) string {
	whole, rest, found := strings.Cut(strconv.FormatFloat(value, 'f', place, 64), ".")
	sign := ""
	if strings.HasPrefix(whole, "-") {
		sign, whole = "-", whole[1:]
	}
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if found {
		whole += "." + rest
	}
	return sign + whole
}
