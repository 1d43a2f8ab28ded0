package reliable

import (
	"errors"
	"fmt"

	"github.com/leaseq/leaseq/lease"
)

// ending is what is known when a handler has returned: why its context ended, if it did, and how its lease stands.
type ending struct {
	cause    error // of the handler's context; nil: it was not cancelled
	state    lease.HoldState
	noExtend bool // nobody renews: as the Consumer's options say, or since the job's time was over
}

// errLeaseRanOut is the reason of a job that took longer than its lease where nobody renews.
var errLeaseRanOut = errors.New("lease ran out")

// decide is the table of what is settled: cause × returned value.
//
//	                 nil    Discard   RetryAfter   Release    other error
//	none             ack    bury      nack at d    release    nack
//	job timeout      ack    bury      nack at d    release    nack
//	shutdown         ack    bury      nack at d    release    release
//	local deadline   ack    bury      nack at d    release    release; nack `lease ran out` where nobody renews
//	                 (after one of the two above it is as there, but for the reason)
//	lost             as none: sent once, refused, nothing is written
//	cancelled        as none: any settle removes the job
func decide(v verdict, e ending) verdict {
	plain := v.op == opNack && !v.hasDelay
	switch {
	case !plain:
		return v
	case errors.Is(e.cause, ErrShutdown):
		return verdict{op: opRelease, err: v.err}
	case e.state == lease.HoldOverdue && e.noExtend:
		return verdict{op: opNack, err: fmt.Errorf("%w: %w", errLeaseRanOut, v.err)}
	case e.state == lease.HoldOverdue:
		return verdict{op: opRelease, err: v.err}
	}
	return v
}

// endingOf gathers what is known of a job whose handler has returned.
func endingOf(cause error, hold *lease.Hold) ending {
	return ending{noExtend: !hold.Extending(), state: hold.State(), cause: cause}
}
