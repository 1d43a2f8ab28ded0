package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
)

// writeFile puts a text into a file that only this user can read.
func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// parseConnection parses the flags of a connection.
func parseConnection(t *testing.T, args ...string) (*endpoint, error) {
	t.Helper()
	var f connectionFlags
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	f.add(flags)
	require.NoError(t, flags.Parse(args))
	return f.parse()
}

func TestEveryWrongCombinationOfConnectionFlagsIsRefusedWithWhatWouldBeRight(t *testing.T) {
	t.Parallel()
	authority, other := redistest.NewAuthority(t), redistest.NewAuthority(t)
	pair, second := authority.Issue(time.Now().Add(time.Hour)), other.Issue(time.Now().Add(time.Hour))
	password, text := writeFile(t, "hunter2\n"), writeFile(t, "no PEM at all")
	broken := writeFile(t, "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n")
	locked := writeFile(t, "-----BEGIN ENCRYPTED PRIVATE KEY-----\naGVsbG8=\n-----END ENCRYPTED PRIVATE KEY-----\n")
	none := filepath.Join(t.TempDir(), "none.pem")
	for _, c := range []struct{ args, want string }{
		{"--redis redis://h --tls-ca " + authority.File, "--tls-ca: for a server with TLS, but the URL begins with redis://"},
		{"--redis redis://h?cluster=true --tls-server-name x", "--tls-server-name: for a server with TLS"},
		{"--redis redis://h?master_name=m --tls-cert " + pair.CertFile + " --tls-key " + pair.KeyFile, "--tls-cert, --tls-key: for a server with TLS"},
		{"--redis unix:///run/r.sock --tls-ca " + authority.File, "no TLS on a unix socket"},
		{"--redis rediss://h --tls-cert " + pair.CertFile, "--tls-cert without --tls-key"},
		{"--redis rediss://h --tls-key " + pair.KeyFile, "--tls-key without --tls-cert"},
		{"--redis rediss://h --tls-ca " + none, "--tls-ca " + none + ": no such file"},
		{"--redis rediss://h --tls-ca " + text, "--tls-ca " + text + ": it holds no certificate as PEM"},
		{"--redis rediss://h --tls-ca " + broken, "--tls-ca " + broken + ": certificate 1 in it cannot be read"},
		{"--redis rediss://h --tls-ca " + pair.KeyFile, "--tls-ca " + pair.KeyFile + ": it holds a PRIVATE KEY and no certificate"},
		{"--redis rediss://h --tls-cert " + pair.KeyFile + " --tls-key " + pair.CertFile, "--tls-cert " + pair.KeyFile + ": it holds a PRIVATE KEY"},
		{"--redis rediss://h --tls-cert " + pair.CertFile + " --tls-key " + pair.CertFile, "--tls-key " + pair.CertFile + ", for the certificate"},
		{"--redis rediss://h --tls-cert " + pair.CertFile + " --tls-key " + second.KeyFile, "private key does not match public key"},
		{"--redis rediss://h --tls-cert " + pair.CertFile + " --tls-key " + locked, "encrypted with a passphrase"},
		{"--redis redis://app@h", "a user without a password"},
		{"--redis redis://h --user app", "add one to the URL, or --password-file"},
		{"--redis redis://app:hunter2@h --user app", "--user: there is a user in the URL, too"},
		{"--redis redis://app:hunter2@h --password-file " + password, "--password-file: there is a password in the URL, too"},
		{"--redis redis://h --sentinel-user app", "add ?master_name=…"},
		{"--redis redis://h?cluster=true --sentinel-password-file " + password, "for Sentinel, but the URL names none"},
		{"--redis redis://s?master_name=m&username=app", "a user without a password"},
		{"--redis redis://app@s?master_name=m", "the URL before the first host"},
		{"--redis redis://:hunter2@s?master_name=m --sentinel-password-file " + password, "--sentinel-password-file: there is a password in the URL before the first host"},
		{"--redis redis://h --password-file " + writeFile(t, ""), "it is empty"},
		{"--redis redis://h --password-file " + writeFile(t, "\r\n\n"), "it is empty"},
		{"--redis redis://h --password-file " + writeFile(t, "hunter2\nhunter2\n"), "more than one line"},
		{"--redis redis://h --password-file " + writeFile(t, strings.Repeat("hunter2", 10_000)), "more than 65536 bytes"},
		{"--redis redis://h --password-file " + t.TempDir(), "want a regular file"},
		{"--redis redis://h --password-file " + none, "--password-file " + none + ": no such file"},
		{"--redis redis://h --password-file hunter2", "this one is not shown, in case it is the password itself"},
		{"--redis redis://h --password-file /hunter2", "not shown"},
		{"--redis redis://h --password-file hunter2/hunter2=", "not shown"},
	} {
		_, err := parseConnection(t, strings.Fields(c.args)...)
		if assert.Error(t, err, c.args) {
			assert.Contains(t, err.Error(), c.want, c.args)
			assert.NotContains(t, err.Error(), "hunter2", c.args)
		}
	}
}

func TestAllProblemsOfAConnectionComeInOneError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	code, out, errOut := invoke(t, map[string]string{
		"LEASEQ_REDIS": "redis://:hunter2@h?nonsense=1", "LEASEQ_PREFIX": "a b", "LEASEQ_TLS_CA": filepath.Join(dir, "ca.pem"),
		"LEASEQ_TLS_CERT": filepath.Join(dir, "cert.pem"), "LEASEQ_PASSWORD_FILE": filepath.Join(dir, "password"),
		"LEASEQ_SENTINEL_PASSWORD_FILE": filepath.Join(dir, "sentinel"),
	}, "stats")
	assert.Equal(t, exitUsage, code)
	assert.Empty(t, out)
	for _, part := range []string{"nonsense", `--prefix "a b"`, "ca.pem: no such file", "--tls-cert without --tls-key", "password: no such file", "sentinel: no such file"} {
		assert.Contains(t, errOut, part)
	}
	assert.NotContains(t, errOut, "hunter2")
}

func TestFlagsAndURLTogetherMakeTheLogin(t *testing.T) {
	t.Parallel()
	password, of := writeFile(t, "se cret \r\n"), func(args ...string) *endpoint {
		e, err := parseConnection(t, args...)
		require.NoError(t, err, args)
		return e
	}
	e := of("--redis", "redis://h", "--user", "app", "--password-file", password)
	user, got, err := e.provider(e.single.Username)(t.Context())
	require.NoError(t, err)
	rdb, ok := e.open(true).(*redis.Client)
	require.True(t, ok)
	assert.True(t, rdb.Options().DisableIdentity, "newer servers would want a right for it")
	require.NoError(t, rdb.Close())
	assert.Equal(t, []string{"app", "se cret "}, []string{user, got}, "only the end of the line is cut off")
	e = of("--redis", "rediss://app@h?cluster=true", "--password-file", password)
	assert.Equal(t, "app", e.cluster.Username)
	assert.NotNil(t, e.provider("app"))
	e = of("--redis", "redis://:pass@h", "--user", "app")
	assert.Equal(t, []string{"app", "pass"}, []string{e.single.Username, e.single.Password})
	assert.Nil(t, e.provider("app"))
	e = of("--redis", "redis://watch@s?master_name=m", "--sentinel-password-file", password, "--user", "app", "--password-file", password)
	assert.Equal(t, []string{"watch", "app"}, []string{e.failover.SentinelUsername, e.failover.Username})
	assert.NotNil(t, e.sentinelsPassword)
	e = of("--redis", "redis://:own@s?master_name=m&password=pass", "--sentinel-user", "watch")
	assert.Equal(t, []string{"watch", "own", "pass"}, []string{e.failover.SentinelUsername, e.failover.SentinelPassword, e.failover.Password})
	assert.Empty(t, e.warnings)
}

func TestAFileThatEverybodyCanReadIsWarnedOfOnce(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("its files have no such mode")
	}
	password := writeFile(t, "hunter2")
	require.NoError(t, os.Chmod(password, 0o644))
	pair := redistest.NewAuthority(t).Issue(time.Now().Add(-time.Minute))
	require.NoError(t, os.Chmod(pair.KeyFile, 0o604))
	e, err := parseConnection(t, "--redis", "rediss://h", "--password-file", password, "--tls-cert", pair.CertFile, "--tls-key", pair.KeyFile)
	require.NoError(t, err)
	require.Len(t, e.warnings, 3)
	assert.Contains(t, e.warnings[0], "has expired at")
	assert.Contains(t, e.warnings[1], "--tls-key "+pair.KeyFile+" can be read by everybody on this machine (mode 0604)")
	assert.Contains(t, e.warnings[2], "--password-file "+password+" can be read by everybody on this machine (mode 0644)")

	code, _, errOut := invoke(t, nil, "stats", "--redis", "redis://127.0.0.1:1", "--password-file", password)
	assert.Equal(t, exitRedis, code)
	assert.Equal(t, 1, strings.Count(errOut, "can be read by everybody"), errOut)
	p := launch(t, nil, "run", "--redis", "redis://127.0.0.1:1", "--password-file", password)
	p.err.await(t, "level=WARN", "can be read by everybody")
	p.err.await(t, "level=WARN", "does not answer yet")
	p.cancel(nil)
	assert.Zero(t, p.wait(t))
	assert.Equal(t, 1, strings.Count(p.err.String(), "can be read by everybody"))
	assert.NotContains(t, p.err.String(), "hunter2")
}
