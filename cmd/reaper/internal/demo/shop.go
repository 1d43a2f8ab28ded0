package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leaseq/leaseq/idempotency"
	"github.com/leaseq/leaseq/reliable"
)

// A shop handles the sample jobs of a web shop. Its work is waiting, and its side effect a line in the file.
type shop struct {
	rec    *recorder
	orders map[string]*order
}

// newShop returns a handler for every kind of the sample.
func newShop(rec *recorder) (*reliable.Mux, error) {
	all, err := readOrders()
	if err != nil {
		return nil, err
	}
	s := &shop{rec: rec, orders: map[string]*order{}}
	mux := reliable.NewMux()
	known := map[string]bool{}
	for i := range all {
		s.orders[all[i].ID] = &all[i]
		if kind := all[i].Kind; !known[kind] {
			known[kind] = true
			err = errors.Join(err, mux.HandleFunc(kind, s.handle, nil))
		}
	}
	return mux, err
}

func (s *shop) handle(ctx context.Context, job *reliable.Job) error {
	note := line{ID: job.ID, Kind: job.Kind, Attempt: job.Attempt, Failures: job.Failures, Expiries: job.Expiries, Fence: job.Fence()}
	note.Event = isStart
	s.rec.write(note)
	o, ok := s.orders[job.ID]
	if !ok {
		return reliable.Discard(fmt.Errorf("job %s is none of the sample", job.ID))
	}
	pace := o.pace()
	if err := pretend(ctx, pace.before); err != nil {
		return err
	}
	switch {
	case o.Behaviour == poisonous:
		return errors.New("card refused: account closed")
	case o.Behaviour == failsOnce && job.Failures == 0:
		return errors.New("no answer from the provider")
	}
	note.Effect = o.effect()

	// From here on the guard keeps a record of the effect: that it begins, and that it is done.
	answer, err := job.BeginOnce(ctx, note.Effect)
	if err != nil {
		return err
	}
	if answer.InDoubt { // an earlier run began it and did not come to its end: it may have happened
		note.Event = isDoubt
		s.rec.write(note)
	}
	// Run does nothing where the effect is done, and does it again where that is in doubt: a handler that can ask the
	// other side whether it happened does so before.
	_, err = idempotency.Run(ctx, answer, func(ctx context.Context) (done struct{}, err error) {
		// The last look before what cannot be undone. A process that was frozen may wake up here, long after its lease
		// ran out and before its context was told.
		if !time.Now().Before(job.Deadline()) {
			return done, reliable.Release(errors.New("woke up after the lease had run out"))
		}
		note.Event = isEffect
		s.rec.write(note)
		_ = pretend(ctx, pace.inside) // it has happened, and the answer is on its way
		return done, nil
	}, nil)
	if err != nil {
		return err
	}
	_ = pretend(ctx, pace.after) // the effect is done: a lease that is lost now changes nothing
	return nil
}

// pretend works for a time, or until the lease is over.
func pretend(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return reliable.Release(context.Cause(ctx))
	}
}
