package failover

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/chaos/record"
)

// Row 19 of the fault table: in a Cluster of three primaries and three replicas the primary of the queue's slot dies, and
// its replica takes its place. As row 15.
func TestRow19AClusterPrimaryIsKilledAndItsReplicaTakesItsPlace(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, true)
	r := newTrial(t, shortLease, c.connect)
	_, first := c.slotOf(r.queue)
	pair := [2]int{first, first + c.primaries}
	r.work(2)
	r.hold(2)
	r.produce("patient", traffic{})
	r.produce("impatient", traffic{patience: 400 * time.Millisecond})
	var falls []fall
	for i := range shape(1, 10) {
		primary, replica := pair[i%2], pair[1-i%2]
		if i > 0 {
			require.NoError(t, c.nodes[replica].Restart(t.Context()))
			c.inStep(replica)
		}
		r.more(shape[int64](100, 1000), 50)
		f := fall{from: covered(t, c.admins[primary], c.admins[replica]), at: time.Now()}
		outage := r.begin("primary killed", f.at, record.Outage)
		loses := r.begin("what the replica had not got", f.from, record.Loses)
		require.NoError(t, c.nodes[primary].Kill())
		c.promoted(replica, primary)
		f.up = time.Now()
		f.until, f.resumed = f.up, f.up
		loses(f.up)
		outage(f.up)
		falls = append(falls, f)
		r.more(50, 50)
	}
	close(r.release)
	r.measure("row 19", r.finish(), falls)
}
