package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/chaos"
	"github.com/leaseq/leaseq/chaos/record"
	"github.com/leaseq/leaseq/internal/redisproc"
	"github.com/leaseq/leaseq/internal/redistest"
)

// documents are where people copy from, the help of each command included.
func documents(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, name := range []string{"README.md", "SECURITY.md", "docs/reaper.md", "docs/operate.md", "deploy/README.md", "deploy/Dockerfile", "deploy/kubernetes.yaml", "deploy/leaseq-reaper.service"} {
		text, err := os.ReadFile(filepath.Join("..", "..", name))
		require.NoError(t, err)
		texts[name] = string(text)
	}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		texts[cmd.CommandPath()+" -h"] = cmd.Long + "\n" + cmd.Example + "\n" + cmd.Flags().FlagUsages()
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(NewApp(nil).root)
	return texts
}

var (
	urlInText      = regexp.MustCompile("(?:rediss?|unix)://[^\\s`'\"|;,)]+")
	variableInText = regexp.MustCompile(`LEASEQ_[A-Z][A-Z_]*`)
)

func TestEveryURLInTheDocumentsIsUnderstood(t *testing.T) {
	t.Parallel()
	seen := 0
	for name, text := range documents(t) {
		for _, url := range urlInText.FindAllString(text, -1) {
			if url = strings.TrimRight(url, ".:"); strings.HasSuffix(url, "…") && !strings.Contains(url, "?") {
				continue // only the beginning of one
			}
			seen++
			_, err := parseURL(url)
			assert.NoError(t, err, "%s: %s", name, url)
		}
	}
	assert.Greater(t, seen, 20)
}

func TestEveryVariableInTheDocumentsExists(t *testing.T) {
	t.Parallel()
	exists := map[string]bool{
		redistest.EnvServer: true,
		record.EnvURL:       true, record.EnvPrefix: true, record.EnvQueue: true, record.EnvSlots: true, record.EnvLease: true,
		record.EnvHistory: true, record.EnvProcess: true, chaos.EnvSlack: true,
	}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) { exists[twin(f.Name)] = true })
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(NewApp(nil).root)
	for name, text := range documents(t) {
		for _, variable := range variableInText.FindAllString(text, -1) {
			assert.True(t, exists[variable], "%s names %s, which no flag has for its twin", name, variable)
		}
	}
}

func TestTheLinesOfTheReadmeStartASidecarForAManagedServer(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	require.NoError(t, err)
	env := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "export "); ok {
			assignment, _, _ := strings.Cut(rest, "#")
			name, value, _ := strings.Cut(strings.TrimSpace(assignment), "=")
			env[name] = value
		}
	}
	a := redistest.NewAuthority(t)
	server := redistest.Server(t, &redisproc.Options{TLS: a.ServerTLS("no")})
	admin := redistest.AdminClient(t, server, nil)
	args := []any{"acl", "setuser"}
	for _, word := range aclLines(t, "README.md")["leaseq-sidecar"] {
		args = append(args, word)
	}
	require.NoError(t, admin.Do(t.Context(), args...).Err())

	// What a person fills in.
	for _, name := range []string{"LEASEQ_REDIS", "LEASEQ_USER", "LEASEQ_PASSWORD_FILE", "LEASEQ_TLS_CA"} {
		require.NotEmpty(t, env[name], name)
	}
	require.Len(t, env, 4)
	env["LEASEQ_REDIS"] = strings.ReplaceAll(env["LEASEQ_REDIS"], "my-redis.example.com:6379", server.TLSAddr())
	env["LEASEQ_PASSWORD_FILE"] = writeFile(t, "CHANGE-ME\n")
	env["LEASEQ_TLS_CA"] = a.File

	store := newStore(t, admin, "leaseq", "orders", 300*time.Millisecond)
	code, out, errOut := invoke(t, env, "stats")
	assert.Zero(t, code, errOut)
	assert.Contains(t, out, "orders")
	p := launch(t, env, "run")
	p.err.await(t, "connected", server.TLSAddr(), "maxmemory_policy=noeviction")
	sweepsAgain(t, p, store)
	endsWell(t, p)
	assert.NotContains(t, p.err.String(), "level=WARN")
}
