package main

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

// The JSON of `reaper policy --json`. Fields are only ever added.
type (
	policyJSON struct {
		Queue       string           `json:"queue"`
		Published   bool             `json:"published"` // something was published or pinned
		Limits      []limitJSON      `json:"limits"`
		Deployments []deploymentJSON `json:"deployments"` // newest first
		Differ      string           `json:"differ"`      // in what live deployments differ
	}
	limitJSON struct {
		Name     string `json:"name"`
		Value    string `json:"value"`
		From     string `json:"from"`
		Deployed string `json:"deployed,omitempty"` // of a pinned one: what would hold without the pin
	}
	deploymentJSON struct {
		Holder string            `json:"holder"`
		At     time.Time         `json:"at"`
		Limits map[string]string `json:"limits"`
	}
)

func policyJSONOf(queue string, state *reliable.PolicyState) policyJSON {
	out := policyJSON{
		Queue: queue, Published: state.Published, Limits: make([]limitJSON, len(state.Limits)),
		Deployments: make([]deploymentJSON, len(state.Deployments)), Differ: state.Mismatch(),
	}
	for i := range state.Limits {
		l := &state.Limits[i]
		out.Limits[i] = limitJSON{Name: l.Name, Value: l.Value, From: limitFrom(l), Deployed: l.Deployed}
	}
	for i, d := range state.Deployments {
		out.Deployments[i] = deploymentJSON{Holder: d.Holder, At: d.At.UTC(), Limits: d.Limits}
	}
	return out
}

// limitFrom says where a limit comes from.
func limitFrom(l *lease.LimitState) string {
	switch {
	case l.Pinned:
		return "pinned"
	case l.Builtin:
		return "built-in"
	}
	return "deployment"
}

func writePolicy(w io.Writer, queue string, state *reliable.PolicyState) error {
	t := newTable("limit", "value", "from", "without the pin")
	t.SetColumnConfigs([]table.ColumnConfig{{Number: 2, Align: text.AlignRight, AlignHeader: text.AlignRight}})
	for i := range state.Limits {
		l := &state.Limits[i]
		t.AppendRow(table.Row{l.Name, l.Value, limitFrom(l), l.Deployed})
	}
	out := t.Render() + "\n"
	if !state.Published {
		out += fmt.Sprintf("Nobody works on queue %s yet: nothing is published, and all is as it is built in.\n", plain(queue))
	}
	for _, d := range state.Live() {
		out += fmt.Sprintf("Published by %s, heard of at %s\n", cmp.Or(plain(d.Holder), "-"), d.At.UTC().Format(time.RFC3339))
	}
	if differ := state.Mismatch(); differ != "" {
		out += "Live deployments publish different limits, and the newest that started holds: " + plain(differ) + "\n"
	}
	_, err := io.WriteString(w, out)
	return err
}
