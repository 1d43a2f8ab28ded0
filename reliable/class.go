package reliable

import (
	"context"
	"fmt"

	"github.com/leaseq/leaseq/lease"
)

// DeadClass says in one word why a job is dead.
type DeadClass = lease.Class

// The classes of dead jobs. They are stored with a job's last error; of a job that died where nothing was stored the
// class is taken from its record, counters and limits.
const (
	Discarded      = lease.ClassDiscarded   // its handler, or who held it, said that it is of no use
	RetriesUsedUp  = lease.ClassRetries     // it failed once more than MaxRetries
	LeasesExpired  = lease.ClassExpiries    // its leases ran out once more than MaxExpiries
	BadPayload     = lease.ClassBadPayload  // its payload does not decode into its handler's type
	Undecodable    = lease.ClassUndecodable // its record does not decode
	NoRecord       = lease.ClassNoRecord    // its record was gone
	NoHandler      = lease.ClassNoHandler   // nobody had a handler for its kind
	TooLate        = lease.ClassTooLate     // its deadline had passed before it could start
	BuriedByHand   = lease.ClassByHand      // an operator put it there
	noClass        = lease.ClassUnknown
	expiredOnce    = "lease expired once" // what a sweeper writes, after so many expiries
	expiredOften   = "lease expired %d times"
	reasonNoRecord = "no record" // what a claim and a sweeper write, as attempt 0
)

// DeadClasses lists all classes.
func DeadClasses() []DeadClass { return lease.Classes() }

// classify finds the classes of dead jobs. The limits that the queue has published are read only where they are needed.
func (q *Queue) classify(ctx context.Context, infos []Info) error {
	var limits *lease.Policy
	for i := range infos {
		info := &infos[i]
		if info.Place != Dead {
			continue
		}
		if info.Class = info.toldClass(); info.Class != noClass {
			continue
		}
		if limits == nil && info.MaxRetries == nil {
			published, _, err := q.store.Published(ctx)
			if err != nil {
				return fmt.Errorf("queue %s: its limits: %w", q.name, err)
			}
			limits = &published
		}
		info.Class = RetriesUsedUp
		if info.Failures <= info.maxRetries(limits) {
			info.Class = Discarded
		}
	}
	return nil
}

// toldClass is the class that is stored, or that follows from what only our scripts and an unreadable record leave.
func (info *Info) toldClass() DeadClass {
	last, ok := info.LastError()
	expired := expiredOnce
	if info.Expiries > 1 {
		expired = fmt.Sprintf(expiredOften, info.Expiries)
	}
	switch {
	case last.Class != noClass:
		return last.Class
	case info.Undecoded != nil:
		return Undecodable
	case info.Kind == "" || ok && last.Attempt == 0 && last.Reason == reasonNoRecord:
		return NoRecord
	case ok && info.Expiries > 0 && last.Reason == expired:
		return LeasesExpired
	}
	return noClass
}

func (info *Info) maxRetries(published *lease.Policy) int {
	switch {
	case info.MaxRetries != nil:
		return *info.MaxRetries
	case published.MaxRetries != nil:
		return *published.MaxRetries
	}
	return DefaultMaxRetries
}
