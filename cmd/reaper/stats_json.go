package main

import (
	"encoding/json"
	"io"
	"time"

	"github.com/leaseq/leaseq/lease"
)

// queueStats is what is shown of one queue.
type queueStats struct {
	Queue      string
	Registered bool
	Policies   string // in what deployments differ that publish different policies; "" where none do
	lease.Stats
}

// The JSON of `reaper stats --json`. Fields are only ever added.
type (
	statsJSON struct {
		Redis  string           `json:"redis"`
		Prefix string           `json:"prefix"`
		Queues []queueStatsJSON `json:"queues"`
	}
	queueStatsJSON struct {
		Queue      string `json:"queue"`
		Registered bool   `json:"registered"`
		Due        int64  `json:"due"`
		Claimable  int64  `json:"claimable"`
		Processing int64  `json:"processing"`
		Expired    int64  `json:"expired"`
		Dead       int64  `json:"dead"`
		Done       int64  `json:"done"`
		Records    int64  `json:"records"`
		Sessions   int64  `json:"sessions"`

		OldestDue  *int64 `json:"oldest_due_ms"`  // null: nothing is due
		NextExpiry *int64 `json:"next_expiry_ms"` // null: nothing is in processing
		SinceSweep *int64 `json:"since_sweep_ms"` // null: never swept

		Paused    bool   `json:"paused"`
		PauseLeft *int64 `json:"pause_left_ms"` // null: it is not paused, or until it is resumed

		Counters map[string]int64 `json:"counters"`

		Policies string `json:"policies_differ"` // in what deployments differ that are live; empty where none do
	}
)

func writeJSON(w io.Writer, told, prefix string, queues []queueStats) error {
	out := statsJSON{Redis: told, Prefix: prefix, Queues: make([]queueStatsJSON, len(queues))}
	for i := range queues {
		out.Queues[i] = queues[i].json()
	}
	return json.NewEncoder(w).Encode(out)
}

// oldestDue is how long the oldest job has been due; negative where none is.
func (q *queueStats) oldestDue() time.Duration {
	if q.Claimable == 0 {
		return -1
	}
	return q.OldestDue
}

func (q *queueStats) json() queueStatsJSON {
	return queueStatsJSON{
		Queue: q.Queue, Registered: q.Registered,
		Due: q.Due, Claimable: q.Claimable, Processing: q.Processing, Expired: q.Expired, Dead: q.Dead, Done: q.Done,
		Records: q.Records, Sessions: q.Sessions,
		OldestDue: milliseconds(q.oldestDue()), NextExpiry: milliseconds(q.NextExpiry), SinceSweep: milliseconds(q.SinceSweep),
		Paused: q.Paused, PauseLeft: pauseLeft(&q.Stats), Counters: q.Counters, Policies: q.Policies,
	}
}

// milliseconds is nil for a negative duration, which says that there is none.
func milliseconds(d time.Duration) *int64 {
	if d < 0 {
		return nil
	}
	return new(d.Milliseconds())
}
