package chaos

import (
	"errors"
	"fmt"
	"time"

	"github.com/leaseq/leaseq/chaos/record"
)

// CheckOptions are the optional settings of Check; nil is valid.
type CheckOptions struct {
	// Lease is the queue's published lease. Default: the longest that a process of the history names. Where none is known,
	// what needs it is not told.
	Lease time.Duration
	// ExpiryBackoff is the longest delay that the queue's expiry back-off makes. Default 0: none.
	ExpiryBackoff time.Duration
	// Slack is added to the bounds of the checks late-expiry, starts and deadlines, for a machine that is slow as a whole.
	// Default 0: 250 ms, as promised.
	Slack time.Duration
	// Fallback is the Consumers' WakeFallback. Default 1 s.
	Fallback time.Duration
	// Examples is how many violations of each check are kept with their events. Default 5.
	Examples int
}

// prompt is the time in which the protocol promises that what is to happen happens.
const prompt = 250 * time.Millisecond

// Check judges a history and what the queue held after it. The queue is the snapshot's; nobody may work on it any more,
// and all faults have ended. An error says that the history cannot be read; what is wrong in it is in the Report.
//
// Time and memory grow with the number of events and of jobs alone.
func Check(h History, final *Snapshot, o *CheckOptions) (*Report, error) {
	if final == nil {
		return nil, errors.New("chaos: the snapshot is nil: take one when everything has ended")
	}
	b := &book{final: final, jobs: map[string]*job{}, fences: map[int64]bool{}}
	if o != nil {
		b.opts = *o
	}
	if b.opts.Lease < 0 || b.opts.ExpiryBackoff < 0 || b.opts.Slack < 0 || b.opts.Fallback < 0 || b.opts.Examples < 0 {
		return nil, fmt.Errorf("chaos: CheckOptions %+v: want 0 or more everywhere", b.opts)
	}
	if b.opts.Fallback == 0 {
		b.opts.Fallback = time.Second
	}
	if b.opts.Examples == 0 {
		b.opts.Examples = 5
	}
	b.report = newReport(final.Queue)
	b.results = make(map[string]*Result, len(described))
	for i := range b.report.Checks {
		b.results[b.report.Checks[i].Name] = &b.report.Checks[i]
	}
	for _, log := range h {
		if err := b.read(log); err != nil {
			return nil, fmt.Errorf("chaos: %w", err)
		}
	}
	b.prepare()
	b.judgeFinal()
	for _, j := range b.order {
		b.judge(j)
	}
	b.judgeStarts()
	b.sortRecoveries()
	b.finish()
	if err := b.evidence(h); err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	return b.report, nil
}

func newReport(queue string) *Report {
	r := &Report{Queue: queue, Cases: map[string]int64{}, Checks: make([]Result, len(described))}
	copy(r.Checks, described)
	for _, name := range cases {
		r.Cases[name] = 0
	}
	return r
}

// cases are what the report counts beside the checks, at 0 where it did not happen.
var cases = []string{
	"start", "handler panicked", "settle acked", "settle retried", "settle released", "settle dead", "settle cancelled",
	"settle lost", "settle gone", "settle unknown", "settle without an answer", "context ended: lost", "context ended: timeout",
	"context ended: shutdown", "context ended: cancelled", "lease ran out", "enqueue duplicate", "enqueue unknown",
	"outcome resolved", "job cancelled", "job redriven", "job purged", "sweep with a grace", "process stood still",
	"fault: dies", "fault: freezes", "fault: cut", "fault: lossy", "fault: outage", "fault: steps", "fault: loses", "fault: skews",
}

// admits judges a first line.
func (b *book) admits(e *record.Event) error {
	switch {
	case e.Queue != b.final.Queue:
		return fmt.Errorf("a history of queue %q: the snapshot is of %q", e.Queue, b.final.Queue)
	case e.Process == "":
		return errors.New("a history without the name of its process")
	}
	for _, p := range b.procs {
		if p.name == e.Process {
			return fmt.Errorf("two histories of a process %q: give each process a name of its own, after a restart too", e.Process)
		}
	}
	return nil
}

// read takes in what one process wrote.
func (b *book) read(log Log) error {
	p := &process{number: len(b.procs), pending: map[int64]pending{}}
	torn, err := log.Each(func(e *record.Event) error {
		if e.Kind == record.Opened {
			if err := b.admits(e); err != nil {
				return err
			}
		}
		b.report.Events++
		b.take(p, e)
		return nil
	})
	if err != nil {
		return err
	}
	if torn {
		b.report.Torn++
	}
	if p.name == "" {
		return nil // killed before its first line was written
	}
	b.procs = append(b.procs, p)
	b.report.Processes++
	if !p.closed {
		b.report.Unclosed++
		b.disturbed = true
	}
	return nil
}
