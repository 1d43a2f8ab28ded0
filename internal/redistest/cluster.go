package redistest

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/internal/redisproc"
)

// joinBound is how long servers may take until all of them know each other.
const joinBound = time.Minute

const clusterSlots = 16384

// Cluster returns the nodes of a Redis Cluster of the test's own, n primaries that share the slots evenly, stopped when
// the test ends. Every node is started with o; a nil o means the defaults. For clients with TLS it needs the arguments
// --tls-cluster yes beside TLS, or the nodes name their plain ports. It returns when every node says that all is
// well. The test is skipped, with [SkipReason], where there is no redis-server program.
func Cluster(t testing.TB, n int, o *redisproc.Options) []*redisproc.Server {
	t.Helper()
	var options redisproc.Options
	if o != nil {
		options = *o
	}
	options.Args = append([]string{"--cluster-enabled", "yes"}, options.Args...)
	nodes, clients := make([]*redisproc.Server, n), make([]*redis.Client, n)
	for i := range nodes {
		nodes[i] = Server(t, &options)
		clients[i] = AdminClient(t, nodes[i], &options)
	}
	ctx, cancel := context.WithTimeout(t.Context(), joinBound)
	defer cancel()
	for i, client := range clients {
		if err := client.ClusterAddSlotsRange(ctx, i*clusterSlots/n, (i+1)*clusterSlots/n-1).Err(); err != nil {
			t.Fatalf("redistest: slots of node %d: %v", i, err)
		}
		if err := client.Do(ctx, "cluster", "set-config-epoch", i+1).Err(); err != nil {
			t.Fatalf("redistest: epoch of node %d: %v", i, err)
		}
	}
	for _, node := range nodes[1:] {
		if err := clients[0].Do(ctx, meet(node, &options)...).Err(); err != nil {
			t.Fatalf("redistest: meeting %s: %v", node.Addr(), err)
		}
	}
	for i, client := range clients {
		awaitText(ctx, t, fmt.Sprintf("node %d", i), func() (string, error) { return client.ClusterInfo(ctx).Result() },
			"cluster_state:ok", fmt.Sprintf("cluster_known_nodes:%d", n), fmt.Sprintf("cluster_size:%d", n))
	}
	return nodes
}

// meet names a node by the port that its bus goes by: the plain one, or with --tls-cluster yes the one for TLS.
func meet(node *redisproc.Server, o *redisproc.Options) []any {
	addr := node.Addr()
	if i := slices.Index(o.Args, "--tls-cluster"); i >= 0 && slices.Contains(o.Args[i:], "yes") {
		addr = node.TLSAddr()
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		panic(err) // it is ours
	}
	return []any{"cluster", "meet", host, port}
}

// AdminClient returns a client of a server that was started with o, which may have a password, closed when the test
// ends. It uses the plain port.
func AdminClient(t testing.TB, s *redisproc.Server, o *redisproc.Options) *redis.Client {
	t.Helper()
	options := &redis.Options{Addr: s.Addr(), ContextTimeoutEnabled: true}
	if o != nil {
		options.Password = passwordOf(o)
	}
	return closing(t, redis.NewClient(options))
}

// awaitText asks until the answer holds all the parts.
func awaitText(ctx context.Context, t testing.TB, who string, ask func() (string, error), parts ...string) {
	t.Helper()
	for {
		text, err := ask()
		missing := ""
		for _, part := range parts {
			if !strings.Contains(text, part) {
				missing = part
			}
		}
		if err == nil && missing == "" {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("redistest: %s never answered %q: %v\n%s", who, missing, err, text)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
