package main

import (
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redisproc"
	"github.com/leaseq/leaseq/internal/redistest"
)

// lock gives a server a user, and all connections of it an end.
func lock(t *testing.T, admin *redis.Client, user, password string) {
	t.Helper()
	require.NoError(t, admin.Do(t.Context(), "acl", "setuser", user, "reset", "on", ">"+password, "~*", "&*", "+@all").Err())
}

func TestAPasswordFileIsReadAgainForEachNewConnection(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, nil)
	admin := redistest.AdminClient(t, server, nil)
	lock(t, admin, "sidecar", "hunter2/@:")
	path := writeFile(t, "hunter2/@:\n")
	p, store := mustSweep(t, admin, newPrefix(), "--redis", "redis://"+server.Addr(), "--user", "sidecar", "--password-file", path)
	assert.Equal(t, "sidecar", userOf(t, admin))

	// The password is changed at the server: what is connected stays so, what is new is refused and said, and the
	// program goes on.
	lock(t, admin, "sidecar", "hunter3")
	sweepsAgain(t, p, store)
	require.NoError(t, admin.ClientKillByFilter(t.Context(), "USER", "sidecar").Err())
	p.err.await(t, "somebody has to change something", "refuses the credentials", "WRONGPASS", "--password-file")
	require.NoError(t, os.WriteFile(path, []byte("hunter3\n"), 0o600))
	sweepsAgain(t, p, store)

	// A file that is gone for a moment, as while a secret is replaced, does not end it either.
	require.NoError(t, os.Remove(path))
	require.NoError(t, admin.ClientKillByFilter(t.Context(), "USER", "sidecar").Err())
	p.err.await(t, "somebody has to change something", "--password-file "+path+": no such file")
	require.NoError(t, os.WriteFile(path, []byte("hunter3"), 0o600))
	sweepsAgain(t, p, store)
	endsWell(t, p)
	assert.Equal(t, 2, strings.Count(p.err.String(), "somebody has to change something"), "once for each problem")
	assert.NotContains(t, p.err.String()+p.out.String(), "hunter")
}

// userOf is the user of the sidecar's connections.
func userOf(t *testing.T, admin *redis.Client) string {
	t.Helper()
	clients, err := admin.ClientList(t.Context()).Result()
	require.NoError(t, err)
	for line := range strings.Lines(clients) {
		if !strings.Contains(line, "user=default") {
			_, rest, _ := strings.Cut(line, "user=")
			user, _, _ := strings.Cut(rest, " ")
			return user
		}
	}
	return "default"
}

func TestMistakesWithCredentialsAreNamedWithWhatWouldBeRight(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, &redisproc.Options{Args: []string{"--requirepass", "swordfish"}})
	admin := redistest.AdminClient(t, server, &redisproc.Options{Args: []string{"--requirepass", "swordfish"}})
	lock(t, admin, "sidecar", "marlin")
	require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "idle", "on", ">marlin", "~*", "+@all", "-select").Err())
	url, wrong, right := "redis://"+server.Addr(), writeFile(t, "hunter2"), writeFile(t, "marlin\n")
	for _, c := range []trouble{
		{"none", []string{"--redis", url}, []string{server.Addr(), "refuses the credentials", "NOAUTH", "it wants a password"}, exitRedis},
		{"wrong password", []string{"--redis", "redis://sidecar:hunter2@" + server.Addr()}, []string{server.Addr(), "refuses the credentials", "WRONGPASS"}, exitRedis},
		{"wrong password file", []string{"--redis", url, "--user", "sidecar", "--password-file", wrong}, []string{server.Addr(), "WRONGPASS", "--password-file"}, exitRedis},
		{"wrong user", []string{"--redis", url, "--user", "hunter2", "--password-file", right}, []string{server.Addr(), "WRONGPASS"}, exitRedis},
		{"no database of that number", []string{"--redis", "redis://sidecar:marlin@" + server.Addr() + "/99"}, []string{server.Addr(), "refuses database 99", "?cluster=true"}, exitRedis},
		{"no right to choose a database", []string{"--redis", "redis://idle:marlin@" + server.Addr() + "/3"}, []string{server.Addr(), "refuses database 3", "NOPERM", "'select'", "+select"}, exitRedis},
	} {
		c.check(t)
	}
	code, _, errOut := invoke(t, nil, "stats", "--redis", url+"/7", "--user", "sidecar", "--password-file", right)
	assert.Zero(t, code, errOut)
}

func TestAnAddressOfAnotherKindOfServerIsNamed(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, nil)
	_, port, _ := strings.Cut(server.Addr(), ":")
	sentinel := redistest.Server(t, &redisproc.Options{Sentinel: []string{"monitor main 127.0.0.1 " + port + " 1"}})
	replica := redistest.Server(t, &redisproc.Options{Args: []string{"--replicaof", "127.0.0.1 " + port}})
	for _, c := range []trouble{
		{"no Sentinel", []string{"--redis", "redis://" + server.Addr() + "?master_name=main"}, []string{server.Addr(), "are these Sentinels?"}, exitRedis},
		{"unknown primary", []string{"--redis", "redis://" + sentinel.Addr() + "?master_name=prime"}, []string{"prime of the Sentinels", "is not known to them", "sentinel monitor"}, exitRedis},
	} {
		c.check(t)
	}
	p := launch(t, nil, "run", "--redis", "redis://"+sentinel.Addr())
	assert.Equal(t, exitRedis, p.wait(t))
	assert.Contains(t, p.err.String(), "is a Sentinel: add ?master_name=")
	p = launch(t, nil, "run", "--redis", "redis://"+replica.Addr())
	p.err.await(t, "level=WARN", "this server is a replica")
	endsWell(t, p)
}
