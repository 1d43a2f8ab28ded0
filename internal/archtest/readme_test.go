package archtest

import (
	"io/fs"
	"os"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestDocumentsShowCodeThatIsCompiled(t *testing.T) {
	t.Parallel()
	tree := os.DirFS(root(t))
	files, err := fs.Glob(tree, "reliable/example*_test.go")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	examples := ""
	for _, file := range files {
		examples += readFile(t, tree, file)
	}
	for _, file := range []string{"README.md", "docs/consumer.md"} {
		document := readFile(t, tree, file)
		require.NotEmpty(t, GoBlocks(document), file)
		require.Empty(t, CheckGoBlocks(document, examples), file)
	}
}

func TestDocumentsLinkToWhatIsThere(t *testing.T) {
	t.Parallel()
	tree := os.DirFS(root(t))
	files, err := Files(tree, ".md")
	require.NoError(t, err)
	require.Contains(t, files, "docs/protocol.md")
	for _, file := range files {
		bad, err := CheckLinksOf(tree, file)
		require.NoError(t, err)
		require.Empty(t, bad)
	}
}

func TestCodeThatIsNotCompiledIsFound(t *testing.T) {
	t.Parallel()
	const readme = "# x\n\n```sh\nmake\n```\n\n```go\nfunc a() {\n\tb()\n}\n```\n\nand\n\n```go\nvar c = 1\n```\n"
	require.Equal(t, []string{"func a() {\n\tb()\n}\n", "var c = 1\n"}, GoBlocks(readme))
	require.Empty(t, CheckGoBlocks(readme, "package p\n\nfunc a() {\n\tb()\n}\n\nvar c = 1\n"))
	require.Equal(t, []string{"block 1 of Go code (`func a() {`) does not stand in the examples"},
		CheckGoBlocks(readme, "package p\n\nfunc a() {\n\tb(1)\n}\n\nvar c = 1\n"))
	require.Empty(t, GoBlocks("no code"))
}

func TestLinksThatLeadNowhereAreFound(t *testing.T) {
	t.Parallel()
	tree := fstest.MapFS{
		"docs/a.md": {Data: []byte("# Keys, and `how`\n[1](b.md) [2](../x.go#L1) [3](https://example.org/x) [4](#keys-and-how) [5](c.md) [6](b.md#none) [7](#none)")},
		"docs/b.md": {Data: []byte("## One\n")},
		"x.go":      {Data: []byte("package x\n")},
	}
	bad, err := CheckLinksOf(tree, "docs/a.md")
	require.NoError(t, err)
	require.Equal(t, []string{
		"docs/a.md links to c.md, which is not there",
		"docs/a.md links to b.md#none, and there is no such heading",
		"docs/a.md links to #none, and there is no such heading",
	}, bad)
	_, err = CheckLinksOf(tree, "docs/c.md")
	require.Error(t, err)
}
