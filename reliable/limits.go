package reliable

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/leaseq/leaseq/lease"
)

const (
	maxLength  = 1_000_000_000
	maxTimeout = 365 * 24 * time.Hour
)

// validateLimits checks the limits that are published for all.
func (o *QueueOptions) validateLimits() error {
	var errs []error
	between := func(name string, d, least, most time.Duration) {
		if d != 0 && (d < least || d > most) {
			errs = append(errs, fmt.Errorf("%s is %v: want %v to %v, or 0 for the default", name, d, least, most))
		}
	}
	between("MaxDelay", o.MaxDelay, time.Millisecond, maxAhead)
	between("JobTimeout", o.JobTimeout, time.Millisecond, maxTimeout)
	between("MaxLease", o.MaxLease, o.Lease, maxLease)
	if n := o.MaxLength; n != nil && (*n < 0 || *n > maxLength) {
		errs = append(errs, fmt.Errorf("MaxLength is %d: want 0 to %d", *n, maxLength))
	}
	between("DeadAge", o.DeadAge, time.Second, maxAhead)
	if n := o.DeadKeep; n != nil && (*n < 0 || *n > maxLength) {
		errs = append(errs, fmt.Errorf("DeadKeep is %d: want 0 to %d", *n, maxLength))
	}
	errs = append(errs, o.validateDone())
	if n := o.HeaderLimit; n != nil && (*n < 0 || *n > MaxHeaders) {
		errs = append(errs, fmt.Errorf("HeaderLimit is %d: want 0 to %d bytes", *n, MaxHeaders))
	}
	if n := o.Concurrency; n < 0 || n > maxLength {
		errs = append(errs, fmt.Errorf("Concurrency is %d: want 1 to %d, or 0 for no limit", n, maxLength))
	}
	if n := o.Rate; n < 0 || n > maxLimit {
		errs = append(errs, fmt.Errorf("Rate is %d: want 1 to %d, or 0 for no limit", n, maxLimit))
	}
	between("RatePer", o.RatePer, time.Millisecond, maxLease)
	if o.RatePer != 0 && o.Rate == 0 {
		errs = append(errs, fmt.Errorf("RatePer is %v without a Rate: want both, or neither", o.RatePer))
	}
	return errors.Join(errs...)
}

// validateDone checks for how long finished jobs are kept, and how many.
func (o *QueueOptions) validateDone() error {
	var errs []error
	if d := o.DoneAge; d < 0 || d > maxAhead {
		errs = append(errs, fmt.Errorf("DoneAge is %v: want 1ms to %v, or 0 to keep nothing", d, maxAhead))
	}
	switch n := o.DoneKeep; {
	case n != nil && (*n < 0 || *n > maxLength):
		errs = append(errs, fmt.Errorf("DoneKeep is %d: want 0 to %d", *n, maxLength))
	case n != nil && o.DoneAge == 0:
		errs = append(errs, fmt.Errorf("DoneKeep is %d without a DoneAge: want both, or neither", *n))
	}
	return errors.Join(errs...)
}

// policy is what the options publish: all of it, so that a limit which an earlier deployment had is gone.
func (o *QueueOptions) policy() *lease.Policy {
	none := new(lease.NoLimit)
	p := &lease.Policy{
		Lease: o.Lease, MaxRetries: o.MaxRetries, MaxExpiries: o.MaxExpiries,
		BackoffBase: o.Backoff.Base, BackoffCap: o.Backoff.Cap, ExpiryBackoff: lease.NoLimit, ExpiryCap: lease.NoLimit,
		PayloadLimit: o.PayloadLimit, HeaderLimit: cmp.Or(o.HeaderLimit, none), MaxLength: cmp.Or(o.MaxLength, none),
		MaxDelay: new(cmp.Or(o.MaxDelay, DefaultMaxDelay)), JobTimeout: cmp.Or(o.JobTimeout, lease.NoLimit), MaxLease: cmp.Or(o.MaxLease, lease.NoLimit),
		DeadKeep: cmp.Or(o.DeadKeep, none), DeadAge: cmp.Or(o.DeadAge, lease.NoLimit),
		DoneKeep: cmp.Or(o.DoneKeep, none), DoneAge: cmp.Or(o.DoneAge, lease.NoLimit),
	}
	p.Concurrency, p.Rate = new(cmp.Or(o.Concurrency, lease.NoLimit)), new(cmp.Or(o.Rate, lease.NoLimit))
	p.RateInterval = cmp.Or(o.RatePer, lease.NoLimit)
	if o.ExpiryBackoff != (Backoff{}) {
		full := o.ExpiryBackoff.withDefaults()
		p.ExpiryBackoff, p.ExpiryCap = full.Base, full.Cap
	}
	return p
}
