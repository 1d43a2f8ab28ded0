package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leaseq/leaseq/internal/script"
)

// A Policy is what a queue publishes: the limits that every script and every sweeper follows. Unset fields keep what
// was published before, or the built-in default.
type Policy struct {
	Lease         time.Duration // default 15 s
	MaxRetries    *int          // default 20
	MaxExpiries   *int          // default 5
	BackoffBase   time.Duration // of retries; for readers: the holder computes the delay; default 1 s
	BackoffCap    time.Duration // default 5 min
	ExpiryBackoff time.Duration // before a job whose lease ran out is due again, doubled each time; default 0: at once
	ExpiryCap     time.Duration // of that; default 0
	PayloadLimit  int           // bytes; unset: each producer's own option alone
}

// Publish makes p the queue's policy, if it differs from what is published. It is safe to run twice; repeated until
// answered, refused, or ctx ends. changed says that it differed. A nil p, and one with nothing set, publishes nothing.
func (s *Store) Publish(ctx context.Context, p *Policy) (changed bool, err error) {
	return s.publish(ctx, "", p)
}

// Restore publishes p as Publish does where nothing is published, as after a FLUSHALL, and changes nothing where
// something is.
func (s *Store) Restore(ctx context.Context, p *Policy) (changed bool, err error) {
	return s.publish(ctx, "absent", p)
}

func (s *Store) publish(ctx context.Context, version string, p *Policy) (changed bool, err error) {
	if p == nil {
		p = &Policy{}
	}
	if err := p.check(); err != nil {
		return false, fmt.Errorf("publish the queue's policy: %w", err)
	}
	req := &script.Request{Script: policyScript, Args: append([]any{version}, p.fields()...)}
	if len(req.Args) == 1 {
		return false, nil
	}
	if err := s.repeat(ctx, req); err != nil {
		return false, fmt.Errorf("publish the queue's policy: %w", err)
	}
	if len(req.Reply) != 3 || req.Status() != "OK" {
		return false, odd(policyScript, req.Reply)
	}
	flag, ok := req.Reply[2].(int64)
	if !ok {
		return false, odd(policyScript, req.Reply)
	}
	return flag == 1, nil
}

func (p *Policy) check() error {
	var errs []error
	least := func(name string, value, least any, ok bool) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s is %v: want %v or more", name, value, least))
		}
	}
	for name, d := range map[string]time.Duration{
		"lease": p.Lease, "backoff_base": p.BackoffBase, "backoff_cap": p.BackoffCap,
		"expiry_backoff_base": p.ExpiryBackoff, "expiry_backoff_cap": p.ExpiryCap,
	} {
		least(name, d, 0, d >= 0)
	}
	for name, n := range map[string]*int{"max_retries": p.MaxRetries, "max_expiries": p.MaxExpiries, "payload_limit": &p.PayloadLimit} {
		if n != nil {
			least(name, *n, 0, *n >= 0)
		}
	}
	return errors.Join(errs...)
}

func (p *Policy) fields() []any {
	var out []any
	duration := func(name string, d time.Duration) {
		if d > 0 {
			out = append(out, name, ceilMillis(d))
		}
	}
	number := func(name string, n *int) {
		if n != nil {
			out = append(out, name, *n)
		}
	}
	duration("lease_ms", p.Lease)
	number("max_retries", p.MaxRetries)
	number("max_expiries", p.MaxExpiries)
	duration("backoff_base_ms", p.BackoffBase)
	duration("backoff_cap_ms", p.BackoffCap)
	duration("expiry_backoff_base_ms", p.ExpiryBackoff)
	duration("expiry_backoff_cap_ms", p.ExpiryCap)
	if p.PayloadLimit > 0 {
		out = append(out, "payload_limit", p.PayloadLimit)
	}
	return out
}
