package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// aclLines reads the lines that make users out of a document: user → the arguments of ACL SETUSER, its name included.
func aclLines(t *testing.T, document string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", document))
	require.NoError(t, err)
	found := map[string][]string{}
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", " ")) {
		if _, rest, ok := strings.Cut(line, "ACL SETUSER "); ok && strings.HasPrefix(line, "redis-cli ") {
			args := strings.Fields(strings.ReplaceAll(rest, "'", ""))
			found[args[0]] = args
		}
	}
	return found
}

// allowed are the commands that a line allows, in capitals and in order.
func allowed(line []string) []string {
	var commands []string
	for _, word := range line {
		if command, ok := strings.CutPrefix(word, "+"); ok {
			commands = append(commands, strings.ToUpper(command))
		}
	}
	slices.Sort(commands)
	return commands
}

// A role is what a documented user is for: the scripts that it runs, and the commands that it sends beside them.
type role struct{ scripts, commands string }

// roles has a row for each user. A new script needs a place here, and its commands one in docs/reaper.md.
var roles = map[string]role{
	"leaseq-sidecar":  {"expire retain trim stats limits", "INFO SMEMBERS"},
	"leaseq-consumer": {"claim settle extend expire retain trim policy limits wake stats open seal close begin commit giveup keep look", "BLPOP SADD"},
	"leaseq-producer": {"enqueue open seal close", "SADD"},
	"leaseq-guard":    {"begin commit giveup keep look trim open seal close", ""},
	"leaseq-operator": {"cancel redrive purge reschedule bury edit import list inspect stats delete erase wake pause policy limits open seal close", "HGETALL INFO SADD SCAN SMEMBERS SREM"},
}

func TestTheDocumentedUsersAreAllowedTheCommandsOfTheirScriptsAndNothingMore(t *testing.T) {
	t.Parallel()
	scripts, lines := readScripts(t), aclLines(t, "docs/reaper.md")
	assigned := map[string]bool{}
	for user, r := range roles {
		want := append(strings.Fields(r.commands), "EVAL", "EVALSHA")
		for _, name := range strings.Fields(r.scripts) {
			assigned[name] = true
			require.Contains(t, scripts, name)
			want = append(want, scripts[name]...)
		}
		slices.Sort(want)
		assert.Equal(t, slices.Compact(want), allowed(lines[user]), "docs/reaper.md, %s: the commands of its scripts have changed", user)
	}
	for name := range scripts {
		assert.True(t, assigned[name], "the script %s belongs to no documented user", name)
	}
}

func TestTheAdviceAfterARefusedCommandIsTheDocumentedLine(t *testing.T) {
	t.Parallel()
	want := slices.DeleteFunc(allowed(aclLines(t, "docs/reaper.md")["leaseq-sidecar"]), func(c string) bool { return c == "INFO" })
	assert.Equal(t, want, allowed(strings.Fields(sidecarRules)))
	line := aclLines(t, "README.md")["leaseq-sidecar"]
	assert.Equal(t, aclLines(t, "docs/reaper.md")["leaseq-sidecar"], line, "the README shows the same")
}

var (
	luaFunction = regexp.MustCompile(`(?ms)^local function (\w+)\(.*?^end`)
	luaWord     = regexp.MustCompile(`'([A-Z]{3,})'`)
	luaName     = regexp.MustCompile(`\b(\w+)\(`)
	luaComment  = regexp.MustCompile(`--.*`)
)

// notCommands are words in capitals that are options of commands, or answers.
var notCommands = []string{"AGAIN", "COUNT", "LIMIT", "NOSESSION", "SHORT", "STALE", "WITHSCORES"}

// readScripts finds the Redis commands that each script can send, also by the functions of the libraries before it.
func readScripts(t *testing.T) map[string][]string {
	t.Helper()
	functions, bodies := map[string]string{}, map[string]string{}
	for _, dir := range []string{"lease/lua", "idempotency/lua", "internal/script/lua"} {
		files, err := filepath.Glob(filepath.Join("..", "..", dir, "*.lua"))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, path := range files {
			raw, err := os.ReadFile(path)
			require.NoError(t, err)
			text := luaComment.ReplaceAllString(string(raw), "")
			if name := strings.TrimSuffix(filepath.Base(path), ".lua"); name != "lib" {
				bodies[name] = text
				continue
			}
			for _, m := range luaFunction.FindAllStringSubmatch(text, -1) {
				functions[m[1]] = m[0]
			}
		}
	}
	commands := map[string][]string{}
	for name, body := range bodies {
		found := map[string]bool{}
		commandsOf(body, functions, map[string]bool{}, found)
		commands[name] = sortedKeys(found)
	}
	return commands
}

func commandsOf(text string, functions map[string]string, seen, found map[string]bool) {
	for _, m := range luaWord.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(notCommands, m[1]) {
			found[m[1]] = true
		}
	}
	for _, m := range luaName.FindAllStringSubmatch(text, -1) {
		if body, ok := functions[m[1]]; ok && !seen[m[1]] {
			seen[m[1]] = true
			commandsOf(body, functions, seen, found)
		}
	}
}
