package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leaseq/leaseq/reliable"
)

// A stage is one demonstration: what it works with, and what it has seen so far. It is used by one goroutine.
type stage struct {
	options *options
	orders  []order
	byID    map[string]*order
	story   *story
	began   time.Time

	dir, file string
	lines     *follower
	server    *server
	queue     *reliable.Queue
	crew      *crew

	enqueued []string               // IDs
	running  map[int]map[int64]line // by process ID and fence: deliveries that began and did not end, by the lines so far
	effects  map[int64]line         // by fence: side effects of deliveries that did not end
	up       map[int]bool           // process IDs of workers that wrote that they are up
	refused  map[int]int            // by process ID: verdicts that came late
	expiries map[string]int         // by job: expiries that a start told of
	acked    int                    // lines that tell of an ack
	broken   []*interrupted         // deliveries that were interrupted
	sampled  time.Time              // when Redis was last asked
	counters map[string]int64       // what it said
	settled  bool                   // nothing was due and nothing in processing
	froze    bool                   // a worker was frozen past its leases, and thawed
}

// An interrupted is a delivery whose worker was killed or frozen in the middle of it, with what Redis said of its lease
// while it lasted.
type interrupted struct {
	line          // the start
	how    string // killed or frozen
	inside bool   // killed, when its effect had happened and was not committed
	expiry time.Time
	ended  bool // somebody took the lease away
}

// sampleEvery is how often Redis is asked, and pollEvery how often the workers' file is read.
const (
	sampleEvery = 50 * time.Millisecond
	pollEvery   = 5 * time.Millisecond
)

// until reads on until a condition holds. It fails when the time for one act is over, or a worker ended by itself.
func (s *stage) until(ctx context.Context, what string, holds func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, actBound, fmt.Errorf("waited %v for this: %s", actBound, what))
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if err := s.look(ctx); err != nil {
			return causeOr(ctx, err)
		}
		done, err := holds()
		if done || err != nil {
			return causeOr(ctx, err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// causeOr says why the time was over where an error came of that.
func causeOr(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// look reads what the workers wrote, checks that they live, and asks Redis from time to time. Redis may take a while to
// answer on a busy machine: what the workers wrote meanwhile is read as well, so that whoever looks for a worker in the
// middle of something does not see what is long over.
func (s *stage) look(ctx context.Context) error {
	if err := errors.Join(s.read(), s.crew.check()); err != nil {
		return err
	}
	if time.Since(s.sampled) < sampleEvery {
		return nil
	}
	s.sampled = time.Now()
	if err := s.sample(ctx); err != nil {
		return err
	}
	stats, err := s.queue.Stats(ctx)
	if err != nil {
		return err
	}
	s.counters = stats.Counters
	s.settled = stats.Due == 0 && stats.Processing == 0
	if stats.Counters["enqueued"] > 0 {
		s.story.update(progress{acked: stats.Counters["acked"], dead: stats.Dead, processing: stats.Processing, due: stats.Due})
	}
	return s.read()
}

// read notes the lines that the workers wrote since it was called last.
func (s *stage) read() error {
	lines, err := s.lines.next()
	for _, l := range lines {
		s.note(l)
	}
	return err
}

// sample asks Redis for the leases of interrupted deliveries, as long as they last: a call that was on its way when
// the worker was stopped can still have moved an expiry.
func (s *stage) sample(ctx context.Context) error {
	var ids []string
	var asked []*interrupted
	for _, b := range s.broken {
		if !b.ended {
			ids, asked = append(ids, b.ID), append(asked, b)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	infos, err := s.queue.Inspect(ctx, ids...)
	if err != nil {
		return err
	}
	for i, info := range infos {
		if b := asked[i]; info.Place == reliable.Processing && info.Fence == b.Fence {
			b.expiry = info.At
		} else {
			b.ended = true
		}
	}
	return nil
}

// note keeps what a line tells, and tells it on.
func (s *stage) note(l line) {
	switch l.Event {
	case isUp:
		s.up[l.PID] = true
	case isStart:
		if s.running[l.PID] == nil {
			s.running[l.PID] = map[int64]line{}
		}
		s.running[l.PID][l.Fence] = l
		if l.Expiries > s.expiries[l.ID] {
			s.expiries[l.ID] = l.Expiries
			s.story.say("  %s again, by %s: attempt %d%s", l.ID, l.Worker, l.Attempt, s.afterExpiry(l))
		}
	case isEffect:
		s.effects[l.Fence] = l
	case isDoubt:
		s.story.say("  %s: its effect (%s) is in doubt, for it may have happened; %s does it again", l.ID, l.Effect, l.Worker)
	case isFinish:
		delete(s.running[l.PID], l.Fence)
		delete(s.effects, l.Fence)
		switch l.Outcome {
		case wasAcked:
			s.acked++
		case wasRetried:
			s.story.say("  %s failed, due again soon: %s", l.ID, l.Reason)
		case wasBuried:
			s.story.say("  %s is dead after attempt %d: %s", l.ID, l.Attempt, l.Reason)
		case wasLost:
			s.refused[l.PID]++
			s.story.say("  %s comes late with %s, and is refused: its lease is gone", l.Worker, l.ID)
		}
	case isTrouble:
		s.story.say("  %s had trouble, and goes on: %s", l.Worker, l.Reason)
	}
}

// afterExpiry says how long after the end of an interrupted lease a delivery came. Both times are Redis': a fence is
// the time of the claim in microseconds.
func (s *stage) afterExpiry(l line) string {
	for i := len(s.broken) - 1; i >= 0; i-- {
		if b := s.broken[i]; b.ID == l.ID && b.Fence < l.Fence {
			return fmt.Sprintf(", %s after %s's lease ran out", short(recovery(b.expiry, l.Fence)), b.Worker)
		}
	}
	return ""
}

// recovery is the time from a stored expiry to a claim with this fence, both by Redis' clock. A fence is the claim's
// time in microseconds (and one more where two claims would have the same), an expiry whole milliseconds.
func recovery(expiry time.Time, fence int64) time.Duration {
	return time.UnixMicro(fence).Sub(expiry).Round(100 * time.Microsecond)
}

// inTheMiddle returns the deliveries that a worker is in the middle of, by its own lines and by Redis: it started them,
// did not end them, and holds their leases.
func (s *stage) inTheMiddle(ctx context.Context, w *worker, how string) ([]*interrupted, error) {
	if err := s.look(ctx); err != nil {
		return nil, err
	}
	var ids []string
	var list []*interrupted
	for _, l := range s.running[w.pid()] {
		ids, list = append(ids, l.ID), append(list, &interrupted{line: l, how: how})
	}
	if len(ids) == 0 {
		return nil, nil
	}
	infos, err := s.queue.Inspect(ctx, ids...)
	if err != nil {
		return nil, err
	}
	var held []*interrupted
	for i, info := range infos {
		if info.Place == reliable.Processing && info.Fence == list[i].Fence {
			list[i].expiry = info.At
			held = append(held, list[i])
		}
	}
	slices.SortFunc(held, func(x, y *interrupted) int { return cmp.Compare(x.Fence, y.Fence) })
	return held, nil
}
