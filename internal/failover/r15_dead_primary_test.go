package failover

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/chaos/record"
)

// Row 15 of the fault table: a primary dies, and its asynchronous replica takes its place. What was written in the last
// moment, which the replica did not have yet, may be lost; nothing else is, and no fence is used twice.
func TestRow15ThePrimaryIsKilledAndAReplicaTakesItsPlace(t *testing.T) {
	for name, c := range map[string]struct {
		delay time.Duration // of the stream to the replica
		wait  bool          // producers ask whether the replica has their jobs
		large bool          // at full numbers only
	}{
		"at once":                        {large: true},
		"20 ms of delay":                 {delay: 20 * time.Millisecond},
		"20 ms of delay, WAIT 1 checked": {delay: 20 * time.Millisecond, wait: true},
	} {
		if c.large && !shape(false, true) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWatched(t)
			r := newTrial(t, shortLease, w.connect)
			for _, link := range w.links {
				link.Delay(c.delay)
			}
			r.work(2)
			r.hold(2)
			r.produce("patient", traffic{wait: c.wait})
			r.produce("impatient", traffic{patience: 400 * time.Millisecond, wait: c.wait})
			var falls []fall
			before, after := shape[int64](150, 1500), int64(50)
			if c.wait { // 40 ms each, and 200 ms each while there is no replica
				before, after = shape[int64](50, 300), 5
			}
			for i := range shape(1, 10) {
				if i > 0 {
					w.back(1 - i%2)
				}
				r.more(before, before/2)
				falls = append(falls, r.killPrimary(w, i%2))
				r.more(after, after)
			}
			close(r.release)
			f := r.measure("row 15, "+name, r.finish(), falls)
			switch {
			case c.wait:
				r.surelyKept(shape(20, 500))
			case c.delay > 0:
				require.GreaterOrEqual(t, f.lost, shape[int64](0, 1), "the delay did not bite")
			}
		})
	}
}

// killPrimary kills a primary in the midst of work, and waits until the other server has its place.
func (r *trial) killPrimary(w *watched, primary int) fall {
	r.t.Helper()
	f := fall{from: covered(r.t, w.admins[primary], w.admins[1-primary]), at: time.Now()}
	outage := r.begin("primary killed", f.at, record.Outage)
	loses := r.begin("what the replica had not got", f.from, record.Loses)
	w.links[primary].Cut() // what is on its way to the replica dies with it
	require.NoError(r.t, w.servers[primary].Kill())
	w.promoted(1 - primary)
	f.up = time.Now()
	f.until, f.resumed = f.up, f.up
	loses(f.up)
	outage(f.up)
	return f
}
