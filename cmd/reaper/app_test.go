package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHelpOfEveryCommandNamesTheTwinOfEveryFlag(t *testing.T) {
	t.Parallel()
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			named := strings.HasSuffix(f.Usage, "["+twin(f.Name)+"]")
			assert.Equal(t, !ownServer(cmd, f), named, "%s --%s: %s", cmd.CommandPath(), f.Name, f.Usage)
		})
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(NewApp(nil).root)

	code, out, _ := invoke(t, nil, "run", "-h")
	assert.Zero(t, code)
	for _, part := range []string{"LEASEQ_REDIS", "LEASEQ_PREFIX", "LEASEQ_BATCH", "LEASEQ_LOG_LEVEL", "LEASEQ_LOG_FORMAT", "Examples:"} {
		assert.Contains(t, out, part)
	}
}

func TestHelpOfOurCommandsHasAnExampleEach(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--help"}, {"run", "--help"}, {"queues", "--help"}, {"stats", "--help"}, {"enqueue", "--help"}, {"queue", "--help"},
		{"queue", "delete", "--help"}, {"list", "--help"}, {"dead", "--help"}, {"show", "--help"}, {"cancel", "--help"},
		{"reschedule", "--help"}, {"promote", "--help"}, {"bury", "--help"}, {"edit", "--help"}, {"redrive", "--help"}, {"purge", "--help"},
		{"export", "--help"}, {"import", "--help"}, {"chaos", "--help"}, {"capacity", "--help"}, {"version", "--help"},
	} {
		code, out, errOut := invoke(t, nil, args...)
		assert.Zero(t, code, args)
		assert.Contains(t, out, "Examples:", args)
		assert.Empty(t, errOut, args)
	}
}

func TestHelpOfTheProgramDocumentsTheExitCodes(t *testing.T) {
	t.Parallel()
	code, out, _ := invoke(t, nil)
	assert.Zero(t, code)
	for _, part := range []string{"Exit codes:", "\n  0 ", "\n  1 ", "\n  2 ", "\n  3 ", "130, 143", "demo", "run", "queues", "stats", "enqueue", "queue", "chaos", "capacity", "version",
		"list", "dead", "show", "cancel", "reschedule", "promote", "bury", "edit", "redrive", "purge", "export", "import"} {
		assert.Contains(t, out, part)
	}
	assert.NotContains(t, out, "demo-worker")
}

func TestVersionSaysWhatBuiltIt(t *testing.T) {
	t.Parallel()
	code, out, errOut := invoke(t, nil, "version")
	assert.Zero(t, code)
	assert.Empty(t, errOut)
	assert.Regexp(t, `^reaper \S+ go1\.\S+ \w+/\w+\n$`, out)
}

func TestWrongUsageExitsWithTwoAndSaysWhatWouldBeRight(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		env  map[string]string
		want string
	}{
		{args: []string{"swep"}, want: `unknown command "swep"`},
		{args: []string{"run", "--bath", "3"}, want: "unknown flag: --bath"},
		{args: []string{"run", "--batch", "many"}, want: `"many"`},
		{args: []string{"run", "--batch", "0"}, want: "want 1 to 1000"},
		{args: []string{"run", "--batch", "1001"}, want: "want 1 to 1000"},
		{args: []string{"run", "--log-level", "loud"}, want: "want debug, info, warn or error"},
		{args: []string{"run", "--log-format", "xml"}, want: "want text or json"},
		{args: []string{"run", "--prefix", "a{b}"}, want: `--prefix "a{b}"`},
		{args: []string{"run", "no blanks"}, want: `"no blanks"`},
		{args: []string{"run", "orders", "orders"}, want: "named twice"},
		{args: []string{"run", "--redis", "127.0.0.1:6379"}, want: "want it like redis://"},
		{args: []string{"stats", "orders", "orders"}, want: "named twice"},
		{args: []string{"stats", "--timeout", "-1s"}, want: "want more than 0"},
		{args: []string{"stats", "a{b"}, want: `queue name "a{b"`},
		{args: []string{"version", "please"}, want: "unknown command"},
		{args: []string{"run"}, env: map[string]string{"LEASEQ_BATCH": "many"}, want: `LEASEQ_BATCH="many" is no value for --batch`},
		{args: []string{"run"}, env: map[string]string{"LEASEQ_LOG_LEVEL": "loud"}, want: `"loud"`},
		{args: []string{"stats"}, env: map[string]string{"LEASEQ_JSON": "perhaps"}, want: "LEASEQ_JSON"},
	} {
		code, out, errOut := invoke(t, c.env, c.args...)
		assert.Equal(t, exitUsage, code, c.args)
		assert.Empty(t, out, c.args)
		assert.Contains(t, errOut, c.want, c.args)
		assert.True(t, strings.HasPrefix(errOut, "reaper: "), errOut)
		assert.Contains(t, errOut, "--help' for usage", c.args)
	}
}

func TestAFlagBeatsTheEnvironmentAndAnEmptyVariableCountsAsUnset(t *testing.T) {
	t.Parallel()
	parse := func(env map[string]string, args ...string) *runCommand {
		app := NewApp(&AppOptions{Out: t.Output(), Err: t.Output(), LookupEnv: func(name string) (string, bool) {
			value, ok := env[name]
			return value, ok
		}})
		c := &runCommand{app: app}
		cmd := c.command()
		app.postpone(cmd)
		app.root = cmd
		require.NoError(t, app.ParseFlags(args))
		require.NoError(t, app.Close())
		return c
	}
	env := map[string]string{"LEASEQ_REDIS": "redis://example.org:7000/3", "LEASEQ_BATCH": "7", "LEASEQ_PREFIX": ""}
	c := parse(env)
	assert.Equal(t, "example.org:7000/3", c.endpoint.told)
	assert.Equal(t, 7, c.batch)
	assert.Equal(t, "leaseq", c.connection.prefix)

	c = parse(env, "--batch", "9", "--redis", "redis://example.org:7001")
	assert.Equal(t, "example.org:7001/0", c.endpoint.told)
	assert.Equal(t, 9, c.batch)

	c = parse(nil)
	assert.Equal(t, "127.0.0.1:6379/0", c.endpoint.told)
	assert.Nil(t, c.queues)
}
