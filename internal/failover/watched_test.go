package failover

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redisproc"
	"github.com/leaseq/leaseq/internal/redistest"
)

const (
	watchedName = "main"
	downAfter   = 500 * time.Millisecond // while a server is meant to be missed
	patient     = time.Minute            // else: a machine that is slow as a whole makes no failover
	bound       = time.Minute            // of everything that is waited for
	every       = 10 * time.Millisecond
)

// A watched is two servers, at first a primary and its replica, and the three Sentinels that watch them. Servers and
// Sentinels reach a server by its link alone, a proxy that it announces as its address; clients reach the servers
// themselves, and the Sentinels by a way each: so each of the three kinds of connections can be cut alone.
type watched struct {
	t         *testing.T
	servers   []*redisproc.Server
	admins    []*redis.Client // without a link between
	links     []*netfault.Proxy
	sentinels []*redisproc.Server
	ways      []*netfault.Proxy
	asked     []*redis.Client        // the Sentinels, without a way between
	named     atomic.Pointer[string] // the port that clients are told instead of the primary's; nil: they are told the truth
}

func newWatched(t *testing.T, args ...string) *watched {
	t.Helper()
	w := &watched{t: t}
	w.servers, w.admins = start(t, 2, &redisproc.Options{Args: append([]string{
		"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", "--replica-announce-ip", "127.0.0.1",
	}, args...)})
	for i, s := range w.servers {
		w.links = append(w.links, redistest.Proxy(t, s.Addr()))
		w.announce(i)
	}
	w.follow(1, 0)
	var admins []*redis.Client
	w.sentinels, admins = start(t, 3, &redisproc.Options{Sentinel: []string{
		fmt.Sprintf("monitor %s 127.0.0.1 %s 2", watchedName, portOf(w.links[0].Addr())),
		fmt.Sprintf("down-after-milliseconds %s %d", watchedName, patient.Milliseconds()),
		fmt.Sprintf("failover-timeout %s 1500", watchedName),
	}})
	for i, admin := range admins { // shorter periods: they find each other, and a server that was away its place, at once
		require.NoError(t, admin.Do(t.Context(), "sentinel", "debug", "info-period", "300", "publish-period", "150", "ask-period", "200").Err())
		w.ways = append(w.ways, redistest.Proxy(t, w.sentinels[i].Addr()))
	}
	w.inStep(1)
	w.asked = admins
	for _, admin := range admins {
		w.await(admin, "sentinel", "status=ok", "slaves=1", "sentinels=3")
	}
	return w
}

// start starts n servers side by side.
func start(t *testing.T, n int, o *redisproc.Options) ([]*redisproc.Server, []*redis.Client) {
	t.Helper()
	if _, err := redisproc.Find(); err != nil {
		t.Skip(redistest.SkipReason)
	}
	servers, errs := make([]*redisproc.Server, n), make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { servers[i], errs[i] = redisproc.Start(t.Context(), o) })
	}
	all.Wait()
	admins := make([]*redis.Client, n)
	for i, s := range servers {
		if s == nil {
			continue
		}
		t.Cleanup(func() { _ = s.Stop(context.Background()) })
		admins[i] = redistest.AdminClient(t, s, nil)
	}
	require.NoError(t, errors.Join(errs...))
	return servers, admins
}

func portOf(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

// announce has a server name its link as its address. A replica tells it when it connects.
func (w *watched) announce(i int) {
	w.t.Helper()
	require.NoError(w.t, w.admins[i].ConfigSet(w.t.Context(), "replica-announce-port", portOf(w.links[i].Addr())).Err())
}

// follow makes one server the replica of the other.
func (w *watched) follow(i, primary int) {
	w.t.Helper()
	require.NoError(w.t, w.admins[i].Do(w.t.Context(), "replicaof", "127.0.0.1", portOf(w.links[primary].Addr())).Err())
}

// await waits until a section of INFO holds all the parts.
func (w *watched) await(of *redis.Client, section string, parts ...string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		text, err := of.Info(context.Background(), section).Result()
		for _, part := range parts {
			if err != nil || !strings.Contains(text, part) {
				return false
			}
		}
		return true
	}, bound, every, "%s: %v", section, parts)
}

// inStep waits until a server is a replica that has all that its primary has.
func (w *watched) inStep(i int) {
	w.t.Helper()
	w.await(w.admins[i], "replication", "role:slave", "master_link_status:up")
	w.await(w.admins[1-i], "replication", "state=online")
}

func (w *watched) role(i int) string {
	text, err := w.admins[i].Info(context.Background(), "replication").Result()
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(text, "role:")
	role, _, _ := strings.Cut(rest, "\r\n")
	return role
}

// alert has the Sentinels miss a server at once, or only after long.
func (w *watched) alert(after time.Duration) {
	w.t.Helper()
	for _, admin := range w.asked {
		require.NoError(w.t, admin.Do(w.t.Context(), "sentinel", "set", watchedName, "down-after-milliseconds", after.Milliseconds()).Err())
	}
}

// promoted has the Sentinels look for a primary that is missing, and waits until they name a server as the primary, and it is one.
func (w *watched) promoted(i int) {
	w.t.Helper()
	w.alert(downAfter)
	defer w.alert(patient)
	require.Eventually(w.t, func() bool {
		addr, err := w.asked[0].Do(context.Background(), "sentinel", "get-master-addr-by-name", watchedName).StringSlice()
		return err == nil && len(addr) == 2 && addr[1] == portOf(w.links[i].Addr()) && w.role(i) == "master"
	}, bound, every, "server %d has not become the primary", i)
}

// deafen keeps from the clients what the Sentinels tell by themselves, before they connect: they only ask when they dial.
// In a split they are told the old primary, as by a Sentinel that is cut off with them.
func (w *watched) deafen() {
	for _, way := range w.ways {
		way.Decide(func(cmd []string) netfault.Action {
			named := w.named.Load()
			switch {
			case strings.EqualFold(cmd[0], "subscribe"):
				return netfault.Hold
			case named != nil && len(cmd) == 3 && strings.EqualFold(cmd[1], "get-master-addr-by-name"):
				return netfault.Answer(fmt.Sprintf("*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%s\r\n", len(*named), *named))
			}
			return netfault.Pass
		})
	}
}

// split cuts a primary off from its replica and the Sentinels.
func (w *watched) split(primary int) {
	port := portOf(w.links[primary].Addr())
	w.named.Store(&port)
	w.links[primary].BlackHole(true)
}

// heal ends a split, and waits until the old primary is a replica.
func (w *watched) heal(primary int) {
	w.t.Helper()
	w.named.Store(nil)
	w.links[primary].BlackHole(false)
	w.inStep(primary)
}

// refusals is how many writes a server has refused since it has no replica.
func (w *watched) refusals(i int) int { return w.errors(i, "NOREPLICAS") }

// errors is how many errors of a code a server has answered.
func (w *watched) errors(i int, code string) int { return errorsOf(w.admins[i], code) }

func errorsOf(admin *redis.Client, code string) (n int) {
	text, err := admin.Info(context.Background(), "errorstats").Result()
	if _, rest, ok := strings.Cut(text, "errorstat_"+code+":count="); err == nil && ok {
		_, _ = fmt.Sscanf(rest, "%d", &n)
	}
	return n
}

// back starts a server that was killed, as the replica of the other one.
func (w *watched) back(i int) {
	w.t.Helper()
	require.NoError(w.t, w.servers[i].Restart(w.t.Context()))
	w.links[i].Restore()
	w.announce(i)
	w.follow(i, 1-i)
	w.inStep(i)
	for _, admin := range w.asked { // ready for the next failover
		w.await(admin, "sentinel", "status=ok")
	}
}

// connect makes a client as users do, by the Sentinels' addresses.
func (w *watched) connect() redis.UniversalClient {
	o := &redis.FailoverOptions{MasterName: watchedName, Dialer: w.dial}
	for _, way := range w.ways {
		o.SentinelAddrs = append(o.SentinelAddrs, way.Addr())
	}
	return redis.NewFailoverClient(o)
}

// dial leads clients past the links, and to the Sentinels, which know each other's addresses, always by the ways.
func (w *watched) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	to := addr
	for i, s := range w.sentinels {
		if s.Addr() == addr {
			to = w.ways[i].Addr()
		}
	}
	for i, link := range w.links {
		if link.Addr() == addr {
			to = w.servers[i].Addr()
		}
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, to)
	tcp, ok := conn.(*net.TCPConn)
	if err != nil || !ok || to == addr {
		return conn, err
	}
	named, err := net.ResolveTCPAddr(network, addr)
	return &known{TCPConn: tcp, as: named}, err
}

// A known connection has the remote address by which the other end is known to the Sentinels: clients compare them.
type known struct {
	*net.TCPConn
	as net.Addr
}

func (k *known) RemoteAddr() net.Addr { return k.as }

// forgot fails unless both servers hold the same of a trial's queue: the one that is a replica has given up what it took
// as a primary.
func (w *watched) forgot(t *testing.T, r *trial) {
	t.Helper()
	var held [2]map[string]string
	require.Eventually(t, func() bool {
		for i := range held {
			var err error
			if held[i], err = redistest.TryDump(t.Context(), w.admins[i], "", r.queue); err != nil {
				return false
			}
		}
		return len(held[0]) > 0 && maps.Equal(held[0], held[1])
	}, bound, every, "the servers differ")
}
