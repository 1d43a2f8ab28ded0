package chaos

import (
	"context"
	"math"
	"slices"
	"time"
)

// sometimes are the interesting cases of a storm, each a case that a Report counts: a run in which one did not happen has
// shown nothing about it.
var sometimes = []string{
	"lease ran out",            // and was taken from its holder
	"settle lost",              // a late settle was refused: another holder has the job
	"settle gone",              // a late settle was refused: the job is no more
	"settle without an answer", // a holder ended, or gave up, with its settle on the way
	"settle acked",
	"settle retried",
	"settle released",
	"settle dead",
	"enqueue duplicate",
	"enqueue unknown",  // a producer's call was not answered
	"outcome resolved", // and its truth was found later
	"job cancelled",
	"job redriven",
	"job purged",
	"handler panicked",
	"context ended: lost",
	"context ended: timeout",
	"context ended: shutdown",
	"process stood still",
}

// Sometimes are the names of the interesting cases.
func Sometimes() []string { return slices.Clone(sometimes) }

// judge reads what there is, and checks it.
func (s *storm) judge(ctx context.Context) error {
	s.enter(phaseCheck)
	if err := s.follow.look(); err != nil {
		return err
	}
	if err := s.rec.Close(); err != nil {
		return err
	}
	final, err := TakeSnapshot(ctx, s.server.admin, s.Prefix, s.Queue)
	if err != nil {
		return err
	}
	history, err := ReadDir(s.histories)
	if err != nil {
		return err
	}
	report, err := Check(history, final, &CheckOptions{Lease: s.Lease, Slack: s.Slack})
	if err != nil {
		return err
	}
	s.follow.mu.Lock()
	s.result.Seconds = s.follow.seconds
	s.follow.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.result.Problems = s.problems
	s.result.take(report)
	s.result.DurationMS = time.Since(s.began).Milliseconds()
	if s.ownDir && s.result.OK() {
		s.result.Dir = ""
	}
	return nil
}

// take copies what a report says into the result's own fields.
func (r *Outcome) take(report *Report) {
	t := &report.Totals
	r.Report = report
	r.Jobs, r.Acked, r.Dead = t.Jobs, t.Acked, t.LeftDead
	r.Lost, r.Unexpected, r.Duplicated = t.Lost, t.Unexpected, t.Duplicated
	r.Recovered, r.Violations = t.Redelivered, report.Violations()
	r.DuplicatesAllowed = t.Exposed
	r.Sometimes = map[string]int64{}
	for _, name := range sometimes {
		r.Sometimes[name] = report.Cases[name]
	}
	times := report.Recoveries()
	r.RecoveryP50, r.RecoveryP99, r.RecoveryMax = milliseconds(times, 0.5), milliseconds(times, 0.99), milliseconds(times, 1)
}

// milliseconds is a quantile of sorted times; 0 where there are none.
func milliseconds(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	at := int(math.Ceil(q*float64(len(sorted)))) - 1
	return math.Round(float64(sorted[max(at, 0)])/1e4) / 100
}
