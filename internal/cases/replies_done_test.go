package cases

import (
	"errors"
	"fmt"
	"time"

	"github.com/leaseq/leaseq/lease"
)

// finishAndForget acks jobs with results, which are kept until a sweeper forgets them.
func finishAndForget(s *operatorSite) error {
	if _, err := s.truth.Publish(background(), &lease.Policy{DoneAge: time.Hour, DoneKeep: new(1)}); err != nil {
		return err
	}
	n := 0
	for ; n < 2 || !s.net.enough("settle", "retain", "inspect"); n++ {
		id := fmt.Sprint("f", n)
		if err := errors.Join(s.enqueue(s.store, id, 0), s.finishOne(id)); err != nil {
			return err
		}
		for { // what had no answer is called again, and may have run
			got, err := s.store.Retain(background(), 10)
			if err == nil {
				err = want("more", false, got.More)
				if err != nil {
					return err
				}
				break
			}
		}
	}
	stats, err := s.truth.Stats(background())
	if err != nil {
		return err
	}
	return errors.Join(want("done", int64(1), stats.Done),
		s.counters(map[string]int{"enqueued": n, "acked": n, "forgotten": n - 1, "refused": 0, "trimmed": 0}))
}

// finishOne works on the only job that is due, and looks at what is kept of it.
func (s *operatorSite) finishOne(id string) error {
	job, err := s.claimOne(id, 1, nil)
	if err != nil {
		return err
	}
	got, err := s.store.Settle(background(), []lease.Verdict{{Op: lease.Ack, ID: id, Token: job.Token, Result: []byte("of " + id)}})
	if err != nil {
		return err
	}
	infos, lookErr := s.store.Inspect(background(), []string{id})
	again, againErr := s.store.Enqueue(background(), []lease.Item{{ID: id, Record: []byte("again")}})
	if err := errors.Join(want("settle "+id, lease.Settled{}, got[0]), lookErr, againErr); err != nil {
		return err
	}
	var duplicate *lease.DuplicateError
	if !errors.As(again[0], &duplicate) {
		return fmt.Errorf("enqueue %s again: %v, want a duplicate", id, again[0])
	}
	return errors.Join(want("place of "+id, lease.Done, infos[0].Place), want("result", "of "+id, string(infos[0].Result)), want("found "+id, lease.Done, duplicate.Place))
}
