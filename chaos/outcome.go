package chaos

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// An Outcome is what a run has shown. It is made for JSON as it is; WriteText writes it for people.
type Outcome struct {
	Seed       uint64 `json:"seed"`
	Queue      string `json:"queue"`
	Jobs       int64  `json:"jobs"`
	Acked      int64  `json:"acked"`
	Dead       int64  `json:"dead"`  // in dead at the end
	Kills      int64  `json:"kills"` // SIGKILLs of workers
	Stops      int64  `json:"stops"` // SIGSTOPs of workers
	Lost       int64  `json:"lost"`
	Unexpected int64  `json:"unexpected"`
	Duplicated int64  `json:"duplicated"`
	// DuplicatesAllowed is the most that Duplicated may be: starts whose lease ran out, each of which a fault, a standstill or
	// a timeout explains.
	DuplicatesAllowed int64 `json:"duplicates_allowed"`
	Recovered         int64 `json:"recovered"` // jobs of which a lease ran out, and that were claimed again
	Violations        int64 `json:"violations"`

	// Recovery is from the death of a worker until a job that it held was claimable again, where no outage lay in between.
	RecoveryP50 float64 `json:"recovery_ms_p50"`
	RecoveryP99 float64 `json:"recovery_ms_p99"`
	RecoveryMax float64 `json:"recovery_ms_max"`
	SlackMS     int64   `json:"slack_ms"` // Options.Slack, and what LEASEQ_CHAOS_SLACK added
	QuietMS     int64   `json:"quiet_ms"` // from the calm's begin until nothing was overdue; 0: not while jobs came

	Faults    []FaultCount     `json:"faults"`
	Sometimes map[string]int64 `json:"sometimes"` // interesting cases: how often each happened
	Problems  []string         `json:"problems"`  // of the run itself, as a worker that ended by itself

	DurationMS int64     `json:"duration_ms"`
	Dir        string    `json:"dir,omitempty"` // where the histories are, if they were kept
	Schedule   *Schedule `json:"schedule"`
	Windows    []Window  `json:"windows"` // of faults that bit, since the begin of the run
	Seconds    []Second  `json:"seconds"`
	Report     *Report   `json:"report"`
}

// A FaultCount says how often a fault was made.
type FaultCount struct {
	Name        string `json:"name"`
	What        string `json:"what"`
	Row         int    `json:"row,omitempty"` // in the fault table of docs/reliability.md
	Times       int64  `json:"times"`
	Bit         int64  `json:"bit"` // of them, with effect
	Unavailable string `json:"unavailable,omitempty"`
}

// A Window is when a fault lasted.
type Window struct {
	Name   string `json:"name"`
	FromMS int64  `json:"from_ms"`
	ToMS   int64  `json:"to_ms"`
}

// OK reports whether nothing was lost, unexpected or violated, there are no more duplicates than faults explain, and the
// run had no problems of its own.
func (r *Outcome) OK() bool {
	return r.Report != nil && r.Report.OK() && r.Duplicated <= r.DuplicatesAllowed && len(r.Problems) == 0
}

func (r *Outcome) fault(name string) *FaultCount {
	for i := range r.Faults {
		if r.Faults[i].Name == name {
			return &r.Faults[i]
		}
	}
	return &FaultCount{} // of a schedule only
}

// Bit is how often a fault had its effect.
func (r *Outcome) Bit(name string) int64 { return r.fault(name).Bit }

// Silent are the faults that were made and never had an effect, or were available and never came: a run that needs them
// is void.
func (r *Outcome) Silent() []string {
	var out []string
	for _, f := range r.Faults {
		if f.Unavailable == "" && f.Bit == 0 {
			out = append(out, f.Name)
		}
	}
	return out
}

// Missing are the interesting cases that did not happen.
func (r *Outcome) Missing() []string {
	var out []string
	for _, name := range Sometimes() {
		if r.Sometimes[name] == 0 {
			out = append(out, name)
		}
	}
	return out
}

// WriteText writes the result for people.
func (r *Outcome) WriteText(out io.Writer) error {
	w := &strings.Builder{}
	fmt.Fprintf(w, "seed %d, %v, %d jobs, %d SIGKILLs, %d SIGSTOPs\n\n", r.Seed, time.Duration(r.DurationMS)*time.Millisecond, r.Jobs, r.Kills, r.Stops)
	for _, f := range r.Faults {
		switch {
		case f.Unavailable != "":
			fmt.Fprintf(w, "  %-18s not here: %s\n", f.Name, f.Unavailable)
		default:
			fmt.Fprintf(w, "  %-18s %4d times, %4d with effect\n", f.Name, f.Times, f.Bit)
		}
	}
	fmt.Fprintln(w)
	if r.Report != nil {
		if err := r.Report.WriteText(w); err != nil {
			return err
		}
	}
	if missing := r.Missing(); len(missing) > 0 {
		fmt.Fprintf(w, "\ndid not happen: %s\n", strings.Join(missing, ", "))
	}
	for _, p := range r.Problems {
		fmt.Fprintf(w, "problem: %s\n", p)
	}
	verdict := "NOT RIGHT"
	if r.OK() {
		verdict = "right"
	}
	if r.SlackMS > 0 {
		fmt.Fprintf(w, "\nslack: %v more than the bounds of time were allowed\n", time.Duration(r.SlackMS)*time.Millisecond)
	}
	fmt.Fprintf(w, "\n%s: lost %d, unexpected %d, violations %d, duplicated %d (at most %d), recovery p50 %.0f ms, p99 %.0f ms\n",
		verdict, r.Lost, r.Unexpected, r.Violations, r.Duplicated, r.DuplicatesAllowed, r.RecoveryP50, r.RecoveryP99)
	_, err := io.WriteString(out, w.String())
	return err
}
