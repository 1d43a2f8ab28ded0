package cases

import (
	"errors"
	"fmt"
	"time"

	"github.com/leaseq/leaseq/lease"
)

// mend moves, buries, edits, lists, redrives and imports, each job through all of it.
func mend(s *operatorSite) error {
	n := 0
	for ; n < 2 || !s.net.enough("reschedule", "bury", "edit", "list", "import"); n++ {
		if err := s.mendOne(fmt.Sprint("m", n)); err != nil {
			return err
		}
	}
	return s.counters(map[string]int{
		"enqueued": n, "rescheduled": n, "buried_by_hand": n, "died": n, "edited": 2 * n, "redriven": n, "cancelled": n, "imported": n, "purged": n,
	})
}

func (s *operatorSite) mendOne(id string) error {
	err := s.enqueue(s.store, id, time.Hour)
	ids := []string{id}
	for _, step := range []struct {
		what  string
		call  func() ([]error, error)
		place lease.Place
	}{
		{"reschedule", func() ([]error, error) { return s.store.Reschedule(background(), 2*time.Hour, ids) }, lease.Due},
		{"bury", func() ([]error, error) { return s.store.Bury(background(), "by hand", ids) }, lease.Dead},
		{"edit", func() ([]error, error) {
			return s.store.Edit(background(), []lease.Edit{{ID: id, Old: []byte("record"), Record: []byte("edited")}})
		}, lease.Dead},
		{"edit and redrive", func() ([]error, error) {
			return s.store.EditAndRedrive(background(), []lease.Edit{{ID: id, Old: []byte("edited"), Record: []byte("again")}})
		}, lease.Due},
	} {
		if err != nil {
			return err
		}
		results, failed := step.call()
		if err = errors.Join(append(results, failed)...); err != nil {
			return fmt.Errorf("%s %s: %w", step.what, id, err)
		}
		listed, failed := s.store.List(background(), step.place, 10, nil)
		err = errors.Join(failed, want(step.what, fmt.Sprint(ids), fmt.Sprint(listed.IDs)))
	}
	return errors.Join(err, s.takeOutAndIn(id))
}

// takeOutAndIn cancels a job, and imports it again.
func (s *operatorSite) takeOutAndIn(id string) error {
	infos, err := s.truth.Inspect(background(), []string{id})
	if err != nil {
		return err
	}
	info := infos[0]
	if err := want(id, "again 1 0", fmt.Sprint(string(info.Record), " ", info.Redrives, " ", info.Failures)); err != nil {
		return err
	}
	removed, err := s.store.Cancel(background(), []string{id})
	if err != nil {
		return err
	}
	kept := info.Kept()
	results, err := s.store.Import(background(), []lease.Kept{kept})
	if err := errors.Join(append(results, removed[0].Err, err)...); err != nil {
		return fmt.Errorf("import %s: %w", id, err)
	}
	after, err := s.truth.Inspect(background(), []string{id})
	if err != nil {
		return err
	}
	after[0].In, info.In = 0, 0
	if err := want("imported "+id, fmt.Sprintf("%+v", info), fmt.Sprintf("%+v", after[0])); err != nil {
		return err
	}
	results, err = s.store.Purge(background(), lease.Due, []string{id})
	return errors.Join(append(results, err)...)
}
