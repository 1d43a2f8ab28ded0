package failover

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/chaos"
	"github.com/leaseq/leaseq/chaos/record"
)

// Row 18 of the fault table: the slot of a queue moves to another node, key by key, while producers and consumers work.
// A script needs all keys in one place, so that nothing runs from the first key's move to the last one's; but all calls
// are repeated inside, nothing is lost or done twice, and leases live on.
func TestRow18ASlotMovesKeyByKeyInTheMidstOfWork(t *testing.T) {
	t.Parallel()
	const held = 4
	c := newCluster(t, 2, false)
	r := newTrial(t, 10*time.Second, c.connect)
	slot, from := c.slotOf(r.queue)
	r.work(2)
	r.hold(held)
	r.produce("patient", traffic{})
	r.produce("impatient", traffic{patience: 100 * time.Millisecond})
	var falls []fall
	for range shape(1, 20) {
		r.more(100, 50)
		f := fall{from: time.Now(), at: time.Now()}
		outage := r.begin("slot migration", f.at, record.Outage)
		keys := c.migrate(r, slot, from, 1-from)
		f.up = time.Now()
		f.until, f.resumed = f.up, f.up
		outage(f.up)
		require.Greater(t, keys, 5, "keys that moved one by one")
		falls = append(falls, f)
		from = 1 - from
		r.more(50, 50)
	}
	require.EqualValues(t, held, r.held.Load(), "a held job was started again")
	close(r.release)
	report := r.finish()
	f := r.measure("row 18", report, falls)
	require.Zero(t, f.lost)
	require.Zero(t, f.cameBack)
	require.Zero(t, r.broken.Load(), "handlers whose contexts ended")
	require.Zero(t, r.unknowable.Load(), "enqueues of which nobody will ever know")
	require.Zero(t, report.Totals.Maybe)
	require.Zero(t, report.Totals.Duplicated)
	for _, name := range []string{"settle lost", "settle gone", "settle unknown", "lease ran out"} {
		require.Zero(t, report.Cases[name], name)
	}
	require.Zero(t, report.Check(chaos.CheckLost).Excused)
	require.Less(t, f.next, slow, "from the end of the move to the next start")
}

// migrate moves a slot as an operator's tool does, and returns how many keys that were. After each key it waits until
// somebody's call has found the keys in two places.
func (c *cluster) migrate(r *trial, slot, from, to int) (moved int) {
	c.t.Helper()
	c.ask(to, "cluster", "setslot", slot, "importing", c.ids[from])
	c.ask(from, "cluster", "setslot", slot, "migrating", c.ids[to])
	for {
		keys, err := c.admins[from].ClusterGetKeysInSlot(c.t.Context(), slot, 1).Result()
		require.NoError(c.t, err)
		if len(keys) == 0 {
			break
		}
		split := c.split()
		port, err := strconv.Atoi(portOf(c.nodes[to].Addr()))
		require.NoError(c.t, err)
		require.Equal(c.t, "OK", c.ask(from, "migrate", "127.0.0.1", port, keys[0], 0, 5000))
		moved++
		r.eventually("a call finds the keys in two places", func() bool { return c.split() > split })
	}
	c.ask(to, "cluster", "setslot", slot, "node", c.ids[to])
	c.ask(from, "cluster", "setslot", slot, "node", c.ids[to])
	return moved
}

// split is how many calls have found the keys of their script in two places.
func (c *cluster) split() (n int) {
	for _, admin := range c.admins {
		n += errorsOf(admin, "TRYAGAIN")
	}
	return n
}
