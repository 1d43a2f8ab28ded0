package lease

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
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
	Concurrency   *int           // jobs in processing, of all holders together, at which a claim gives no more; default, and 0: none
	Rate          *int           // jobs started in each RateInterval, by all holders together; default, and 0: no limit
	RateInterval  time.Duration  // default 1 s
	MaxDelay      *time.Duration // how far ahead a due time may be asked for; default 7 days
	DeadKeep      *int           // dead jobs that sweepers keep, the newest; default: all
	DeadAge       time.Duration  // how long they keep a dead job; default: for ever
	DoneAge       time.Duration  // how long the ID of an acked job is taken and its result kept, in whole ms, counted from the ack; default: not at all
	DoneKeep      *int           // how many of these sweepers keep, the newest; default: all
}

// NoLimit in a field of a Policy takes the limit away that was published before: then the built-in default holds. No other
// number below zero is taken for it.
const NoLimit = -1 << 31

// Publish makes p the queue's policy, but for the fields that are pinned, if it differs from what is published. It is safe to
// run twice; repeated until answered, refused, or ctx ends. changed says that it differed. A nil p, and one with nothing
// set, publishes nothing. What was published, and by which holder, is remembered for ten minutes: see [PolicyState].
func (s *Store) Publish(ctx context.Context, p *Policy) (changed bool, err error) {
	return s.publish(ctx, "", p)
}

// Restore publishes p as Publish does where no deployment has published, as after a FLUSHALL, and changes nothing where one
// has. It is also how a deployment says from time to time that it lives.
func (s *Store) Restore(ctx context.Context, p *Policy) (changed bool, err error) {
	return s.publish(ctx, "absent", p)
}

// Pin makes the fields that are set in p hold until they are unpinned, whatever deployments publish. Numbers are refused
// that no deployment could have, too. It is safe to run twice; repeated until answered, refused, or ctx ends. changed says
// that something else held, or was not pinned.
func (s *Store) Pin(ctx context.Context, p *Policy) (changed bool, err error) {
	if p == nil || len(p.fields()) == 0 {
		return false, errors.New("pin the queue's policy: nothing is set: want at least one limit")
	}
	if err := p.CheckPin(); err != nil {
		return false, fmt.Errorf("pin the queue's policy: %w", err)
	}
	return s.policy(ctx, "pin", append([]any{"pin", "", ""}, p.fields()...))
}

// Unpin has what deployments published last hold again, of the named limits, as "max_retries", or of all that are pinned.
// changed says that one was pinned. As Pin it is safe to run twice.
func (s *Store) Unpin(ctx context.Context, names ...string) (changed bool, err error) {
	args := []any{"unpin", "", ""}
	for _, name := range names {
		l, err := limitNamed(name)
		if err != nil {
			return false, fmt.Errorf("unpin the queue's policy: %w", err)
		}
		args = append(args, l.field, "")
	}
	if len(names) == 0 {
		for i := range limits {
			args = append(args, limits[i].field, "")
		}
	}
	return s.policy(ctx, "unpin", args)
}

func (s *Store) publish(ctx context.Context, version string, p *Policy) (changed bool, err error) {
	if p == nil {
		p = &Policy{}
	}
	if err := p.check(); err != nil {
		return false, fmt.Errorf("publish the queue's policy: %w", err)
	}
	fields := p.fields()
	if len(fields) == 0 {
		return false, nil
	}
	return s.policy(ctx, "publish", append([]any{version, s.holder, digest(fields)}, fields...))
}

func (s *Store) policy(ctx context.Context, op string, args []any) (changed bool, err error) {
	req := &script.Request{Script: policyScript, Args: args}
	if err := s.repeat(ctx, req); err != nil {
		return false, fmt.Errorf("%s the queue's policy: %w", op, err)
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

// digest tells apart what deployments publish.
func digest(fields []any) string {
	sum := sha256.Sum256(fmt.Appendln(nil, fields...))
	return hex.EncodeToString(sum[:6])
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

// CheckPin reports everything for which [Store.Pin] would refuse the policy. It contacts nobody.
func (p *Policy) CheckPin() error { return errors.Join(p.check(), p.checkRange()) }

// checkRange wants numbers that make sense for each limit alone, and with each other.
func (p *Policy) checkRange() error {
	var errs []error
	for i := range limits {
		l := &limits[i]
		if n, ok := l.get(p); ok && n >= 0 && (n < l.least || n > l.most) {
			errs = append(errs, fmt.Errorf("%s is %s: want %s", l.name, l.text(n), l.wants()))
		}
	}
	for _, pair := range [][2]string{{"lease", "max_lease"}, {"backoff_base", "backoff_cap"}, {"expiry_backoff_base", "expiry_backoff_cap"}} {
		low, high := mustLimit(pair[0]), mustLimit(pair[1])
		a, ok1 := low.get(p)
		b, ok2 := high.get(p)
		if ok1 && ok2 && b >= 0 && a > b {
			errs = append(errs, fmt.Errorf("%s is %s, longer than %s, %s: want it shorter, or as long", low.name, low.text(a), high.name, high.text(b)))
		}
	}
	return errors.Join(errs...)
}

// Set sets one limit from the texts in which people write it: its name, as "lease", "max_retries" or "payload_limit", and a
// duration as 30s, a whole number, or none. The rate can have its interval with it, as 100/1s. The error says what the names
// are, or what is wanted.
func (p *Policy) Set(name, value string) error {
	l, err := limitNamed(name)
	if err != nil {
		return err
	}
	if rate, interval, both := strings.Cut(value, "/"); both && name == "rate" {
		return errors.Join(p.Set(name, rate), p.Set("rate_interval", interval))
	}
	n, err := l.parse(value)
	if err == nil {
		l.set(p, n)
	}
	return err
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
