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

	Froze bool `json:"froze"` // false where the system has no SIGSTOP

	Effects int            `json:"effects"`          // jobs whose side effect happened
	Double  int            `json:"double_effects"`   // effects beyond the first of a job that no in-doubt answer explains
	InDoubt int            `json:"in_doubt"`         // in-doubt answers of the guard
	Spared  int            `json:"effects_spared"`   // deliveries that found the effect done, and did not repeat it
	Times   map[string]int `json:"effects_per_job"`  // how many jobs had their side effect 0, 1, 2 … times
	Twice   []string       `json:"effects_twice"`    // the jobs that had it more than once
	Doubts  []doubtJSON    `json:"effects_in_doubt"` // one for each in-doubt answer
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

type doubtJSON struct {
	ID     string `json:"id"`
	Effect string `json:"effect"`
	Worker string `json:"worker"` // that was told
	Left   string `json:"left_by"`
}

func (b *ledger) summary() *summary {
	s := &summary{
		Jobs: b.Jobs, Acked: b.Acked, Dead: b.Dead, Lost: len(b.Lost), Deliveries: b.Deliveries, Kills: b.Kills,
		Expired: b.Expired, Refused: b.Refused, RecoveryP50: milliseconds(b.P50), RecoveryMax: milliseconds(b.Max),
		Froze: b.Frozen, Effects: b.Effects.Happened, Double: b.Effects.Double, InDoubt: len(b.Effects.Doubts), Spared: b.Effects.Spared,
		Times: map[string]int{}, Twice: []string{}, Doubts: []doubtJSON{}, Letters: []letterJSON{},
		Server: b.Server, Version: strings.TrimSpace(b.Version), Took: b.Took.Milliseconds(), Problems: []string{},
	}
	for times, jobs := range b.Effects.Times {
		s.Times[strconv.Itoa(times)] = jobs
	}
	for _, d := range b.Effects.Twice {
		s.Twice = append(s.Twice, d.ID)
	}
	for _, d := range b.Effects.Doubts {
		s.Doubts = append(s.Doubts, doubtJSON{ID: d.ID, Effect: d.Effect, Worker: d.Worker, Left: d.Left})
	}
	for _, l := range b.Letters {
		s.Letters = append(s.Letters, letterJSON{ID: l.ID, Attempts: l.Attempts, Reason: l.Reason})
	}
	s.Problems = append(s.Problems, b.Problems...)
	return s
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
