package failover

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redisproc"
)

const slots = 16384

// A cluster is the nodes of a Redis Cluster: so many primaries, and as many replicas or none. Node i is at first the
// primary of its share of the slots, and node primaries + i its replica.
type cluster struct {
	t         *testing.T
	nodes     []*redisproc.Server
	admins    []*redis.Client
	ids       []string
	primaries int
}

func newCluster(t *testing.T, primaries int, replicas bool) *cluster {
	t.Helper()
	n := primaries
	if replicas {
		n *= 2
	}
	c := &cluster{t: t, primaries: primaries}
	c.nodes, c.admins = start(t, n, &redisproc.Options{Args: []string{
		"--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--repl-diskless-sync-delay", "0",
	}})
	for i, admin := range c.admins {
		c.ids = append(c.ids, c.ask(i, "cluster", "myid"))
		if i < primaries {
			require.NoError(t, admin.ClusterAddSlotsRange(t.Context(), i*slots/primaries, (i+1)*slots/primaries-1).Err())
		}
		c.ask(i, "cluster", "set-config-epoch", i+1)
		for k := range i { // each of the others, so that none has to hear of it
			c.ask(k, "cluster", "meet", "127.0.0.1", portOf(c.nodes[i].Addr()))
		}
	}
	c.agrees(n)
	for i := primaries; i < n; i++ {
		c.ask(i, "cluster", "replicate", c.ids[i-primaries])
	}
	for i := primaries; i < n; i++ {
		c.inStep(i)
	}
	for i := range n {
		c.eventually(i, "the replicas are known", func(text string) bool {
			return strings.Count(text, " slave ")+strings.Count(text, "myself,slave ") == n-primaries
		}, "cluster", "nodes")
	}
	c.alert(-1, patient)
	return c
}

// ask has a node run a command, and returns its answer as text.
func (c *cluster) ask(i int, args ...any) string {
	c.t.Helper()
	got, err := c.admins[i].Do(c.t.Context(), args...).Result()
	require.NoError(c.t, err, "%v", args)
	return fmt.Sprint(got)
}

func (c *cluster) eventually(i int, what string, ok func(text string) bool, args ...any) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		text, err := c.admins[i].Do(context.Background(), args...).Text()
		return err == nil && ok(text)
	}, bound, every, "node %d: %s", i, what)
}

// agrees waits until all nodes know n, and say that all is well.
func (c *cluster) agrees(n int) {
	c.t.Helper()
	for i := range c.nodes {
		c.eventually(i, "all is well", func(text string) bool {
			return strings.Contains(text, "cluster_state:ok") && strings.Contains(text, fmt.Sprintf("cluster_known_nodes:%d\r", n))
		}, "cluster", "info")
	}
}

// inStep waits until a node is a replica that has all that its primary has.
func (c *cluster) inStep(i int) {
	c.t.Helper()
	c.eventually(i, "it is a replica in step", func(text string) bool {
		return strings.Contains(text, "role:slave") && strings.Contains(text, "master_link_status:up")
	}, "info", "replication")
}

// alert has the nodes miss another one at once, or only after long.
func (c *cluster) alert(gone int, after time.Duration) {
	c.t.Helper()
	for i, admin := range c.admins {
		if i != gone {
			require.NoError(c.t, admin.ConfigSet(c.t.Context(), "cluster-node-timeout", fmt.Sprint(after.Milliseconds())).Err())
		}
	}
}

// promoted has the nodes look for one that is missing, and waits until another is a primary, and the others say that all is well without the one that has gone.
func (c *cluster) promoted(i, gone int) {
	c.t.Helper()
	c.alert(gone, downAfter)
	defer c.alert(gone, patient)
	c.eventually(i, "it is a primary", func(text string) bool { return strings.Contains(text, "role:master") }, "info", "replication")
	for k := range c.nodes {
		if k != gone {
			c.eventually(k, "all is well", func(text string) bool { return strings.Contains(text, "cluster_state:ok") }, "cluster", "info")
		}
	}
}

// slotOf is where a queue is, and node who had the slot at first.
func (c *cluster) slotOf(queue string) (slot, node int) {
	c.t.Helper()
	p, err := keys.New(keys.DefaultPrefix, queue, 0)
	require.NoError(c.t, err)
	n, err := c.admins[0].ClusterKeySlot(c.t.Context(), p.Key("due")).Result()
	require.NoError(c.t, err)
	slot = int(n)
	for node*slots/c.primaries <= slot {
		node++
	}
	return slot, node - 1
}

func (c *cluster) connect() redis.UniversalClient {
	var addrs []string
	for _, node := range c.nodes {
		addrs = append(addrs, node.Addr())
	}
	return redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
}
