package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
)

// The JSON of `reaper queues --json`. Fields are only ever added.
type (
	queuesJSON struct {
		Redis  string         `json:"redis"`
		Prefix string         `json:"prefix"`
		Queues []overviewJSON `json:"queues"`
	}
	overviewJSON struct {
		queueStatsJSON
		Lease     int64 `json:"lease_ms"`
		Published bool  `json:"lease_published"`
	}
)

func writeQueuesJSON(w io.Writer, told, prefix string, queues []overview) error {
	out := queuesJSON{Redis: told, Prefix: prefix, Queues: make([]overviewJSON, len(queues))}
	for i := range queues {
		q := &queues[i]
		out.Queues[i] = overviewJSON{queueStatsJSON: q.json(), Lease: q.Lease.Milliseconds(), Published: q.Published}
	}
	return json.NewEncoder(w).Encode(out)
}

func writeQueuesTable(w io.Writer, told, prefix string, queues []overview, complete bool) error {
	if len(queues) == 0 {
		if !complete {
			return nil // the errors say it all
		}
		return writeNone(w, told, prefix)
	}
	t := newTable("queue", "due", "due now", "oldest", "processing", "expired", "dead", "lease", "enqueued", "acked", "died")
	var sum overview
	sum.OldestDue = -1
	enqueued, acked, died := int64(0), int64(0), int64(0)
	for i := range queues {
		q := &queues[i]
		name := q.Queue
		if q.Paused {
			name += " (" + paused(&q.Stats) + ")"
		}
		t.AppendRow(table.Row{
			name, q.Due, q.Claimable, sinceDue(q), q.Processing, q.Expired, q.Dead, length(q.Lease),
			q.Counters["enqueued"], q.Counters["acked"], q.Counters["died"],
		})
		sum.Due, sum.Claimable, sum.Processing = sum.Due+q.Due, sum.Claimable+q.Claimable, sum.Processing+q.Processing
		sum.Expired, sum.Dead = sum.Expired+q.Expired, sum.Dead+q.Dead
		sum.OldestDue = max(sum.OldestDue, q.OldestDue)
		enqueued, acked, died = enqueued+q.Counters["enqueued"], acked+q.Counters["acked"], died+q.Counters["died"]
	}
	if len(queues) > 1 {
		t.AppendSeparator()
		t.AppendRow(table.Row{
			fmt.Sprintf("%d queues", len(queues)), sum.Due, sum.Claimable, sinceDue(&sum), sum.Processing, sum.Expired, sum.Dead, "",
			enqueued, acked, died,
		})
	}
	_, err := fmt.Fprintln(w, t.Render())
	return err
}

// sinceDue is how long the oldest due job has been due, - where none is due now.
func sinceDue(q *overview) string {
	if q.Claimable == 0 {
		return "-"
	}
	return age(q.OldestDue)
}

// length is a duration without the units that are zero: 15s, 1m, 2h30m.
func length(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if n := len(text) - len(zero); n > 0 && text[n:] == zero {
			text = text[:n+1]
		}
	}
	return text
}
