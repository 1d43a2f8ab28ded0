package demo

import (
	"strconv"
	"strings"
	"time"
)

// A summary is the ledger as --json prints it. Names stay; new ones may come.
type summary struct {
	Jobs        int     `json:"jobs"`
	Acked       int     `json:"acked"`
	Dead        int     `json:"dead"`
	Lost        int     `json:"lost"`       // enqueued, and neither acked nor in a place
	Deliveries  int     `json:"deliveries"` // starts of handlers
	Kills       int     `json:"kills"`
	Expired     int     `json:"expired"`         // leases that ran out
	Refused     int     `json:"stale_refused"`   // late settles that Redis refused
	RecoveryP50 float64 `json:"recovery_ms_p50"` // from a stored expiry to the next claim of the job
	RecoveryMax float64 `json:"recovery_ms_max"`

	Froze   bool           `json:"froze"`         // false where the system has no SIGSTOP
	Effects map[string]int `json:"effects"`       // how many jobs had their side effect 0, 1, 2 … times
	Twice   []string       `json:"effects_twice"` // the jobs that had it more than once
	Letters []letterJSON   `json:"dead_letters"`

	Server   string   `json:"server"` // redis-server, miniredis, or the URL given, without its password
	Version  string   `json:"server_version,omitempty"`
	Took     int64    `json:"took_ms"`
	Problems []string `json:"problems"` // why the ledger does not balance; empty if it does
}

type letterJSON struct {
	ID       string `json:"id"`
	Attempts int    `json:"attempts"`
	Reason   string `json:"reason"`
}

func (b *ledger) summary() *summary {
	s := &summary{
		Jobs: b.Jobs, Acked: b.Acked, Dead: b.Dead, Lost: len(b.Lost), Deliveries: b.Deliveries, Kills: b.Kills,
		Expired: b.Expired, Refused: b.Refused, RecoveryP50: milliseconds(b.P50), RecoveryMax: milliseconds(b.Max),
		Froze: b.Frozen, Effects: map[string]int{}, Twice: []string{}, Letters: []letterJSON{},
		Server: b.Server, Version: strings.TrimSpace(b.Version), Took: b.Took.Milliseconds(), Problems: []string{},
	}
	for times, jobs := range b.Effects {
		s.Effects[strconv.Itoa(times)] = jobs
	}
	for _, d := range b.Twice {
		s.Twice = append(s.Twice, d.ID)
	}
	for _, l := range b.Letters {
		s.Letters = append(s.Letters, letterJSON{ID: l.ID, Attempts: l.Attempts, Reason: l.Reason})
	}
	s.Problems = append(s.Problems, b.Problems...)
	return s
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
