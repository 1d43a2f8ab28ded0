package reliable

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	defaultBackoffBase = time.Second
	defaultBackoffCap  = 5 * time.Minute
	minBackoff         = time.Millisecond
)

// Backoff says how long a failed job waits for its next try: exponential with full jitter. After the n-th failure
// the delay is drawn evenly from more than 0 up to Base·2ⁿ⁻¹, and at most up to Cap. The even draw spreads jobs that
// failed together, at the price that a single delay can be short; see Marc Brooker, "Exponential Backoff And Jitter"
// (AWS Architecture Blog, 2015).
type Backoff struct {
	// Base is the longest delay after the first failure, at least 1 ms. 0: 1 s.
	Base time.Duration
	// Cap is the longest delay after any number of failures, at least Base. 0: 5 min.
	Cap time.Duration
}

// withDefaults returns b with its zero fields filled.
func (b Backoff) withDefaults() Backoff {
	if b.Base == 0 {
		b.Base = defaultBackoffBase
	}
	if b.Cap == 0 {
		b.Cap = defaultBackoffCap
	}
	return b
}

// validate checks b as withDefaults completes it, and reports everything that is wrong.
func (b Backoff) validate() error {
	full := b.withDefaults()
	var errs []error
	if full.Base < minBackoff {
		errs = append(errs, fmt.Errorf("back-off Base is %v: want at least %v, or 0 for %v", full.Base, minBackoff, defaultBackoffBase))
	}
	if full.Cap < minBackoff {
		errs = append(errs, fmt.Errorf("back-off Cap is %v: want at least %v, or 0 for %v", full.Cap, minBackoff, defaultBackoffCap))
	}
	if full.Base > full.Cap {
		errs = append(errs, fmt.Errorf("back-off Base %s is longer than its Cap %s: want Base ≤ Cap",
			orDefault(b.Base, defaultBackoffBase), orDefault(b.Cap, defaultBackoffCap)))
	}
	return errors.Join(errs...)
}

// orDefault writes d, and says so where the default stands in for it.
func orDefault(d, standard time.Duration) string {
	if d == 0 {
		return fmt.Sprintf("%v (the default)", standard)
	}
	return d.String()
}

// ceiling returns the longest delay after the given number of failures: Cap at the latest when doubling would pass
// it, so that nothing overflows. Numbers below 1 count as 1. b must be valid and have its defaults.
func (b Backoff) ceiling(failures int) time.Duration {
	d := b.Base
	for n := 1; n < failures; n++ {
		if d > b.Cap/2 {
			return b.Cap
		}
		d *= 2
	}
	return d
}

// delay draws the delay after the given number of failures.
func (b Backoff) delay(failures int) time.Duration { return drawUpTo(b.ceiling(failures)) }

// drawUpTo returns an evenly drawn duration in (0, most]. most must be positive.
func drawUpTo(most time.Duration) time.Duration {
	return 1 + time.Duration(rand.Int64N(int64(most)))
}
