package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redisproc"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
)

func TestRunAndStatsWorkOverAUnixSocket(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Redis has no unix sockets there")
	}
	dir, err := os.MkdirTemp("", "leaseq-") // a socket's path is short
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	socket := filepath.Join(dir, "redis.sock")
	o := &redisproc.Options{Args: []string{"--unixsocket", socket, "--requirepass", "swordfish"}}
	server := redistest.Server(t, o)
	p, _ := mustSweep(t, redistest.AdminClient(t, server, o), newPrefix(), "--redis", "unix://"+socket+"?db=0", "--password-file", writeFile(t, "swordfish\n"))
	p.err.await(t, "connected", "unix:"+socket)
	endsWell(t, p)

	code, _, errOut := invoke(t, nil, "stats", "--redis", "unix://"+filepath.Join(dir, "none.sock"))
	assert.Equal(t, exitRedis, code)
	assert.Contains(t, errOut, "none.sock: connect: no such file")
}

func TestRunAndStatsWorkWithAClusterOfThreeOverTLS(t *testing.T) {
	t.Parallel()
	a := redistest.NewAuthority(t)
	o := &redisproc.Options{TLS: a.ServerTLS("no"), Args: []string{"--tls-cluster", "yes", "--requirepass", "swordfish"}}
	nodes := redistest.Cluster(t, 3, o)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{nodes[0].Addr()}, Password: "swordfish"})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	prefix := newPrefix()
	flags := []string{"--redis", "rediss://" + nodes[2].TLSAddr() + "?cluster=true", "--tls-ca", a.File, "--password-file", writeFile(t, "swordfish"), "--prefix", prefix}
	stores, on := []*lease.Store{}, map[string]bool{}
	for range 6 { // their slots are on one node once in 3^5 runs
		store := newStore(t, rdb, prefix, redistest.Queue(t), 300*time.Millisecond)
		stores = append(stores, store)
		partition, err := keys.New(prefix, store.Queue(), 0)
		require.NoError(t, err)
		node, err := rdb.MasterForKey(t.Context(), partition.Key("due"))
		require.NoError(t, err)
		on[node.Options().Addr] = true
	}
	p := launch(t, nil, append([]string{"run"}, flags...)...)
	p.err.await(t, "connected", "mode=cluster")
	for _, store := range stores {
		sweepsAgain(t, p, store)
	}
	t.Logf("the queues are on %d nodes", len(on))
	code, out, errOut := invoke(t, nil, append([]string{"stats"}, flags...)...)
	assert.Zero(t, code, errOut)
	for _, store := range stores {
		assert.Contains(t, out, store.Queue())
	}
	assert.NotContains(t, p.err.String(), "level=WARN")
	endsWell(t, p)

	code, _, errOut = invoke(t, nil, "stats", "--redis", "redis://:swordfish@"+nodes[0].Addr()+"/3")
	assert.Equal(t, exitRedis, code)
	assert.Contains(t, errOut, "refuses database 3")
	assert.Contains(t, errOut, "?cluster=true")
}

func TestRunGoesOnWithTheNewPrimaryThatSentinelsHaveMade(t *testing.T) {
	t.Parallel()
	a := redistest.NewAuthority(t)
	for name, o := range map[string]*redistest.WatchedOptions{
		"frozen and thawed": {},
		"killed, with TLS and passwords": {
			TLS:      true,
			Server:   redisproc.Options{TLS: a.ServerTLS("no"), Args: []string{"--requirepass", "swordfish"}},
			Sentinel: redisproc.Options{TLS: a.ServerTLS("no"), Args: []string{"--requirepass", "marlin"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mustOutliveAFailover(t, o, a.File)
		})
	}
}

func mustOutliveAFailover(t *testing.T, o *redistest.WatchedOptions, authority string) {
	w := redistest.Sentinels(t, o)
	scheme, addrs, flags := "redis://", []string{}, []string{}
	for _, s := range w.Sentinels {
		addrs = append(addrs, s.Addr())
	}
	sentinelsPassword := writeFile(t, "wrong\n")
	if o.TLS {
		scheme = "rediss://"
		for i, s := range w.Sentinels {
			addrs[i] = s.TLSAddr()
		}
		flags = append(flags, "--tls-ca", authority, "--password-file", writeFile(t, "swordfish\n"), "--sentinel-password-file", sentinelsPassword)
		code, _, errOut := invoke(t, nil, append([]string{"stats", "--redis", scheme + addrs[0] + "?master_name=main"}, flags...)...)
		assert.Equal(t, exitRedis, code)
		assert.Contains(t, errOut, "refuses the credentials")
		assert.Contains(t, errOut, "--sentinel-password-file")
		require.NoError(t, os.WriteFile(sentinelsPassword, []byte("marlin\n"), 0o600))
	}
	flags = append(flags, "--redis", scheme+addrs[0]+"?master_name="+w.Name+"&addr="+addrs[1]+"&addr="+addrs[2])
	old, prefix := redistest.AdminClient(t, w.Servers[0], &o.Server), newPrefix()
	p, store := mustSweep(t, old, prefix, flags...)

	require.NoError(t, store.Close(t.Context())) // it knows the old primary only
	// What the old primary had not passed on would be lost with it.
	require.NoError(t, old.Do(t.Context(), "wait", 1, 10_000).Err())
	if o.TLS {
		require.NoError(t, w.Servers[0].Kill())
	} else {
		require.NoError(t, w.Servers[0].Freeze()) // its connections stay, and are silent
	}
	began := time.Now()
	moved := redistest.AdminClient(t, w.Servers[1], &o.Server)
	require.Eventually(t, func() bool {
		return strings.Contains(moved.Info(t.Context(), "replication").Val(), "role:master")
	}, within, 20*time.Millisecond)
	store = newStore(t, moved, prefix, store.Queue(), 300*time.Millisecond)
	sweepsAgain(t, p, store)
	if !o.TLS {
		require.NoError(t, w.Servers[0].Thaw())
		sweepsAgain(t, p, store)
	}
	t.Logf("swept again %v after the old primary was gone", time.Since(began).Round(time.Millisecond))
	code, out, errOut := invoke(t, nil, append([]string{"stats", "--prefix", prefix}, flags...)...)
	assert.Zero(t, code, errOut)
	assert.Contains(t, out, store.Queue())
	endsWell(t, p)
	assert.LessOrEqual(t, strings.Count(p.err.String(), "level=WARN"), 3, "%s", &p.err)
	t.Logf("what it said:\n%s", &p.err)
}
