package cases

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
)

// An operatorSite is a queue of an operator's own behind the lossy network. An operator calls what ordinary traffic
// calls seldom, again and again until each of its scripts has had its share of drops, and holds every answer against
// what it must be.
type operatorSite struct {
	net   *lossyNet
	rdb   *redis.Client // lossy
	sure  *redis.Client // not lossy, for looking
	name  string
	store *lease.Store // lossy
	truth *lease.Store // not lossy
	key   func(name string) string
}

func newOperatorSite(t *testing.T, net *lossyNet, rdb *redis.Client) *operatorSite {
	t.Helper()
	s := &operatorSite{net: net, rdb: rdb, sure: redistest.Client(t), name: redistest.Queue(t)}
	s.store, s.truth, s.key = newStore(t, rdb, s.name), newStore(t, s.sure, s.name), keysOf(t, s.name).Key
	return s
}

var operators = []func(s *operatorSite) error{
	openAndClose, holdAndExtend, runOut, publishAndLook, leaveEnqueues, buryAndRedrive, mend, deleteQueue, finishAndForget,
}

func background() context.Context { return context.Background() }

// want makes an error of an answer that differs.
func want(what string, expected, got any) error {
	if expected != got {
		return fmt.Errorf("%s: want %v, got %v", what, expected, got)
	}
	return nil
}

// enqueue requires that it makes the job.
func (s *operatorSite) enqueue(store *lease.Store, id string, delay time.Duration) error {
	results, err := store.Enqueue(background(), []lease.Item{{ID: id, Record: []byte("record"), Delay: delay}})
	if err := errors.Join(append(results, err)...); err != nil {
		return fmt.Errorf("enqueue %s: %w", id, err)
	}
	return nil
}

// counters requires exact counts, as an undisturbed reader sees them.
func (s *operatorSite) counters(expected map[string]int) error {
	stats, err := s.truth.Stats(background())
	if err != nil {
		return err
	}
	for name, n := range expected {
		err = errors.Join(err, want(name, int64(n), stats.Counters[name]))
	}
	return errors.Join(err, want("processing", int64(0), stats.Processing))
}

// openAndClose lives through a whole store each time: open, enqueue, cancel or purge, close.
func openAndClose(s *operatorSite) error {
	n := 0
	for ; n < 2 || !s.net.enough("open", "close", "enqueue", "cancel", "purge"); n++ {
		store, err := lease.NewStore(s.rdb, s.name, nil)
		if err != nil {
			return err
		}
		id := fmt.Sprint("o", n)
		err = s.enqueue(store, id, time.Hour)
		if n%2 == 0 {
			removed, e := store.Cancel(background(), []string{id})
			err = errors.Join(err, e)
			if err == nil {
				err = want("cancel "+id, lease.Removed{Cancelled: true}, removed[0])
			}
		} else {
			purged, e := store.Purge(background(), lease.Due, []string{id})
			err = errors.Join(append(purged, err, e)...)
		}
		if err := errors.Join(err, store.Close(background())); err != nil {
			return err
		}
	}
	return s.counters(map[string]int{"enqueued": n, "cancelled": n - n/2, "purged": n / 2})
}

// holdAndExtend claims a job, extends its lease, and acks it.
func holdAndExtend(s *operatorSite) error {
	n := 0
	for ; n < 2 || !s.net.enough("claim", "extend", "settle"); n++ {
		if err := s.enqueue(s.store, fmt.Sprint("h", n), 0); err != nil {
			return err
		}
		job, err := s.claimOne(fmt.Sprint("h", n), 1, nil)
		if err != nil {
			return err
		}
		for range 2 {
			got, err := s.store.Extend(background(), 0, []lease.Held{{ID: job.ID, Token: job.Token}})
			if err := errors.Join(append(got.Results, err)...); err != nil {
				return fmt.Errorf("extend %s: %w", job.ID, err)
			}
		}
		if err := s.settle(job, lease.Ack, lease.Nowhere); err != nil {
			return err
		}
	}
	return s.counters(map[string]int{"enqueued": n, "acked": n, "refused": 0, "refused_extends": 0, "expired": 0})
}

// claimOne claims the only job that is due.
func (s *operatorSite) claimOne(id string, attempt int, o *lease.ClaimOptions) (*lease.Lease, error) {
	got, err := s.store.Claim(background(), 3, o)
	if err != nil {
		return nil, err
	}
	if len(got.Jobs) != 1 {
		return nil, fmt.Errorf("%d jobs were given, want %s alone", len(got.Jobs), id)
	}
	job := &got.Jobs[0]
	return job, errors.Join(want("claimed", id, job.ID), want("attempt of "+id, attempt, job.Attempt()))
}

func (s *operatorSite) settle(job *lease.Lease, op lease.Op, place lease.Place) error {
	got, err := s.store.Settle(background(), []lease.Verdict{{Op: op, ID: job.ID, Token: job.Token, Reason: "told to"}})
	if err != nil {
		return err
	}
	return want("settle "+job.ID, lease.Settled{Place: place}, got[0])
}

// runOut lets a lease run out, sweeps until it is ended, and acks the second delivery.
func runOut(s *operatorSite) error {
	if _, err := s.truth.Publish(background(), &lease.Policy{Lease: 20 * time.Millisecond}); err != nil {
		return err
	}
	n := 0
	for ; n < 2 || !s.net.enough("expire"); n++ {
		id := fmt.Sprint("r", n)
		if err := s.enqueue(s.store, id, 0); err != nil {
			return err
		}
		claimed, err := s.store.Claim(background(), 1, &lease.ClaimOptions{Lease: 20 * time.Millisecond})
		if err != nil {
			return err
		}
		if err := want("jobs given", 1, len(claimed.Jobs)); err != nil {
			return err
		}
		for { // a sweep whose reply was lost is called again
			_, err := s.store.Expire(background(), 1, true)
			stats, lookErr := s.truth.Stats(background())
			if lookErr != nil {
				return lookErr
			}
			if err == nil && stats.Processing == 0 {
				break
			}
		}
		job, err := s.claimOne(id, 2, &lease.ClaimOptions{Lease: time.Hour})
		if err != nil {
			return err
		}
		if err := s.settle(job, lease.Ack, lease.Nowhere); err != nil {
			return err
		}
	}
	return s.counters(map[string]int{"enqueued": n, "acked": n, "expired": n, "refused": 0})
}

// Enqueues whose callers leave are told by their IDs: of these every reply is dropped, or every request.
const (
	leftRan   = "left-ran-"
	leftNever = "left-never-"
)

// leaverAction says what becomes of an enqueue whose caller is going to leave; false means that it is none.
func leaverAction(call scriptCall) (netfault.Action, bool) {
	if call.Name != "enqueue" {
		return netfault.Pass, false
	}
	for _, arg := range call.Args { // of which one is the ID
		switch {
		case strings.HasPrefix(arg, leftRan):
			return netfault.DropReply, true
		case strings.HasPrefix(arg, leftNever):
			return netfault.DropRequest, true
		}
	}
	return netfault.Pass, false
}

// resolved is the truth about a call that returned err: known at once, or asked for.
func resolved(err error) error {
	var unknown *lease.UnknownError
	if errors.As(err, &unknown) {
		return unknown.Resolve(background())
	}
	return err
}

// leaveEnqueues enqueues without ever getting an answer, leaves, and asks for the truth, which must be it.
func leaveEnqueues(s *operatorSite) error {
	made := 0
	for n := 0; n < 4 || !s.net.enough("seal"); n++ {
		id := fmt.Sprint(leftRan, n)
		if n%2 == 1 {
			id = fmt.Sprint(leftNever, n)
		}
		ctx, leave := context.WithTimeout(background(), 20*time.Millisecond)
		results, err := s.store.Enqueue(ctx, []lease.Item{{ID: id, Record: []byte("record"), Delay: time.Hour}})
		leave()
		truth := resolved(err)
		if len(results) == 1 {
			if one := resolved(results[0]); !errors.Is(one, truth) {
				return fmt.Errorf("of %s the call says %w, and the item %w", id, truth, one)
			}
		}
		infos, err := s.truth.Inspect(background(), []string{id})
		if err != nil {
			return err
		}
		switch there := infos[0].Place == lease.Due; {
		case truth == nil && there:
			made++
		case errors.Is(truth, lease.ErrNeverRan) && !there:
		default:
			return fmt.Errorf("%s is in %q, but Resolve says %w", id, infos[0].Place, truth)
		}
	}
	return s.counters(map[string]int{"enqueued": made})
}

// buryAndRedrive goes through dead.
func buryAndRedrive(s *operatorSite) error {
	n := 0
	for ; n < 2 || !s.net.enough("redrive"); n++ {
		id := fmt.Sprint("d", n)
		if err := s.enqueue(s.store, id, 0); err != nil {
			return err
		}
		job, err := s.claimOne(id, 1, nil)
		if err != nil {
			return err
		}
		if err := s.settle(job, lease.Bury, lease.Dead); err != nil {
			return err
		}
		results, err := s.store.Redrive(background(), []string{id})
		if err := errors.Join(append(results, err)...); err != nil {
			return fmt.Errorf("redrive %s: %w", id, err)
		}
		if job, err = s.claimOne(id, 1, nil); err != nil {
			return err
		}
		if err := errors.Join(want("redrives", 1, job.Redrives), s.settle(job, lease.Ack, lease.Nowhere)); err != nil {
			return err
		}
	}
	return s.counters(map[string]int{"enqueued": n, "acked": n, "buried": n, "redriven": n, "died": n, "refused": 0})
}

// leaveClaims claims from the ordinary queue and leaves within a few milliseconds. What it is given it releases; what
// it never saw must come back by itself.
func (o *ordinary) leaveClaims(store *lease.Store) error {
	for n := 0; !o.over(); n++ {
		ctx, leave := context.WithTimeout(background(), time.Duration(n%6)*time.Millisecond)
		got, err := store.Claim(ctx, 3, nil)
		leave()
		switch truth := resolved(err); {
		case err != nil && !errors.Is(truth, lease.ErrNeverRan):
			return fmt.Errorf("a claim that nobody saw: %w, in truth %w", err, truth)
		case len(got.Jobs) > 0:
			verdicts := make([]lease.Verdict, len(got.Jobs))
			for i := range got.Jobs {
				verdicts[i] = lease.Verdict{Op: lease.Release, ID: got.Jobs[i].ID, Token: got.Jobs[i].Token}
				verdicts[i].KeepDue(&got.Jobs[i])
			}
			settled, err := store.Settle(background(), verdicts)
			if err != nil {
				return err
			}
			for i, one := range settled {
				if one.Err != nil {
					return fmt.Errorf("release %s: %w", verdicts[i].ID, one.Err)
				}
			}
		}
		o.pause()
	}
	return nil
}

// deleteQueue deletes jobs wherever they are, and at the end the queue. A job that somebody works on keeps it there.
func deleteQueue(s *operatorSite) error {
	n := 0
	for ; n < 2 || !s.net.enough("delete", "erase"); n++ {
		held, due := fmt.Sprint("x", n), fmt.Sprint("y", n)
		if err := s.enqueue(s.store, held, 0); err != nil {
			return err
		}
		job, err := s.claimOne(held, 1, nil)
		if err != nil {
			return err
		}
		if err := s.enqueue(s.store, due, time.Hour); err != nil {
			return err
		}
		for _, step := range []struct {
			running lease.Running
			want    lease.Deleted
		}{
			{lease.RefuseRunning, lease.Deleted{Processing: 1, Left: 1}},
			{lease.LeaveRunning, lease.Deleted{Jobs: 1, Processing: 1}},
			{lease.EndRunning, lease.Deleted{Ended: 1}},
		} {
			got, err := s.store.DeleteNext(background(), 10, step.running)
			if err := errors.Join(err, want("deletion in step "+string(step.running), step.want, got)); err != nil {
				return err
			}
			if step.running == lease.LeaveRunning {
				left, err := s.store.Erase(background())
				if err := errors.Join(err, want("jobs in the way", int64(1), left)); err != nil {
					return err
				}
			}
		}
		got, err := s.store.Settle(background(), []lease.Verdict{{Op: lease.Ack, ID: job.ID, Token: job.Token}})
		if err != nil || !errors.Is(got[0].Err, lease.ErrGone) {
			return fmt.Errorf("an ack of a job that was deleted: %v, %w", got, err)
		}
	}
	if err := s.counters(map[string]int{"enqueued": 2 * n, "purged": n, "cancelled_processing": n, "refused": n}); err != nil {
		return err
	}
	left, err := s.truth.Erase(background())
	return errors.Join(err, want("jobs in the way", int64(0), left), s.counters(map[string]int{"enqueued": 0}))
}
