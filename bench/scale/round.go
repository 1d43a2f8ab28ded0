package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/leaseq/leaseq/lease"
)

// The calls that are measured.
const (
	opEnqueue = "enqueue"
	opLast    = "enqueue last" // due after all others, as with one delay for all
	opClaim   = "claim"
	opExtend  = "extend"
	opAck     = "ack"
	opNack    = "nack"
	opExpire  = "expire"
)

var ops = []string{opEnqueue, opLast, opClaim, opExtend, opAck, opNack, opExpire}

// round makes each call once or twice with n jobs, and leaves as many in due and in processing as there were.
func (c *crowd) round(ctx context.Context, m *meter, n int) error {
	steps := []func() error{
		func() error { return c.enqueueOne(ctx, m, n) },
		func() error { return c.claimOne(ctx, m, n, longLease+rand.N(spread), true) },
		func() error { return c.extendOne(ctx, m, n) },
		func() error { return c.nackOne(ctx, m, n) },
		func() error { return c.enqueueLast(ctx, m, n) },
		func() error { return c.enqueueOne(ctx, m, n) },
		func() error { return c.expireOne(ctx, m, n) },
		func() error { return c.claimOne(ctx, m, n, longLease+rand.N(spread), true) },
		func() error { return c.ackOne(ctx, m, n) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (c *crowd) enqueueOne(ctx context.Context, m *meter, n int) error {
	items := c.items(n)
	return m.call(ctx, opEnqueue, n, func() error { return c.enqueue(ctx, items) })
}

// enqueueLast enqueues behind everything, and removes it again.
func (c *crowd) enqueueLast(ctx context.Context, m *meter, n int) error {
	items, ids := c.items(n), make([]string, n)
	for i := range items {
		items[i].At, items[i].Delay = time.Time{}, 3*spread
		ids[i] = items[i].ID
	}
	if err := m.call(ctx, opLast, n, func() error { return c.enqueue(ctx, items) }); err != nil {
		return err
	}
	return c.purge(ctx, m, ids)
}

func (c *crowd) purge(ctx context.Context, m *meter, ids []string) error {
	results, err := c.store.Purge(ctx, lease.Due, ids)
	return errors.Join(append(results, err, m.skip(ctx))...)
}

func (c *crowd) claimOne(ctx context.Context, m *meter, n int, length time.Duration, keep bool) error {
	var got lease.Claimed
	err := m.call(ctx, opClaim, n, func() (err error) {
		got, err = c.store.Claim(ctx, n, &lease.ClaimOptions{Lease: length})
		return err
	})
	if err == nil && len(got.Jobs) != n && len(c.record)*n < lease.MaxBytes/2 {
		err = fmt.Errorf("a claim of %d gave %d jobs", n, len(got.Jobs))
	}
	if keep {
		c.keep(got.Jobs)
	}
	return err
}

func (c *crowd) extendOne(ctx context.Context, m *meter, n int) error {
	held, length := c.some(n), 3*longLease+rand.N(spread)
	return m.call(ctx, opExtend, n, func() error {
		got, err := c.store.Extend(ctx, length, held)
		return errors.Join(append(got.Results, err)...)
	})
}

func (c *crowd) ackOne(ctx context.Context, m *meter, n int) error {
	return c.settle(ctx, m, opAck, c.verdicts(n, lease.Ack))
}

// nackOne puts jobs back to any time of the next hour, and then removes them, so that due does not fill with jobs that
// nothing claims.
func (c *crowd) nackOne(ctx context.Context, m *meter, n int) error {
	verdicts := c.verdicts(n, lease.Nack)
	ids := make([]string, n)
	for i := range verdicts {
		verdicts[i].Delay, verdicts[i].Reason = time.Minute+rand.N(spread), "connection refused"
		ids[i] = verdicts[i].ID
	}
	if err := c.settle(ctx, m, opNack, verdicts); err != nil {
		return err
	}
	return c.purge(ctx, m, ids)
}

func (c *crowd) verdicts(n int, op lease.Op) []lease.Verdict {
	out := make([]lease.Verdict, n)
	for i, held := range c.take(n) {
		out[i] = lease.Verdict{Op: op, ID: held.ID, Token: held.Token}
	}
	return out
}

func (c *crowd) settle(ctx context.Context, m *meter, op string, verdicts []lease.Verdict) error {
	return m.call(ctx, op, len(verdicts), func() error {
		done, err := c.store.Settle(ctx, verdicts)
		for i := range done {
			err = errors.Join(err, done[i].Err)
		}
		return err
	})
}

// expireOne has leases run out, and ends them.
func (c *crowd) expireOne(ctx context.Context, m *meter, n int) error {
	if err := c.claimOne(ctx, m, n, 0, false); err != nil {
		return err
	}
	select {
	case <-time.After(shortLease + 5*time.Millisecond):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return m.call(ctx, opExpire, n, func() error {
		got, err := c.store.Expire(ctx, n, true)
		if err == nil && got.ToDue != n {
			err = fmt.Errorf("%d of %d leases were ended", got.ToDue, n)
		}
		return err
	})
}
