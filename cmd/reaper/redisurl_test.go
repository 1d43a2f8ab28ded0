package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestURLsThatAreUnderstood(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	for text, want := range map[string]string{
		"redis://127.0.0.1:6379/0":                                 "127.0.0.1:6379/0",
		"redis://user:hunter2@redis.internal":                      "redis.internal:6379/0",
		"redis://:hunter2@[::1]:7000/4?read_timeout=2s":            "[::1]:7000/4",
		"redis://:hun%2Fter2@h?cluster=false":                      "h:6379/0",
		"rediss://user:hunter2@h:1":                                "h:1/0",
		"unix://user:hunter2@/run/redis.sock?db=2":                 "unix:/run/redis.sock/2",
		"redis://s1:26379/1?master_name=main&password=hunter2":     "main of the Sentinels s1:26379",
		"redis://s1:26379?master_name=main&addr=s2:1&addr=s3:2":    "main of the Sentinels s1:26379, s2:1, s3:2",
		"redis://:hunter2@n1:7000?cluster=true":                    "the Cluster at n1:7000",
		"rediss://u:hunter2@n1:7000/0?cluster=true&addr=n2:7001":   "the Cluster at n1:7000, n2:7001",
		"redis://n1?cluster=1&dial_timeout=1s&max_retries=2":       "the Cluster at n1:6379",
		"redis://user:hunter2@h:1/2?client_name=x&pool_size=9":     "h:1/2",
		"rediss://user:hunter2@h:1/2?skip_verify=false&protocol=2": "h:1/2",
	} {
		e, err := parseURL(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, e.told)
		assert.NotContains(t, e.told, secret)
		for _, quick := range []bool{true, false} {
			rdb := e.open(quick)
			require.NoError(t, rdb.Close(), text)
		}
	}
}

func TestURLsCarryTheirCredentialsToTheClient(t *testing.T) {
	t.Parallel()
	e, err := parseURL("redis://app:p%40ss@h:1/2?pool_size=9")
	require.NoError(t, err)
	assert.Equal(t, "app", e.single.Username)
	assert.Equal(t, "p@ss", e.single.Password)
	assert.Equal(t, 2, e.single.DB)
	assert.Equal(t, 9, e.single.PoolSize)
	e, err = parseURL("rediss://u:p@h?master_name=main&username=app&password=secret")
	require.NoError(t, err)
	assert.Equal(t, "p", e.failover.SentinelPassword)
	assert.Equal(t, "secret", e.failover.Password)
	assert.NotNil(t, e.failover.TLSConfig)
	e, err = parseURL("redis://u:p@h?cluster=true")
	require.NoError(t, err)
	assert.Equal(t, "p", e.cluster.Password)
}

// wrongURLs all hold the password hunter2, somewhere.
var wrongURLs = map[string]string{
	"hunter2":                                           "begins with none of",
	"127.0.0.1:6379/hunter2":                            "want it like redis://",
	"localhost:hunter2":                                 "want it like redis://",
	"http://user:hunter2@h":                             "begins with none of",
	"redis://user:hun/hunter2@h:6379/0":                 "percent-encoded",
	"redis://user/hunter2@h":                            "percent-encoded",
	"redis://:hunter2%zz@h":                             "percent-encoded",
	"redis://:hunter2@h:port":                           "percent-encoded",
	"redis://h/hunter2":                                 "database number",
	"redis://:hunter2@":                                 "want it like redis://",
	"redis://:hunter2@h/0/1":                            "database number",
	"redis://:hunter2@h/-1":                             "database number",
	"redis://:hunter2@h?addr=h2:1":                      "add master_name=",
	"redis://h?cluster=true&addr=u:hunter2@h2:1":        "host:port",
	"redis://:hunter2@h?cluster=true&master_name=x":     "one of them",
	"redis://:hunter2@h?cluster=perhaps":                "neither true nor false",
	"redis://:hunter2@h/3?cluster=true":                 "database 0 only",
	"redis://:hunter2@h?master_name=":                   "is empty",
	"redis://:hunter2@h?master_name=x&replica_only=1":   "primary only",
	"redis://:hunter2@h?cluster=true&read_only=true":    "primary only",
	"redis://:hunter2@h?password=hunter2":               "not known here: password",
	"rediss://:hunter2@h?ca_cert=ca.pem&password=x":     "--tls-ca, --tls-cert and --tls-key",
	"rediss://:hunter2@h?skip_verify=true":              "--tls-ca (for a self-signed one that certificate itself)",
	"rediss://:hunter2@h?cluster=1&skip_verify=1":       "skip_verify is not supported",
	"rediss://:hunter2@h?pool_size=many":                "pool_size",
	"unix://:hunter2@/run/r.sock?cluster=true":          "unix socket",
	"unix://:hunter2@":                                  "socket path",
	"redis://:hunter2@h?master_name=x&sentinel_user=me": "sentinel_user",
}

func TestWrongURLsAreRefusedWithWhatWouldBeRightAndNeverShown(t *testing.T) {
	t.Parallel()
	for text, want := range wrongURLs {
		for _, command := range []string{"run", "stats", "demo"} {
			code, out, errOut := invoke(t, nil, command, "--redis", text)
			assert.Equal(t, exitUsage, code, text)
			assert.Contains(t, errOut, want, text)
			assert.NotContains(t, out+errOut, "hunter2", text)
			if command == "demo" {
				continue // it takes a server from its command line only
			}
			code, out, errOut = invoke(t, map[string]string{"LEASEQ_REDIS": text}, command)
			assert.Equal(t, exitUsage, code, text)
			assert.NotContains(t, out+errOut, "hunter2", text)
		}
	}
}

func TestAURLInTheWrongPlaceIsNotShownWithItsPassword(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"redis://:hunter2@h"},
		{"run", "redis://user:hunter2@h:6379/0"},
		{"stats", "redis://user:hun/hunter2@h"},
		{"run", "--prefix", "redis://user:hunter2@h"},
		{"run", "--log-level", "redis://s1?master_name=x&password=hunter2"},
		{"run", "--redsi=redis://user:hunter2@h"},
	} {
		code, out, errOut := invoke(t, nil, args...)
		assert.Equal(t, exitUsage, code, args)
		assert.NotContains(t, out+errOut, "hunter2", args)
	}
	assert.Equal(t, `dial redis://***@h: no; "x?password=***"`, redact(`dial redis://a:b@h: no; "x?password=b"`))
	assert.Equal(t, "want redis://user:password@host", redact("want redis://user:password@host"), "our own example")
	assert.False(t, strings.Contains(redact("redis://:p@s@h"), "s@"))
}
