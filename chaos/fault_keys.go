package chaos

import (
	"context"
	"time"

	"github.com/leaseq/leaseq/chaos/record"
	"github.com/leaseq/leaseq/internal/keys"
)

// deletable are the keys without which a queue gets along, so that a run with them missing can be judged in full:
//
//   - sessions: a call that is repeated is not known any more, so its outcome stays unknown;
//   - wake: an idle consumer looks at its fallback;
//   - holders: names for people;
//   - fence: the next one is the clock's;
//   - sweep: the next sweep takes it for a long gap, and spares holders for a lease, as if no sweeper had run.
//
// What jobs are made of is not among them, and nor are the counters, with which the checks reckon, and the policy, without
// which leases have another length until the next worker publishes it.
var deletable = []string{"sessions", "wake", "holders", "fence", "sweep"}

// keyFaults are those of keys that somebody deletes by hand: row 14.
func keyFaults() []Fault {
	return []Fault{{
		Name: "keys-deleted", Row: 14, Lane: Server,
		What:   "somebody deletes keys of the queue that hold no jobs: sessions, wake, holders, fence, sweep",
		Leases: [2]float64{0.3, 0.8}, Inject: deleteKeys,
	}}
}

// deleteKeys deletes one of them after the other, each once.
func deleteKeys(ctx context.Context, in *Injection) error {
	partition, err := keys.New(in.Prefix(), in.Queue(), 0)
	if err != nil {
		return err
	}
	in.Begin("", 0, record.Outage, record.Lossy)
	order := in.Rand.Perm(len(deletable))
	for _, i := range order {
		n, err := in.Admin().Del(ctx, partition.Key(deletable[i])).Result()
		if err != nil && ctx.Err() == nil {
			return err
		}
		if n > 0 {
			in.Bites()
		}
		in.Wait(ctx, in.For/time.Duration(len(order)))
	}
	return nil
}
