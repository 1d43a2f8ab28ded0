package cases

import (
	"errors"
	"fmt"
	"time"

	"github.com/leaseq/leaseq/lease"
)

// publishAndLook does what neither changes a job nor belongs to a session.
func publishAndLook(s *operatorSite) error {
	if err := s.enqueue(s.store, "looked-at", time.Hour); err != nil {
		return err
	}
	for n := 0; n < 2 || !s.net.enough("policy", "limits", "wake", "trim", "stats", "inspect", "retain", "pause"); n++ {
		_, err := s.store.Publish(background(), &lease.Policy{PayloadLimit: 1000 + n})
		err = errors.Join(err, pinAndUnpin(s.store, 1000+n), pauseAndResume(s))
		limit := s.sure.HGet(background(), s.key("policy"), "payload_limit").Val()
		err = errors.Join(err, want("payload limit", fmt.Sprint(1000+n), limit), s.store.Wake(background()))
		wakes := s.sure.LLen(background(), s.key("wake")).Val()
		_, removed, trimErr := s.store.TrimSessions(background(), "0")
		for { // what had no answer is called again; all is kept
			if got, err := s.store.Retain(background(), 1); err == nil {
				trimErr = errors.Join(trimErr, want("forgotten", lease.Forgotten{}, got))
				break
			}
		}
		err = errors.Join(err, want("wake-ups", int64(1), wakes), trimErr, want("trimmed sessions", int64(0), removed))
		stats, statsErr := s.store.Stats(background())
		infos, inspectErr := s.store.Inspect(background(), []string{"looked-at"})
		err = errors.Join(err, statsErr, want("due", int64(1), stats.Due), inspectErr)
		if err == nil {
			err = want("place", lease.Due, infos[0].Place)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// pauseAndResume pauses the queue, which nobody works on, and lets it go on.
func pauseAndResume(s *operatorSite) error {
	for _, paused := range []bool{true, false} {
		was, err := true, error(nil)
		if paused {
			err = s.store.Pause(background(), time.Time{})
		} else {
			was, err = s.store.Resume(background())
		}
		if err != nil {
			return err
		}
		stats, err := s.truth.Stats(background())
		if err := errors.Join(err, want("was paused", true, was), want("paused", paused, stats.Paused)); err != nil {
			return err
		}
	}
	return nil
}

// pinAndUnpin takes a limit away from deployments, and gives it back.
func pinAndUnpin(store *lease.Store, published int) error {
	_, err := store.Pin(background(), &lease.Policy{PayloadLimit: 7})
	pinned, readErr := store.PolicyState(background())
	err = errors.Join(err, readErr, want("pinned limit", 7, pinned.PayloadLimit))
	_, unpinErr := store.Unpin(background())
	left, readErr := store.PolicyState(background())
	return errors.Join(err, unpinErr, readErr, want("limit after the pin", published, left.PayloadLimit))
}
