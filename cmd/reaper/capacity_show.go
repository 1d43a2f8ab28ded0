package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/leaseq/leaseq/cmd/reaper/internal/capacity"
)

// The JSON of `reaper capacity --json`. Fields are only ever added.
type (
	capacityJSON struct {
		Plan        capacityPlanJSON  `json:"plan"`
		Costs       capacityCostsJSON `json:"costs"`
		Assumptions []string          `json:"assumptions"`
		Answer      *capacity.Answer  `json:"answer"`
	}
	capacityPlanJSON struct {
		Rate         float64 `json:"rate_per_s"`
		Payload      int     `json:"payload_bytes"`
		ID           int     `json:"id_bytes"`
		Delay        int64   `json:"delay_ms"`
		Waiting      int64   `json:"waiting"` // 0: rate × delay
		Concurrency  int     `json:"concurrency"`
		Work         float64 `json:"work_ms"`
		Lease        int64   `json:"lease_ms"`
		RoundTrip    float64 `json:"round_trip_ms"`
		EnqueueBatch int     `json:"enqueue_batch"`
		Headroom     float64 `json:"headroom"`
		NodeMemory   int     `json:"node_memory_gib"`
		Partition    int     `json:"partition_jobs"`
	}
	capacityCostsJSON struct {
		Command string `json:"command"`
		Machine string `json:"machine"`
	}
)

func newCapacityJSON(c *capacity.Costs, p *capacity.Plan, a *capacity.Answer) capacityJSON {
	return capacityJSON{
		Plan: capacityPlanJSON{
			Rate: p.Rate, Payload: p.Payload, ID: p.ID, Delay: p.Delay.Milliseconds(), Waiting: p.Waiting, Concurrency: p.Concurrency,
			Work: p.Work.Seconds() * 1e3, Lease: p.Lease.Milliseconds(), RoundTrip: p.RoundTrip.Seconds() * 1e3,
			EnqueueBatch: p.EnqueueBatch, Headroom: p.Headroom, NodeMemory: p.NodeMemory, Partition: p.Partition,
		},
		Costs:       capacityCostsJSON{c.Command, c.Machine},
		Assumptions: c.Assumptions(), Answer: a,
	}
}

// writeCapacity prints an answer for people.
func writeCapacity(w io.Writer, c *capacity.Costs, p *capacity.Plan, a *capacity.Answer) error {
	var out strings.Builder
	fmt.Fprintf(&out, "%s jobs/s of %s bytes, due after %s; handlers take %s, %d at a time in each consumer; headroom × %v.\n\n",
		count(p.Rate), count(float64(p.Payload)), length(p.Delay), p.Work, p.Concurrency, p.Headroom)
	t := newTable("", "", "others")
	t.SetColumnConfigs([]table.ColumnConfig{{Number: 1, Align: text.AlignLeft}, {Number: 2, Align: text.AlignRight}, {Number: 3, Align: text.AlignLeft}})
	t.ResetHeaders()
	add := func(name, value, how string, args ...any) {
		t.AppendRow(table.Row{name, value, fmt.Sprintf(how, args...)})
	}
	add("jobs that wait", count(a.Waiting), "%.0f bytes each in Redis", a.BytesPerJob)
	add("jobs in processing", count(a.Processing), "rate × work")
	add("one Redis core carries", count(a.CoreRate)+"/s", "with headroom; %.1f µs a job: enqueue %.1f, claim and settle %.1f, heartbeats %.2f", a.ServerUS, a.EnqueueUS, a.WorkUS, a.ExtendUS)
	add("Redis cores", cores(a.CoresNeeded*p.Headroom), "%s are used", cores(a.CoresNeeded))
	add("Redis memory", size(a.Memory), "%s are used", size(a.MemoryNeeded))
	add("Redis nodes", count(float64(a.Nodes)), "%s for CPU, %s for memory of %d GiB each; without replicas", count(float64(a.NodesForCPU)), count(float64(a.NodesForMemory)), p.NodeMemory)
	add("partitions", count(float64(a.Partitions)), "at most %s jobs that wait in each; at least one on each node", count(float64(p.Partition)))
	add("network to Redis", size(a.In)+"/s", "%.0f bytes a job", a.InPerJob)
	add("network from Redis", size(a.Out)+"/s", "%.0f bytes a job", a.OutPerJob)
	add("client cores", count(float64(a.ClientCores)), "%s are used by the library, %.1f µs a job", cores(a.ClientCoresNeeded), a.ClientUS)
	add("consumers", count(float64(a.Consumers)), "%s handlers; %.1f jobs in a round trip", count(float64(a.Handlers)), a.JobsPerTrip)
	for line := range strings.Lines(t.Render()) {
		out.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	out.WriteString("\nIt is assumed:\n")
	for _, line := range c.Assumptions() {
		fmt.Fprintf(&out, "- %s\n", line)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// writeCapacityTable prints the table of docs/capacity.md.
func writeCapacityTable(w io.Writer, c *capacity.Costs) error {
	t := table.NewWriter()
	t.AppendHeader(table.Row{"load", "jobs that wait", "Redis memory", "µs a job", "Redis cores", "nodes: CPU", "nodes: memory", "partitions", "to Redis", "from Redis", "client cores", "consumers"})
	var configs []table.ColumnConfig
	for i := 2; i <= 12; i++ {
		configs = append(configs, table.ColumnConfig{Number: i, Align: text.AlignRight})
	}
	t.SetColumnConfigs(configs)
	for _, s := range capacity.Scenarios() {
		a, err := c.Compute(&s.Plan)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		t.AppendRow(table.Row{
			s.Name, count(a.Waiting), size(a.Memory), fmt.Sprintf("%.1f", a.ServerUS), cores(a.CoresNeeded * s.Plan.Headroom),
			count(float64(a.NodesForCPU)), count(float64(a.NodesForMemory)), count(float64(a.Partitions)),
			size(a.In) + "/s", size(a.Out) + "/s", count(float64(a.ClientCores)), count(float64(a.Consumers)),
		})
	}
	_, err := fmt.Fprintln(w, t.RenderMarkdown())
	return err
}

// count writes a whole number with commas between thousands.
func count(v float64) string {
	digits := strconv.FormatFloat(math.Round(v), 'f', 0, 64)
	if v > 0 && v < 1 {
		digits = strconv.FormatFloat(v, 'g', 2, 64)
		return digits
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// cores has more digits the fewer there are.
func cores(v float64) string {
	switch {
	case v < 0.01:
		return "below 0.01"
	case v < 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return count(v)
}

var sizeUnits = []string{"B", "kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"}

// size writes bytes with a unit of a thousand.
func size(v float64) string {
	unit := 0
	for v >= 999.5 && unit < len(sizeUnits)-1 {
		v, unit = v/1000, unit+1
	}
	if v < 9.95 && unit > 0 {
		return strconv.FormatFloat(v, 'f', 1, 64) + " " + sizeUnits[unit]
	}
	return strconv.FormatFloat(v, 'f', 0, 64) + " " + sizeUnits[unit]
}
