package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
)

func TestShellsAreGivenACompletionScript(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		code, out, errOut := invoke(t, nil, "completion", shell)
		require.Zero(t, code, errOut)
		assert.Contains(t, out, "__complete", shell)
	}
}

func TestNamesOfQueuesAreCompleted(t *testing.T) {
	t.Parallel()
	rdb, prefix := redistest.Client(t), newPrefix()
	one := newStore(t, rdb, prefix, redistest.Queue(t), time.Minute).Queue()
	two := newStore(t, rdb, prefix, redistest.Queue(t), time.Minute).Queue()
	names := func(out string) (found []string) {
		for line := range strings.Lines(out) {
			if line = strings.TrimSpace(line); !strings.HasPrefix(line, ":") {
				found = append(found, line)
			}
		}
		return found
	}
	env := map[string]string{"LEASEQ_REDIS": serverURL(t), "LEASEQ_PREFIX": prefix}
	expect := func(want []string, env map[string]string, args ...string) {
		var got []string
		assert.Eventually(t, func() bool { // a busy machine may not answer within the time that a shell waits
			code, out, _ := invoke(t, env, append([]string{"__complete"}, args...)...)
			got = names(out)
			slices.Sort(got)
			return code == 0 && slices.Equal(got, want)
		}, within, 5*time.Millisecond, "%v: %v", args, &got)
	}
	both := []string{one, two}
	slices.Sort(both)
	for _, command := range [][]string{{"queue", "delete"}, {"enqueue"}, {"stats"}, {"run"}, {"dead"}, {"redrive"}, {"import"}} {
		expect(both, env, append(command, "")...)
		expect(both, nil, append(command, "--redis", serverURL(t), "--prefix", prefix, "")...)
	}
	expect([]string{two}, env, "stats", one, "")
	expect([]string{two}, env, "run", one, "")
	code, out, _ := invoke(t, env, "__complete", "queue", "delete", one, "")
	assert.Zero(t, code)
	assert.Empty(t, names(out), "one queue is all it takes")
}

func TestCompletionSaysNothingWhereThereIsNoAnswer(t *testing.T) {
	t.Parallel()
	proxy := redistest.Proxy(t, redistest.Addr(t))
	proxy.BlackHole(true)
	for _, url := range []string{"redis://" + proxy.Addr(), "redis://127.0.0.1:1", "nonsense"} {
		began := time.Now()
		code, out, errOut := invoke(t, nil, "__complete", "stats", "--redis", url, "")
		assert.Zero(t, code)
		assert.Equal(t, ":4\n", out, "no names, and no files")
		assert.NotContains(t, errOut, "reached")
		assert.Less(t, time.Since(began), 20*time.Second)
	}
}

func TestQueueAloneIsHelp(t *testing.T) {
	t.Parallel()
	code, out, errOut := invoke(t, nil, "queue")
	assert.Zero(t, code)
	assert.Empty(t, errOut)
	assert.Contains(t, out, "delete")
	code, _, errOut = invoke(t, nil, "queue", "remove")
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, errOut, `unknown command "remove"`)
}
