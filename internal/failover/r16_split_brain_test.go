package failover

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/chaos/record"
)

// Row 16 of the fault table: the primary is cut off from its replica and the Sentinels, and the clients stay with it.
// What it answers until it is demoted is lost; with min-replicas-to-write what it answers in the first seconds. Nothing
// is lost outside of that, and no fence is used twice.
func TestRow16ASplitBrainLosesWhatTheOldPrimaryAnswersUntilItIsDemoted(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	w.deafen()
	r := newTrial(t, shortLease, w.connect)
	r.work(2)
	r.hold(2)
	r.produce("patient", traffic{})
	r.produce("impatient", traffic{patience: 400 * time.Millisecond})
	var falls []fall
	for i := range shape(1, 5) {
		primary := i % 2
		r.more(100, 50)
		f := fall{from: covered(t, w.admins[primary], w.admins[1-primary]), at: time.Now()}
		loses := r.begin("split brain", f.from, record.Loses)
		w.split(primary)
		w.promoted(1 - primary)
		f.up = time.Now()
		r.more(100, 50) // by the old one
		w.heal(primary)
		f.until, f.resumed = time.Now(), time.Now()
		loses(f.until)
		falls = append(falls, f)
		r.more(50, 50)
	}
	close(r.release)
	f := r.measure("row 16, clients stay", r.finish(), falls)
	require.NotZero(t, f.lost, "the split did not bite")
	w.forgot(t, r)
}

func TestRow16MinReplicasToWriteBoundsASplitBrain(t *testing.T) {
	t.Parallel()
	w := newWatched(t, "--min-replicas-to-write", "1", "--min-replicas-max-lag", "1")
	w.deafen()
	r := newTrial(t, shortLease, w.connect)
	r.work(2)
	r.hold(2)
	r.produce("patient", traffic{})
	r.produce("impatient", traffic{patience: 400 * time.Millisecond})
	var falls []fall
	for i := range shape(1, 5) {
		primary := i % 2
		r.more(100, 50)
		before := w.refusals(primary)
		f := fall{from: covered(t, w.admins[primary], w.admins[1-primary]), at: time.Now()}
		f.until = f.at.Add(minReplicasBound)
		outage := r.begin("split brain", f.at, record.Outage)
		r.begin("what was answered before it was noticed", f.from, record.Loses)(f.until)
		w.split(primary)
		w.promoted(1 - primary)
		f.up = time.Now()
		r.eventually("the old primary refuses writes", func() bool { return w.refusals(primary) > before })
		r.eventually("the bound is over", func() bool { return time.Now().After(f.until) })
		w.heal(primary)
		f.resumed = time.Now()
		outage(f.resumed)
		falls = append(falls, f)
		r.more(50, 50)
	}
	close(r.release)
	f := r.measure("row 16, min-replicas", r.finish(), falls)
	require.NotZero(t, f.lost, "the split did not bite")
	w.forgot(t, r)
}

// minReplicasBound is for how long a primary takes writes without a replica, with a min-replicas-max-lag of 1: an ack of
// the replica is up to a second old at the split, is good for less than two whole seconds, and is looked at once a second.
const minReplicasBound = 3 * time.Second

// TestRow16ClientsThatHearOfTheNewPrimaryLeaveTheOldOneAtOnce: the Sentinels tell the clients, while the old primary, which
// nobody can demote, still answers them. Leases go on, on the new one.
func TestRow16ClientsThatHearOfTheNewPrimaryLeaveTheOldOneAtOnce(t *testing.T) {
	t.Parallel()
	const held = 4
	w := newWatched(t)
	r := newTrial(t, 3*time.Second, w.connect) // the Sentinels are done within half of it, or there is a grace
	r.work(2)
	r.hold(held)
	r.produce("patient", traffic{})
	r.produce("impatient", traffic{patience: 400 * time.Millisecond})
	r.more(100, 50)
	f := fall{from: covered(t, w.admins[0], w.admins[1]), at: time.Now()}
	loses := r.begin("split brain", f.from, record.Loses)
	w.split(0)
	w.promoted(1)
	f.up = time.Now()
	f.until, f.resumed = f.up.Add(time.Second), f.up // by then all of them have heard it
	loses(f.until)
	require.Never(t, func() bool { return r.held.Load() > held || r.broken.Load() > 0 }, r.lease+time.Second, every,
		"a lease was not extended on the new primary")
	r.more(50, 50)
	w.heal(0)
	close(r.release)
	r.measure("row 16, clients hear of it", r.finish(), []fall{f})
	w.forgot(t, r)
}
