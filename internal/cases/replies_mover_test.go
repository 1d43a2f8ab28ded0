package cases

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/leaseq/leaseq/lease"
)

// A mover makes and works on jobs of a queue that it shares with others, and holds each answer against the ledger.
type mover struct {
	*ledger
	store  *lease.Store
	random *rand.Rand
	name   string
	made   int
	hand   []*lease.Lease // held
}

const mostMade, mostClaimed = 24, 40

// round makes some jobs, settles what it holds, and claims others.
func (m *mover) round(more bool) error {
	if more {
		if err := m.make(); err != nil {
			return err
		}
	}
	if m.random.IntN(20) == 0 {
		if err := m.leave(); err != nil {
			return err
		}
	}
	return m.exchange()
}

func (m *mover) make() error {
	items := make([]lease.Item, 1+m.random.IntN(mostMade))
	var later []lease.Item
	var cancel, purge []string
	for i := range items {
		id := fmt.Sprint(m.name, m.made)
		m.made++
		items[i] = lease.Item{ID: id, Record: []byte(recordOf(id))}
		f := fates[m.random.IntN(len(fates))]
		switch f {
		case fateCancelDue:
			cancel = append(cancel, id)
		case fatePurgeDue:
			purge = append(purge, id)
		}
		if f == fateCancelDue || f == fatePurgeDue {
			items[i].Delay = time.Hour
			later = append(later, items[i])
		}
		m.begin(id, f)
	}
	if err := m.enqueue(items); err != nil {
		return err
	}
	if len(later) == 0 {
		return nil
	}
	return errors.Join(m.enqueueAgain(later), m.cancel(cancel, lease.Removed{Cancelled: true}), m.purge(purge))
}

func (m *mover) enqueue(items []lease.Item) error {
	results, err := m.store.Enqueue(background(), items)
	if err := errors.Join(append(results, err)...); err != nil {
		return fmt.Errorf("enqueue: %w", err)
	}
	m.count("enqueued", len(items))
	return nil
}

// enqueueAgain enqueues what exists already, by a new call.
func (m *mover) enqueueAgain(items []lease.Item) error {
	results, err := m.store.Enqueue(background(), items)
	if err != nil {
		return fmt.Errorf("enqueue again: %w", err)
	}
	for i, one := range results {
		var twice *lease.DuplicateError
		if !errors.As(one, &twice) || *twice != (lease.DuplicateError{ID: items[i].ID, Place: lease.Due}) {
			return fmt.Errorf("enqueue %s again: %w", items[i].ID, one)
		}
	}
	m.count("duplicates refused", len(items))
	return nil
}

func (m *mover) cancel(ids []string, expected lease.Removed) error {
	if len(ids) == 0 {
		return nil
	}
	if expected.Cancelled {
		m.end(ids...)
	}
	removed, err := m.store.Cancel(background(), ids)
	if err != nil {
		return fmt.Errorf("cancel: %w", err)
	}
	for i, one := range removed {
		if err := want("cancel "+ids[i], expected, one); err != nil {
			return err
		}
	}
	if expected.Cancelled {
		m.count("cancelled", len(ids))
	} else {
		m.count("marked as cancelled", len(ids))
	}
	return nil
}

func (m *mover) purge(ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	m.end(ids...)
	results, err := m.store.Purge(background(), lease.Due, ids)
	if err := errors.Join(append(results, err)...); err != nil {
		return fmt.Errorf("purge: %w", err)
	}
	m.count("purged", len(ids))
	return nil
}

// leave claims, and goes away within three milliseconds.
func (m *mover) leave() error {
	ctx, leave := context.WithTimeout(background(), time.Duration(m.random.IntN(3000))*time.Microsecond)
	got, err := m.store.Claim(ctx, 3, nil)
	leave()
	if err == nil {
		return m.take(got.Jobs)
	}
	if truth := resolved(err); !errors.Is(truth, lease.ErrNeverRan) {
		return fmt.Errorf("a claim that nobody saw: %w, in truth %w", err, truth)
	}
	return nil
}

// take begins to hold jobs. Some leases are extended, and some jobs are cancelled.
func (m *mover) take(jobs []lease.Lease) error {
	var held, cancelled []lease.Held
	var ids []string
	for i := range jobs {
		f, err := m.ledger.take(&jobs[i])
		if err != nil {
			return err
		}
		m.hand = append(m.hand, &jobs[i])
		one := lease.Held{ID: jobs[i].ID, Token: jobs[i].Token}
		if f == fateCancelHeld || f == fateCancelAck {
			ids, cancelled = append(ids, one.ID), append(cancelled, one)
		} else if m.random.IntN(4) > 0 {
			held = append(held, one)
		}
	}
	m.count("claimed", len(jobs))
	return errors.Join(m.extend(held, nil, "extended"), m.cancel(ids, lease.Removed{Cancelling: true}),
		m.extend(cancelled, lease.ErrCancelled, "extends told of a cancel"))
}

func (m *mover) extend(held []lease.Held, expected error, what string) error {
	if len(held) == 0 {
		return nil
	}
	got, err := m.store.Extend(background(), 0, held)
	if err != nil {
		return fmt.Errorf("extend: %w", err)
	}
	for i, one := range got.Results {
		if !errors.Is(one, expected) {
			return fmt.Errorf("extend %s: %w, want %v", held[i].ID, one, expected)
		}
	}
	m.count(what, len(held))
	return nil
}

var opNames = map[lease.Op]string{lease.Ack: "acked", lease.Nack: "nacked", lease.Release: "released", lease.Bury: "buried"}

// exchange settles what is held and claims, half of the times in one round trip.
func (m *mover) exchange() error {
	verdicts, wanted := make([]lease.Verdict, len(m.hand)), make([]lease.Settled, len(m.hand))
	var dead []string
	var late []lease.Verdict
	for i, one := range m.hand {
		twice := m.fateOf(one.ID) == fateLate
		verdicts[i], wanted[i] = m.verdict(one, []lease.Op{lease.Nack, lease.Release, lease.Bury}[m.random.IntN(3)])
		if twice {
			late = append(late, verdicts[i])
		}
		if wanted[i].Place == lease.Dead {
			dead = append(dead, one.ID)
		}
	}
	m.hand = nil
	n := 1 + m.random.IntN(mostClaimed)
	var done []lease.Settled
	var got lease.Claimed
	var err, claimErr error
	if m.random.IntN(2) == 0 {
		done, err, got, claimErr = m.store.Exchange(background(), verdicts, n, nil)
	} else {
		if len(verdicts) > 0 {
			done, err = m.store.Settle(background(), verdicts)
		}
		got, claimErr = m.store.Claim(background(), n, nil)
	}
	if err := errors.Join(err, claimErr); err != nil {
		return fmt.Errorf("settle and claim: %w", err)
	}
	for i, one := range done {
		if one != wanted[i] {
			return fmt.Errorf("%s of %s: %+v, want %+v", opNames[verdicts[i].Op], verdicts[i].ID, one, wanted[i])
		}
		if one.Cancelled {
			m.count("settled as cancelled", 1)
		} else {
			m.count(opNames[verdicts[i].Op], 1)
		}
	}
	return errors.Join(m.take(got.Jobs), m.redrive(dead), m.tooLate(late))
}

func (m *mover) redrive(ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	m.redriven(ids...)
	results, err := m.store.Redrive(background(), ids)
	if err := errors.Join(append(results, err)...); err != nil {
		return fmt.Errorf("redrive: %w", err)
	}
	m.count("redriven", len(ids))
	return nil
}

// tooLate acks again what was acked, by a new call.
func (m *mover) tooLate(verdicts []lease.Verdict) error {
	if len(verdicts) == 0 {
		return nil
	}
	done, err := m.store.Settle(background(), verdicts)
	if err != nil {
		return fmt.Errorf("ack again: %w", err)
	}
	for i, one := range done {
		if !errors.Is(one.Err, lease.ErrGone) {
			return fmt.Errorf("ack %s again: %+v, want %v", verdicts[i].ID, one, lease.ErrGone)
		}
	}
	m.count("late acks refused", len(verdicts))
	return nil
}
