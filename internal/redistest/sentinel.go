package redistest

import (
	"context"
	"fmt"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/internal/redisproc"
)

// A Watched is a primary with a replica, and the Sentinels that watch them and make the replica the primary when that
// is gone.
type Watched struct {
	Name      string // by which the Sentinels know the primary
	Servers   []*redisproc.Server
	Sentinels []*redisproc.Server
}

// WatchedOptions are those of a [Watched]; nil is valid.
type WatchedOptions struct {
	Server   redisproc.Options // of primary and replica; a requirepass is used for all that they ask each other
	Sentinel redisproc.Options // of the Sentinels; Sentinel itself is filled in

	// TLS makes the servers and the Sentinels talk to each other by TLS, and name the ports for TLS to clients.
	TLS bool
}

// The Sentinels call a server down after silence of this length.
const downAfterMS = 1000

// Sentinels returns a primary, a replica and three Sentinels of the test's own, stopped when the test ends. It returns
// when the replica is in step and every Sentinel knows the others and the replica. The test is skipped, with
// [SkipReason], where there is no redis-server program.
func Sentinels(t testing.TB, o *WatchedOptions) *Watched {
	t.Helper()
	var opts WatchedOptions
	if o != nil {
		opts = *o
	}
	w := &Watched{Name: "main"}
	password := passwordOf(&opts.Server)
	if password != "" {
		opts.Server.Args = append([]string{"--masterauth", password}, opts.Server.Args...)
	}
	if opts.TLS {
		opts.Server.Args = append([]string{"--tls-replication", "yes"}, opts.Server.Args...)
		opts.Sentinel.Args = append([]string{"--tls-replication", "yes"}, opts.Sentinel.Args...)
	}
	primary := Server(t, &opts.Server)
	host, port := w.place(t, primary, opts.TLS)
	replica := opts.Server
	replica.Args = append([]string{"--replicaof", host + " " + port}, replica.Args...)
	w.Servers = []*redisproc.Server{primary, Server(t, &replica)}

	ctx, cancel := context.WithTimeout(t.Context(), joinBound)
	defer cancel()
	follower := AdminClient(t, w.Servers[1], &opts.Server)
	awaitText(ctx, t, "the replica", func() (string, error) { return follower.Info(ctx, "replication").Result() }, "master_link_status:up")

	sentinel := opts.Sentinel
	sentinel.Sentinel = []string{
		fmt.Sprintf("monitor %s %s %s 2", w.Name, host, port),
		fmt.Sprintf("down-after-milliseconds %s %d", w.Name, downAfterMS),
		fmt.Sprintf("failover-timeout %s 10000", w.Name),
	}
	if password != "" {
		sentinel.Sentinel = append(sentinel.Sentinel, fmt.Sprintf("auth-pass %s %s", w.Name, password))
	}
	if own := passwordOf(&opts.Sentinel); own != "" {
		sentinel.Sentinel = append(sentinel.Sentinel, "sentinel-pass "+own)
	}
	for range 3 {
		w.Sentinels = append(w.Sentinels, Server(t, &sentinel))
	}
	for i, one := range w.Sentinels {
		client := AdminClient(t, one, &sentinel)
		awaitText(ctx, t, fmt.Sprintf("Sentinel %d", i), func() (string, error) { return client.Info(ctx, "sentinel").Result() },
			"status=ok", "slaves=1", "sentinels=3")
	}
	return w
}

// place splits the address by which the servers know each other.
func (w *Watched) place(t testing.TB, s *redisproc.Server, tls bool) (host, port string) {
	addr := s.Addr()
	if tls {
		addr = s.TLSAddr()
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	return host, port
}

// Primary asks a Sentinel which of the servers is the primary now.
func (w *Watched) Primary(ctx context.Context, sentinel *redis.Client) (*redisproc.Server, error) {
	got, err := sentinel.Do(ctx, "sentinel", "get-master-addr-by-name", w.Name).StringSlice()
	if err != nil {
		return nil, err
	}
	if len(got) == 2 {
		addr := net.JoinHostPort(got[0], got[1])
		for _, s := range w.Servers {
			if s.Addr() == addr || s.TLSAddr() == addr {
				return s, nil
			}
		}
	}
	return nil, fmt.Errorf("the Sentinel names %v, which is none of the servers", got)
}

func passwordOf(o *redisproc.Options) string {
	for i, arg := range o.Args {
		if arg == "--requirepass" && i+1 < len(o.Args) {
			return o.Args[i+1]
		}
	}
	return ""
}
