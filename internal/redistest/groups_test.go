package redistest

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redisproc"
)

const groupBound = 30 * time.Second

func trusting(t *testing.T, a *Authority, p *Pair) *tls.Config {
	t.Helper()
	text, err := os.ReadFile(a.File)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(text))
	config := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	if p != nil {
		pair, err := tls.LoadX509KeyPair(p.CertFile, p.KeyFile)
		require.NoError(t, err)
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

func TestServerWithTLSAsksItsClientsForACertificateIfToldTo(t *testing.T) {
	t.Parallel()
	a := NewAuthority(t)
	s := Server(t, &redisproc.Options{TLS: a.ServerTLS("yes")})
	own := a.Issue(time.Now().Add(time.Hour))
	with := closing(t, redis.NewClient(&redis.Options{Addr: s.TLSAddr(), TLSConfig: trusting(t, a, &own)}))
	assert.NoError(t, with.Ping(t.Context()).Err())
	without := closing(t, redis.NewClient(&redis.Options{Addr: s.TLSAddr(), TLSConfig: trusting(t, a, nil), MaxRetries: -1}))
	assert.Error(t, without.Ping(t.Context()).Err())
	stranger := closing(t, redis.NewClient(&redis.Options{Addr: s.TLSAddr(), TLSConfig: trusting(t, NewAuthority(t), &own), MaxRetries: -1, DialerRetries: 1}))
	var unknown x509.UnknownAuthorityError
	assert.ErrorAs(t, stranger.Ping(t.Context()).Err(), &unknown)
	assert.NoError(t, AdminClient(t, s, nil).Ping(t.Context()).Err(), "the plain port is there, too")
}

func TestClusterSharesTheSlotsAmongItsNodes(t *testing.T) {
	t.Parallel()
	nodes := Cluster(t, 3, &redisproc.Options{Args: []string{"--requirepass", "swordfish"}})
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{nodes[0].Addr()}, Password: "swordfish"})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		assert.NoError(t, rdb.Set(t.Context(), key, "x", 0).Err())
	}
	seen := 0
	for _, node := range nodes {
		n, err := AdminClient(t, node, &redisproc.Options{Args: []string{"--requirepass", "swordfish"}}).DBSize(t.Context()).Result()
		require.NoError(t, err)
		assert.Less(t, n, int64(6), "not all on one")
		seen += int(n)
	}
	assert.Equal(t, 6, seen)
}

func TestSentinelsMakeTheReplicaThePrimaryWhenThatIsKilled(t *testing.T) {
	t.Parallel()
	a := NewAuthority(t)
	for name, o := range map[string]*WatchedOptions{
		"plain": nil,
		"passwords and TLS": {
			TLS:      true,
			Server:   redisproc.Options{TLS: a.ServerTLS("no"), Args: []string{"--requirepass", "swordfish"}},
			Sentinel: redisproc.Options{TLS: a.ServerTLS("no"), Args: []string{"--requirepass", "marlin"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := Sentinels(t, o)
			var asked *redisproc.Options
			if o != nil {
				asked = &o.Sentinel
			}
			sentinel := AdminClient(t, w.Sentinels[0], asked)
			first, err := w.Primary(t.Context(), sentinel)
			require.NoError(t, err)
			assert.Same(t, w.Servers[0], first)
			require.NoError(t, first.Kill())
			require.Eventually(t, func() bool {
				now, err := w.Primary(t.Context(), sentinel)
				return err == nil && now == w.Servers[1]
			}, groupBound, 50*time.Millisecond)
		})
	}
}
