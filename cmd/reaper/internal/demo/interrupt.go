package demo

import (
	"context"
	"errors"
	"strings"
	"time"
)

// choose waits until a worker is in the middle of a job, at best of a long one, which goes on for so long that it still
// is when a signal arrives. There are only a few of those, so it soon takes what there is.
func (s *stage) choose(ctx context.Context) (chosen *worker, err error) {
	const enough, picky = 300 * time.Millisecond, 300 * time.Millisecond
	began := time.Now()
	err = s.until(ctx, "a worker is in the middle of a job", func() (bool, error) {
		most := time.Duration(0)
		for _, w := range s.crew.atWork() {
			for _, l := range s.running[w.pid()] {
				o := s.byID[l.ID]
				if o == nil {
					continue
				}
				if left := o.left(l.Time); chosen == nil || left > most {
					chosen, most = w, left
				}
			}
		}
		switch {
		case most >= enough, chosen != nil && time.Since(began) > picky:
			return true, nil
		case s.settled:
			return false, errors.New("all jobs were done before a worker was seen in the middle of one: the machine is too busy")
		}
		chosen = nil
		return false, nil
	})
	return chosen, err
}

// freezeOne stops a worker in the middle of jobs until all its leases were taken away, and lets it go on.
func (s *stage) freezeOne(ctx context.Context) error {
	if !canFreeze {
		s.story.say("This system cannot freeze a process (no SIGSTOP): that step is left out.")
		return nil
	}
	w, caught, err := s.catch(ctx)
	if err != nil {
		return err
	}
	s.broken = append(s.broken, caught...)
	s.story.say("%s is in the middle of %d jobs: SIGSTOP.", w, len(caught))
	err = s.until(ctx, "the frozen worker's leases run out", func() (bool, error) {
		for _, b := range caught {
			if !b.ended {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	if err := w.thaw(); err != nil {
		return err
	}
	s.froze = true
	s.story.say("All leases of %s have run out: SIGCONT. It goes on where it stood.", w)
	return s.until(ctx, "the thawed worker comes late with a verdict", func() (bool, error) {
		return s.refused[w.pid()] > 0 && s.counters["refused"] > 0, nil
	})
}

// catch freezes a worker that is in the middle of jobs.
func (s *stage) catch(ctx context.Context) (*worker, []*interrupted, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, actBound, errors.New("no worker could be frozen in the middle of a job"))
	defer cancel()
	for {
		w, err := s.choose(ctx)
		if err != nil {
			return nil, nil, err
		}
		caught, err := s.standStill(ctx, w, "frozen")
		if err != nil || len(caught) > 0 {
			return w, caught, err
		}
	}
}

// standStill freezes a worker and returns the deliveries that it is in the middle of. If there are none, or after an
// error, it goes on.
func (s *stage) standStill(ctx context.Context, w *worker, how string) ([]*interrupted, error) {
	if err := w.freeze(); err != nil {
		return nil, err
	}
	// What was on its way to Redis has arrived when it is asked a little later.
	stopped := time.Now()
	err := s.until(ctx, "the worker stands still", func() (bool, error) { return time.Since(stopped) > sampleEvery, nil })
	var held []*interrupted
	if err == nil {
		held, err = s.inTheMiddle(ctx, w, how)
	}
	if err != nil || len(held) == 0 {
		return nil, errors.Join(err, w.thaw())
	}
	return held, nil
}

// listIDs names the jobs of interrupted deliveries.
func listIDs(list []*interrupted) string {
	ids := make([]string, len(list))
	for i, b := range list {
		ids[i] = b.ID
	}
	return strings.Join(ids, ", ")
}
