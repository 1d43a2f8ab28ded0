package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redisproc"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
)

// mustSweep starts the sidecar, has it put back an abandoned job of a queue that rdb reaches, and asks for stats. Both
// commands get the same flags.
func mustSweep(t *testing.T, rdb redis.UniversalClient, prefix string, flags ...string) (*launched, *lease.Store) {
	t.Helper()
	store := newStore(t, rdb, prefix, redistest.Queue(t), 300*time.Millisecond)
	flags = append(flags, "--prefix", prefix)
	p := launch(t, nil, append([]string{"run"}, flags...)...)
	p.err.await(t, "connected")
	sweepsAgain(t, p, store)
	code, out, errOut := invoke(t, nil, append([]string{"stats"}, flags...)...)
	assert.Zero(t, code, errOut)
	assert.Contains(t, out, store.Queue())
	return p, store
}

// sweepsAgain waits until the sidecar has put back one more abandoned job, and acks it.
func sweepsAgain(t *testing.T, p *launched, store *lease.Store) {
	t.Helper()
	enqueue(t, store, "close:10086")
	claim(t, store, 1)
	if !assert.Eventually(t, func() bool {
		stats, err := store.Stats(t.Context())
		return err == nil && stats.Claimable == 1
	}, within, 5*time.Millisecond) {
		t.Fatalf("nobody puts the job back; the sidecar said:\n%s", &p.err)
	}
	job := claim(t, store, 1)[0]
	assert.Equal(t, 2, job.Attempt())
	settle(t, store, lease.Ack, &job)
}

func endsWell(t *testing.T, p *launched) {
	t.Helper()
	p.cancel(nil)
	assert.Equal(t, exitOK, p.wait(t), &p.err)
}

func TestRunAndStatsWorkOverTLSWithAnAuthorityOfOnesOwn(t *testing.T) {
	t.Parallel()
	a := redistest.NewAuthority(t)
	server := redistest.Server(t, &redisproc.Options{TLS: a.ServerTLS("no")})
	p, _ := mustSweep(t, redistest.AdminClient(t, server, nil), newPrefix(), "--redis", "rediss://"+server.TLSAddr(), "--tls-ca", a.File)
	assert.NotContains(t, p.err.String(), "level=WARN")
	endsWell(t, p)
}

func TestRunAndStatsWorkWithAClientCertificate(t *testing.T) {
	t.Parallel()
	a := redistest.NewAuthority(t)
	server := redistest.Server(t, &redisproc.Options{TLS: a.ServerTLS("yes")})
	own := a.Issue(time.Now().Add(time.Hour))
	p, _ := mustSweep(t, redistest.AdminClient(t, server, nil), newPrefix(),
		"--redis", "rediss://"+server.TLSAddr(), "--tls-ca", a.File, "--tls-cert", own.CertFile, "--tls-key", own.KeyFile)
	endsWell(t, p)
}

// A trouble is what a person gets wrong, and what the program must say about it.
type trouble struct {
	name  string
	flags []string
	want  []string
	run   int // exit code of run; -1: it goes on, and says the same in its log
}

func (c *trouble) check(t *testing.T) {
	t.Helper()
	t.Run(c.name, func(t *testing.T) {
		t.Parallel()
		code, out, errOut := invoke(t, nil, append([]string{"stats"}, c.flags...)...)
		assert.Equal(t, exitRedis, code, errOut)
		assert.Empty(t, out)
		for _, part := range c.want {
			assert.Contains(t, errOut, part)
		}
		assert.NotContains(t, errOut, "hunter2")
		p := launch(t, nil, append([]string{"run"}, c.flags...)...)
		if c.run >= 0 {
			assert.Equal(t, c.run, p.wait(t))
			for _, part := range c.want {
				assert.Contains(t, p.err.String(), part)
			}
		} else {
			p.err.await(t, append([]string{"does not answer yet"}, c.want[1:]...)...) // the address stands in another attribute
			endsWell(t, p)
		}
		assert.NotContains(t, p.err.String(), "hunter2")
	})
}

func TestMistakesWithTLSAreNamedWithWhatWouldBeRight(t *testing.T) {
	t.Parallel()
	a, other := redistest.NewAuthority(t), redistest.NewAuthority(t)
	open := redistest.Server(t, &redisproc.Options{TLS: a.ServerTLS("no")})
	strict := redistest.Server(t, &redisproc.Options{TLS: a.ServerTLS("yes")})
	old := a.Issue(time.Now().Add(-time.Minute), "127.0.0.1")
	expired := redistest.Server(t, &redisproc.Options{TLS: &redisproc.TLS{CertFile: old.CertFile, KeyFile: old.KeyFile, CAFile: a.File, Clients: "no"}})
	foreign := other.Issue(time.Now().Add(time.Hour))
	secure, plain := "rediss://:hunter2@"+open.TLSAddr(), "redis://:hunter2@"+open.TLSAddr()
	for _, c := range []trouble{
		{"no authority named", []string{"--redis", secure}, []string{open.TLSAddr(), "authority that is not known here", "with --tls-ca"}, exitRedis},
		{"another authority", []string{"--redis", secure, "--tls-ca", other.File}, []string{open.TLSAddr(), "authority that is not known here", other.File}, exitRedis},
		{"another name", []string{"--redis", secure, "--tls-ca", a.File, "--tls-server-name", "redis.internal"},
			[]string{open.TLSAddr(), "certificate for another name", "redis.internal", "localhost", "--tls-server-name"}, exitRedis},
		{"plain to a port with TLS", []string{"--redis", plain}, []string{open.TLSAddr(), "begin the URL with rediss://"}, -1},
		{"no certificate", []string{"--redis", "rediss://" + strict.TLSAddr(), "--tls-ca", a.File},
			[]string{strict.TLSAddr(), "wants a certificate of its clients, give one with --tls-cert and --tls-key"}, -1},
		{"certificate of another authority", []string{"--redis", "rediss://" + strict.TLSAddr(), "--tls-ca", a.File, "--tls-cert", foreign.CertFile, "--tls-key", foreign.KeyFile},
			[]string{strict.TLSAddr(), "may not accept the certificate in " + foreign.CertFile}, -1},
		{"expired at the server", []string{"--redis", "rediss://" + expired.TLSAddr(), "--tls-ca", a.File}, []string{expired.TLSAddr(), "expired", "renewed at the server"}, -1},
	} {
		c.check(t)
	}
}

func TestTLSToAPlainPortIsNamed(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, nil)
	// Redis waits for the end of a line, or takes one of the random bytes of the handshake for it.
	for _, timeout := range []string{"1s", "20s"} {
		code, _, errOut := invoke(t, nil, "stats", "--redis", "rediss://"+server.Addr()+"?dial_timeout=2s", "--timeout", timeout)
		assert.Equal(t, exitRedis, code)
		assert.Contains(t, errOut, "begin the URL with redis://, or take the port for TLS")
	}
}

func TestACertificateForAnotherNameIsAcceptedByThatName(t *testing.T) {
	t.Parallel()
	a := redistest.NewAuthority(t)
	named := a.Issue(time.Now().Add(time.Hour), "redis.internal")
	server := redistest.Server(t, &redisproc.Options{TLS: &redisproc.TLS{CertFile: named.CertFile, KeyFile: named.KeyFile, CAFile: a.File, Clients: "no"}})
	flags := []string{"stats", "--redis", "rediss://" + server.TLSAddr(), "--tls-ca", a.File}
	code, _, errOut := invoke(t, nil, flags...)
	assert.Equal(t, exitRedis, code)
	assert.Contains(t, errOut, "certificate for another name")
	code, _, errOut = invoke(t, nil, append(flags, "--tls-server-name", "redis.internal")...)
	assert.Zero(t, code, errOut)
}

func TestCertificatesAreReadAgainForEachNewConnection(t *testing.T) {
	t.Parallel()
	a, next := redistest.NewAuthority(t), redistest.NewAuthority(t)
	server := redistest.Server(t, &redisproc.Options{TLS: a.ServerTLS("yes")})
	admin := redistest.AdminClient(t, server, nil)
	own := a.Issue(time.Now().Add(time.Hour))
	p, store := mustSweep(t, admin, newPrefix(), "--redis", "rediss://"+server.TLSAddr(), "--tls-ca", a.File, "--tls-cert", own.CertFile, "--tls-key", own.KeyFile)

	// The server moves to another authority: what has been connected goes on, what is new is refused, and said.
	moved := next.ServerTLS("yes")
	require.NoError(t, admin.Do(t.Context(), "config", "set", "tls-cert-file", moved.CertFile, "tls-key-file", moved.KeyFile, "tls-ca-cert-file", next.File).Err())
	sweepsAgain(t, p, store)
	require.NoError(t, admin.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err())
	p.err.await(t, "somebody has to change something", "authority that is not known here", "advice=")

	// Then our files follow.
	text, err := os.ReadFile(next.File)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(a.File, text, 0o600))
	next.Renew(own, time.Now().Add(time.Hour))
	sweepsAgain(t, p, store)
	endsWell(t, p)
	assert.LessOrEqual(t, strings.Count(p.err.String(), "somebody has to change something"), 2)
}

func TestACertificateThatHasExpiredUnderTheSidecarIsSaidAndDoesNotEndIt(t *testing.T) {
	t.Parallel()
	a := redistest.NewAuthority(t)
	server := redistest.Server(t, &redisproc.Options{TLS: a.ServerTLS("no")})
	admin := redistest.AdminClient(t, server, nil)
	p, store := mustSweep(t, admin, newPrefix(), "--redis", "rediss://"+server.TLSAddr(), "--tls-ca", a.File)
	show := func(until time.Time) {
		pair := a.Issue(until, "127.0.0.1")
		require.NoError(t, admin.Do(t.Context(), "config", "set", "tls-cert-file", pair.CertFile, "tls-key-file", pair.KeyFile).Err())
		require.NoError(t, admin.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err())
	}
	show(time.Now().Add(-time.Minute))
	p.err.await(t, "somebody has to change something", "has a certificate that is not valid now", "expired", "renewed at the server")
	show(time.Now().Add(time.Hour))
	sweepsAgain(t, p, store)
	endsWell(t, p)
}
