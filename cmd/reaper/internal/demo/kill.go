package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/leaseq/leaseq/internal/keys"
)

// killOne ends a worker with SIGKILL in the middle of jobs, and inside the side effect of one: it has happened, and is
// not committed. Then it starts another in its place.
func (s *stage) killOne(ctx context.Context) error {
	const inFullSwing = 10
	err := s.until(ctx, "some jobs are acked", func() (bool, error) { return s.acked >= inFullSwing, nil })
	if err != nil {
		return err
	}
	w, before, err := s.victim(ctx)
	if err != nil {
		return err
	}
	if err := w.kill(); err != nil {
		return err
	}
	// What it ended between the look and the signal was not interrupted, and what it began in between was. Its leases
	// can only have been extended meanwhile, so the later look tells the expiry that counts.
	after, err := s.inTheMiddle(ctx, w, "killed")
	if err != nil {
		return err
	}
	s.broken = append(s.broken, after...)
	s.story.say("%s is in the middle of %d jobs, by its own lines: SIGKILL.", w, before)
	if len(after) == 0 {
		return fmt.Errorf("the kill missed: worker %s held no running job when it died", w)
	}
	s.story.say("  It held the leases of %s, which last up to %v more.", listIDs(after), leaseLength)
	inside, err := s.insideEffects(ctx, after)
	if err != nil {
		return err
	}
	if len(inside) == 0 {
		return fmt.Errorf("the kill missed: worker %s was inside no side effect when it died", w)
	}
	var effects []string
	for _, b := range inside {
		b.inside = true
		effects = append(effects, fmt.Sprintf("%s (%s)", b.ID, s.effects[b.Fence].Effect))
	}
	s.story.say("  It died inside the side effect of %s: it has happened, and Redis was not told.", strings.Join(effects, ", "))
	replacement, err := s.hire()
	if err != nil {
		return err
	}
	s.story.say("%s is started in its place.", replacement)
	return nil
}

// victim chooses the worker to be killed, which is inside a side effect, and returns how many jobs it is in the middle
// of. It is made to stand still first, so that it cannot come to the effect's end while it is looked at. Where that
// cannot be done, only a long effect will do.
func (s *stage) victim(ctx context.Context) (*worker, int, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, actBound, errors.New("no worker was seen inside a side effect"))
	defer cancel()
	for {
		w, err := s.chooseInside(ctx)
		if err != nil {
			return nil, 0, err
		}
		var held, inside []*interrupted
		if canFreeze {
			held, err = s.standStill(ctx, w, "killed")
		} else {
			held, err = s.inTheMiddle(ctx, w, "killed")
		}
		if err == nil {
			inside, err = s.insideEffects(ctx, held)
		}
		if err == nil && len(inside) > 0 {
			return w, len(held), nil
		}
		if w.frozen {
			err = errors.Join(err, w.thaw())
		}
		if err != nil {
			return nil, 0, err
		}
	}
}

// chooseInside waits until a worker is inside a side effect, by its lines, and returns the one that has most of it left.
func (s *stage) chooseInside(ctx context.Context) (chosen *worker, err error) {
	atLeast := time.Duration(0)
	if !canFreeze {
		atLeast = 200 * time.Millisecond
	}
	err = s.until(ctx, "a worker is inside a side effect", func() (bool, error) {
		most := atLeast
		for _, w := range s.crew.atWork() {
			for fence, l := range s.running[w.pid()] {
				done, ok := s.effects[fence]
				if !ok || s.byID[l.ID] == nil {
					continue
				}
				if left := s.byID[l.ID].pace().inside - time.Since(done.Time); left > most {
					chosen, most = w, left
				}
			}
		}
		if chosen == nil && s.settled {
			return false, errors.New("all jobs were done before a worker was seen inside a side effect: the machine is too busy")
		}
		return chosen != nil, nil
	})
	return chosen, err
}

// insideEffects returns those of a worker's deliveries whose side effect has happened, by its lines, and is begun and not
// done, by the guard's record.
func (s *stage) insideEffects(ctx context.Context, held []*interrupted) ([]*interrupted, error) {
	partition, err := keys.New(keyPrefix, s.queue.Name(), 0)
	if err != nil {
		return nil, err
	}
	var inside []*interrupted
	for _, b := range held {
		l, ok := s.effects[b.Fence]
		if !ok {
			continue
		}
		state, err := s.server.rdb.HGet(ctx, partition.Once(b.ID), "e:"+l.Effect).Result()
		if exceptNil(err) != nil {
			return nil, err
		}
		if strings.HasPrefix(state, "s ") {
			inside = append(inside, b)
		}
	}
	return inside, nil
}
