//go:build unix

package failover

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/chaos/record"
)

// Row 17 of the fault table: the primary stands still until another one has its place, and then goes on. What it works
// off of its sockets, and what it answers until it is demoted, is lost; what the new one was told meanwhile is not.
func TestRow17ThePrimaryIsStoppedPastTheFailoverAndGoesOn(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
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
		outage := r.begin("SIGSTOP of the primary", f.at, record.Outage)
		loses := r.begin("what the replica had not got", f.from, record.Loses)
		require.NoError(t, w.servers[primary].Freeze())
		w.promoted(1 - primary)
		f.up = time.Now()
		f.until, f.resumed = f.up, f.up
		loses(f.up)
		outage(f.up)
		r.more(100, 50)
		loses = r.begin("SIGCONT of the old primary", time.Now(), record.Loses)
		require.NoError(t, w.servers[primary].Thaw())
		w.inStep(primary)
		loses(time.Now())
		falls = append(falls, f)
		r.more(50, 50)
	}
	close(r.release)
	r.measure("row 17", r.finish(), falls)
	w.forgot(t, r)
}
