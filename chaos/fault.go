package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/leaseq/leaseq/chaos/record"
)

// A Lane is what a fault is done to. Faults of one lane follow one another, those of different lanes overlap.
type Lane string

// The lanes.
const (
	Kills   Lane = "kills"   // worker processes that end
	Freezes Lane = "freezes" // worker processes that stand still
	Crew    Lane = "crew"    // who works: other versions, other clocks, more sweepers
	Links   Lane = "links"   // the ways between workers and Redis
	Server  Lane = "server"  // Redis itself, and what all share
)

var lanes = []Lane{Kills, Freezes, Crew, Links, Server}

// A Fault is something that goes wrong, as a value: choose some, or write one of your own.
type Fault struct {
	Name string
	What string // one line for people
	Row  int    // in the fault table of docs/reliability.md; 0: none
	Lane Lane
	// For is how long one lasts at least and at most; a schedule takes a time in between. In leases where Leases is true.
	For    [2]time.Duration
	Leases [2]float64 // of the lease, added to For
	// Weight is how often it comes beside the others of its lane. Default 1.
	Weight int
	// Early asks for a place in the first third of the run, as what makes later times hard to compare.
	Early bool
	// Available says why the fault cannot be made here, or nil. nil: it always can.
	Available func(s *Site) error
	// Inject makes the fault, for in.For, and heals it; where ctx ends before, it heals it at once. It tells when, by Begin,
	// Bites and End of in. An error means that the run is void: the fault could not be made or healed.
	Inject func(ctx context.Context, in *Injection) error
}

// An Injection is one time that a fault is made.
type Injection struct {
	*Site
	Fault *Fault
	For   time.Duration
	Rand  *rand.Rand // decides what the schedule does not, from its seed

	planned Planned
	began   []int64 // numbers of fault lines
	ended   bool
	bit     atomic.Bool
}

// Begin writes to the history that a fault begins, before it can have any effect. target is the name of a process of
// the history, or "" for all. effects are those of package record. delay is that of a step of the server's clock.
func (in *Injection) Begin(target string, delay time.Duration, effects ...string) {
	n := in.storm.faultNumber.Add(1)
	in.began = append(in.began, n)
	in.storm.rec.Write(&record.Event{
		Kind: record.Faulted, Call: n, Out: record.FaultBegin, Name: in.Fault.Name, Target: target, Effects: effects, Delay: delay.Microseconds(),
	})
}

// Bites writes that the fault has its effect. A run in which a fault never bites has shown nothing of it.
func (in *Injection) Bites() {
	if in.bit.Swap(true) {
		return
	}
	for _, n := range in.began {
		in.storm.rec.Write(&record.Event{Kind: record.Faulted, Call: n, Out: record.FaultBites})
	}
}

// End writes that the fault has no effect any more. Run does it where Inject has not.
func (in *Injection) End() {
	if in.ended {
		return
	}
	in.ended = true
	for _, n := range in.began {
		in.storm.rec.Write(&record.Event{Kind: record.Faulted, Call: n, Out: record.FaultEnd})
	}
}

// Wait waits for d, or until ctx ends.
func (in *Injection) Wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// Until waits until a condition holds, asked every 5 ms, for at most d. It reports whether it came to hold.
func (in *Injection) Until(ctx context.Context, d time.Duration, holds func() bool) bool {
	over := time.NewTimer(d)
	defer over.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			return false
		case <-over.C:
			return false
		case <-tick.C:
		}
	}
	return true
}

// length is a time between the fault's least and most, by a number of a seed.
func (f *Fault) length(lease time.Duration, at float64) time.Duration {
	least := f.For[0] + time.Duration(f.Leases[0]*float64(lease))
	most := f.For[1] + time.Duration(f.Leases[1]*float64(lease))
	return least + time.Duration(at*float64(max(most-least, 0)))
}

func checkFaults(faults []Fault) error {
	var errs []error
	names := map[string]bool{}
	for i := range faults {
		f := &faults[i]
		switch {
		case f.Name == "" || f.Inject == nil:
			errs = append(errs, fmt.Errorf("Faults[%d] (%q) has no Name or no Inject", i, f.Name))
		case names[f.Name]:
			errs = append(errs, fmt.Errorf("Faults has %q twice", f.Name))
		case f.lane() == "":
			errs = append(errs, fmt.Errorf("Faults[%d] (%q) has the Lane %q: want one of %v", i, f.Name, f.Lane, lanes))
		case f.For[0] > f.For[1] || f.For[0] < 0 || f.Weight < 0:
			errs = append(errs, fmt.Errorf("Faults[%d] (%q): For is %v to %v and Weight %d: want 0 ≤ least ≤ most and 0 ≤ Weight", i, f.Name, f.For[0], f.For[1], f.Weight))
		}
		names[f.Name] = true
	}
	return errors.Join(errs...)
}

func (f *Fault) lane() Lane {
	for _, lane := range lanes {
		if f.Lane == lane {
			return lane
		}
	}
	return ""
}
