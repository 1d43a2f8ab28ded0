package chaos

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/leaseq/leaseq/chaos/record"
)

// A Report is what the checks found. It is made for JSON as it is; WriteText writes it for people.
type Report struct {
	Queue     string `json:"queue"`
	LeaseMS   int64  `json:"lease_ms"`
	Processes int    `json:"processes"`
	Events    int64  `json:"events"`
	Torn      int    `json:"torn"`     // files whose last line was cut
	Unclosed  int    `json:"unclosed"` // processes that did not end in order
	Totals    Totals `json:"totals"`

	// Cases counts what happened, as kills, expiries or refused settles. A run proves nothing about a case that is 0.
	Cases  map[string]int64 `json:"cases"`
	Checks []Result         `json:"checks"`

	recoveries []time.Duration
}

// Totals are counted job by job.
type Totals struct {
	Jobs         int64 `json:"jobs"`         // IDs in the history
	Attempts     int64 `json:"attempts"`     // enqueues sent
	Acknowledged int64 `json:"acknowledged"` // enqueues answered: created
	Maybe        int64 `json:"maybe"`        // enqueues of which nobody knows
	MaybeFound   int64 `json:"maybe_found"`  // jobs of such enqueues that came up all the same
	Acked        int64 `json:"acked"`        // jobs whose ack was answered
	Lost         int64 `json:"lost"`         // jobs that were enqueued, and are nowhere without a reason
	LostExcused  int64 `json:"lost_excused"` // those whose answers lay in a window in which Redis forgets
	Unexpected   int64 `json:"unexpected"`   // jobs that nobody enqueued
	Duplicated   int64 `json:"duplicated"`   // starts of jobs whose handler had been started before, by a lease that ran out
	Left         int64 `json:"left"`         // jobs in a place at the end
	LeftDead     int64 `json:"left_dead"`    // of them, dead
	Exposed      int64 `json:"exposed"`      // started leases that a fault, a standstill or a timeout may let run out: Duplicated is no more
	Redelivered  int64 `json:"redelivered"`  // jobs of which a lease ran out, and that were claimed again
}

// A Result is what one check found.
type Result struct {
	Name      string `json:"name"`
	Invariant int    `json:"invariant,omitempty"` // its number in docs/protocol.md
	What      string `json:"what"`

	Looked  int64 `json:"looked"`  // items it could judge: 0 proves nothing
	Untold  int64 `json:"untold"`  // items that the history does not tell enough of
	Excused int64 `json:"excused"` // items in a window of a fault that excuses them

	Violations int64       `json:"violations"`
	Examples   []Violation `json:"examples,omitempty"` // the first few
}

// A Violation is one item that a check found wrong.
type Violation struct {
	ID     string  `json:"id,omitempty"`
	Text   string  `json:"text"`
	Events []Shown `json:"events,omitempty"` // of the job, at most 40: the last ones
}

// A Shown is an event and who wrote it.
type Shown struct {
	Process string       `json:"process"`
	Event   record.Event `json:"event"`
	wall    int64
}

// OK reports whether nothing was lost, unexpected or violated.
func (r *Report) OK() bool {
	return r.Violations() == 0 && r.Totals.Lost == 0 && r.Totals.Unexpected == 0
}

// Violations is how many there are, of all checks together.
func (r *Report) Violations() int64 {
	var n int64
	for i := range r.Checks {
		n += r.Checks[i].Violations
	}
	return n
}

// Check is the result with that name, or nil.
func (r *Report) Check(name string) *Result {
	for i := range r.Checks {
		if r.Checks[i].Name == name {
			return &r.Checks[i]
		}
	}
	return nil
}

// WriteText writes the report for people.
func (r *Report) WriteText(out io.Writer) error {
	w := &strings.Builder{}
	fmt.Fprintf(w, "queue %s: %d events of %d processes (%d did not end in order, %d torn last lines), lease %d ms\n",
		r.Queue, r.Events, r.Processes, r.Unclosed, r.Torn, r.LeaseMS)
	t := &r.Totals
	fmt.Fprintf(w, "jobs %d: enqueues %d, answered %d, unknown %d (of which found %d), acked %d, left %d (dead %d)\n",
		t.Jobs, t.Attempts, t.Acknowledged, t.Maybe, t.MaybeFound, t.Acked, t.Left, t.LeftDead)
	fmt.Fprintf(w, "lost %d (and %d excused), unexpected %d, duplicated %d, redelivered %d\n\n",
		t.Lost, t.LostExcused, t.Unexpected, t.Duplicated, t.Redelivered)
	for i := range r.Checks {
		r.Checks[i].text(w)
	}
	fmt.Fprintln(w)
	for _, name := range slices.Sorted(maps.Keys(r.Cases)) {
		fmt.Fprintf(w, "%10d  %s\n", r.Cases[name], name)
	}
	_, err := io.WriteString(out, w.String())
	return err
}

func (c *Result) text(w io.Writer) {
	word := "ok"
	switch {
	case c.Violations > 0:
		word = fmt.Sprintf("%d VIOLATIONS", c.Violations)
	case c.Looked == 0:
		word = "looked at nothing"
	}
	number := "  "
	if c.Invariant > 0 {
		number = fmt.Sprintf("%2d", c.Invariant)
	}
	fmt.Fprintf(w, "%s %-12s %s: %d looked at", number, c.Name, word, c.Looked)
	if c.Untold > 0 {
		fmt.Fprintf(w, ", %d not told", c.Untold)
	}
	if c.Excused > 0 {
		fmt.Fprintf(w, ", %d excused", c.Excused)
	}
	fmt.Fprintf(w, " (%s)\n", c.What)
	for i := range c.Examples {
		v := &c.Examples[i]
		fmt.Fprintf(w, "     %q: %s\n", v.ID, v.Text)
		for _, s := range v.Events {
			fmt.Fprintf(w, "       %s\n", s.String())
		}
	}
}

// String is one line for people.
func (s *Shown) String() string {
	e := &s.Event
	text := fmt.Sprintf("%s +%.6fs %s", s.Process, float64(e.At)/1e6, e.Kind)
	for _, part := range []string{e.Op, e.Out, e.Place} {
		if part != "" {
			text += " " + part
		}
	}
	if e.Fence != 0 {
		text += fmt.Sprintf(" fence %d", e.Fence)
	}
	if e.Attempt != 0 {
		text += fmt.Sprintf(" attempt %d (%d failures, %d expiries, %d redrives) due %d", e.Attempt, e.Failures, e.Expiries, e.Redrives, e.Due)
	}
	if e.Delay != 0 {
		text += fmt.Sprintf(" delay %dµs", e.Delay)
	}
	return text
}
