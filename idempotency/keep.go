package idempotency

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/leaseq/leaseq/internal/script"
)

// batch is how many records one beat moves.
const batch = 256

// hold gives a permit its context, and has it kept alive: by its job, or by the guard.
func (g *Guard) hold(p *Permit, began time.Time, o *BeginOptions) error {
	parent := o.Context
	if parent == nil {
		parent = context.Background()
	}
	p.ctx, p.cancel = context.WithCancelCause(parent)
	if o.Held != nil {
		return nil
	}
	return g.lookAfter(p, began.Add(g.opts.Lease))
}

// lookAfter has the guard keep a permit from now on.
func (g *Guard) lookAfter(p *Permit, deadline time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		p.cancel(ErrClosed)
		return ErrClosed
	}
	if !time.Now().Before(deadline) { // the answer took longer than the lease
		p.cancel(ErrNotOwner)
		return fmt.Errorf("%q: the answer came after the lease was over: %w", p.key, ErrNotOwner)
	}
	p.moveTo(deadline)
	g.held[p] = struct{}{}
	if !g.beats {
		g.beats = true
		g.all.Go(g.beat)
	}
	return nil
}

// Keep has the guard itself keep the record from now on, where a job's heartbeat did: for a lease that takes another
// record along instead. An error says that the permit was lost meanwhile ([ErrNotOwner]), or that Redis did not answer:
// the job's heartbeat must go on with it then.
func (p *Permit) Keep(ctx context.Context) error {
	g := p.guard
	req := &script.Request{
		Script: keepScript, Args: []any{g.opts.Lease.Milliseconds(), g.opts.Retention.Milliseconds(), p.owner}, Records: []string{p.record},
	}
	if err := g.runner.Repeat(ctx, req); err != nil {
		return err
	}
	if len(req.Reply) != 2 || req.Reply[1] != "o" {
		return fmt.Errorf("keep %q: %w", p.key, ErrNotOwner)
	}
	return g.lookAfter(p, req.SentAt.Add(g.opts.Lease))
}

// moveTo sets the local deadline, never back.
func (p *Permit) moveTo(deadline time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.timer == nil:
		p.deadline = deadline
		p.timer = time.AfterFunc(time.Until(deadline), func() { p.cancel(ErrNotOwner) })
	case deadline.After(p.deadline) && p.timer.Stop():
		p.deadline = deadline
		p.timer.Reset(time.Until(deadline))
	}
}

func (g *Guard) forget(p *Permit) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.held, p)
}

// company is how many rounds of beats can be under way: one in a connection that died without a word gets others beside it.
const company = 4

// beat moves the leases of all permits on every third of a lease, and ends when none is held. A round that failed, or that
// is not answered for a twelfth of a lease, is followed by another one.
func (g *Guard) beat() {
	tick := time.NewTicker(g.opts.Lease / 12)
	defer tick.Stop()
	sent, failed := time.Now(), atomic.Bool{}
	var under atomic.Int64
	for {
		select {
		case <-g.ctx.Done():
			return
		case <-tick.C:
		}
		permits := g.toKeep()
		if permits == nil {
			return
		}
		inTrouble := failed.Load() || under.Load() > 0
		if !inTrouble && time.Since(sent) < g.opts.Lease/3-g.opts.Lease/24 || under.Load() == company {
			continue
		}
		sent = time.Now()
		send := g.runner.SendFirst
		if inTrouble {
			send = g.runner.SendAgain
		}
		under.Add(1)
		g.all.Go(func() {
			defer under.Add(-1)
			for some := range slices.Chunk(permits, batch) {
				failed.Store(!g.keep(some, send))
			}
		})
	}
}

// toKeep lists what is held; nil says that the goroutine is to end.
func (g *Guard) toKeep() []*Permit {
	g.mu.Lock()
	defer g.mu.Unlock()
	var permits []*Permit
	for p := range g.held {
		if p.ctx.Err() != nil {
			delete(g.held, p) // its deadline has passed: somebody else may have it
			continue
		}
		permits = append(permits, p)
	}
	g.beats = permits != nil
	return permits
}

// keep moves some leases on, and reports whether Redis answered.
func (g *Guard) keep(permits []*Permit, send func(context.Context, ...*script.Request)) bool {
	req := &script.Request{Script: keepScript, Args: []any{g.opts.Lease.Milliseconds(), g.opts.Retention.Milliseconds()}}
	for _, p := range permits {
		req.Records = append(req.Records, p.record)
		req.Args = append(req.Args, p.owner)
	}
	trying, cancel := context.WithTimeout(g.ctx, max(g.opts.Lease/4, 100*time.Millisecond))
	defer cancel()
	send(trying, req)
	codes := ""
	if req.Err == nil && len(req.Reply) == 2 {
		codes, _ = req.Reply[1].(string)
	}
	if len(codes) != len(permits) {
		return false
	}
	for i, p := range permits {
		if codes[i] == 'o' {
			p.moveTo(req.SentAt.Add(g.opts.Lease))
			continue
		}
		g.forget(p)
		p.over(ErrNotOwner)
	}
	return true
}
