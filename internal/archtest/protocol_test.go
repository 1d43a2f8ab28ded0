package archtest

import (
	"os"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/script"
)

func TestTheProtocolTellsOfEveryKeyScriptAndCounter(t *testing.T) {
	t.Parallel()
	tree := os.DirFS(root(t))
	document := readFile(t, tree, "docs/protocol.md")
	require.Empty(t, CheckKeysTold(document, keys.Names))

	files, err := Files(tree, ".lua")
	require.NoError(t, err)
	var headers []script.Header
	var texts []string
	argv := map[string]string{}
	for _, file := range files {
		if strings.Contains(file, "/testdata/") {
			continue
		}
		texts = append(texts, readFile(t, tree, file))
		if path.Base(file) == "lib.lua" {
			continue
		}
		loaded, err := script.Load(tree, file)
		require.NoError(t, err)
		headers = append(headers, loaded.Header)
		argv[loaded.Name] = argvOf(loaded.Body())
	}
	require.Empty(t, CheckScriptsTold(document, headers, argv))
	names := counters(texts...)
	require.Subset(t, names, []string{"claimed", "enqueued", "acked", "newer", "refused", "died", "expired", "cancelled_processing"})
	require.Empty(t, CheckCountersTold(document, names))
}

func TestWhatADocumentDoesNotTellIsFound(t *testing.T) {
	t.Parallel()
	const document = "\n| `due` | ZSET |\n| wake | `none` | `OK \\| NO` |\nThe counter `acked`.\n"
	require.Equal(t, []string{"key dead has no row"}, CheckKeysTold(document, []string{"due", "dead"}))
	headers := []script.Header{{Name: "wake", Answer: "OK | NO"}, {Name: "close", Answer: "OK"}}
	require.Equal(t, []string{"there is no row | close | `session` | `OK` |"},
		CheckScriptsTold(document, headers, map[string]string{"wake": "none", "close": "session"}))
	require.Len(t, CheckScriptsTold(document, headers[:1], map[string]string{"wake": "id"}), 1)
	require.Equal(t, []string{"counter died is not named"}, CheckCountersTold(document, []string{"acked", "died"}))

	require.Equal(t, []string{"a", "b", "c", "d", "e"}, counters(
		"call('HINCRBY', stats, 'c', 1)\nlocal tally = {a = 0, b = 0}\ntally.d = 3\nfor name, n in pairs({e = 1}) do call('HINCRBY', stats, name, n) end"))
	require.Equal(t, "a b", argvOf("-- x: y\n-- ARGV: a b\n"))
	require.Empty(t, argvOf("-- x: y\n"))
}
