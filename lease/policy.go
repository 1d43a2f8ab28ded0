package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leaseq/leaseq/internal/script"
)

// A Policy is what a queue publishes: the limits that every script, every sweeper and every consumer follows. Unset fields
// keep what was published before, or the built-in default. NoLimit takes away what was published before, where that can be.
type Policy struct {
	Lease         time.Duration  // default 15 s
	MaxLease      time.Duration  // the longest lease that may be asked for, by a claim or an extend; default: none. The library keeps it
	JobTimeout    time.Duration  // how long one run may take at most, whatever a consumer's own timeouts are; default: none. Consumers keep it
	MaxRetries    *int           // default 20
	MaxExpiries   *int           // default 5
	BackoffBase   time.Duration  // of retries; consumers keep it; default 1 s
	BackoffCap    time.Duration  // default 5 min
	ExpiryBackoff time.Duration  // before a job whose lease ran out is due again, doubled each time; default 0: at once
	ExpiryCap     time.Duration  // of that; default 0
	PayloadLimit  int            // bytes; unset: each producer's own option alone
	HeaderLimit   *int           // bytes of names and values together; default 4 KiB, which is the most
	MaxLength     *int           // jobs in due and processing, above which an enqueue is refused; default: none
	MaxDelay      *time.Duration // how far ahead a due time may be asked for; default 7 days
}

// NoLimit in a field of a Policy takes the limit away that was published before: then the built-in default holds. No other
// number below zero is taken for it.
const NoLimit = -1 << 31

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

// check wants no number below zero but NoLimit, where that can be.
func (p *Policy) check() error {
	var errs []error
	for i := range limits {
		l := &limits[i]
		switch n, ok := l.get(p); {
		case !ok || n >= 0 || n == NoLimit && l.optional:
		case n == NoLimit:
			errs = append(errs, fmt.Errorf("%s cannot be taken away: want %s or more", l.name, l.text(0)))
		default:
			errs = append(errs, fmt.Errorf("%s is %s: want 0 or more", l.name, l.text(n)))
		}
	}
	return errors.Join(errs...)
}

// fields are the fields of the policy's HASH and their values.
func (p *Policy) fields() []any {
	var out []any
	for i := range limits {
		if n, ok := limits[i].get(p); ok {
			out = append(out, limits[i].field, limitText(n))
		}
	}
	return out
}
