package archtest

import (
	"os"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestKeysAreBuiltInOnePlace(t *testing.T) {
	t.Parallel()
	bad, err := CheckKeyNames(os.DirFS(root(t)))
	require.NoError(t, err)
	require.Empty(t, bad)
}

func TestAKeyBuiltElsewhereIsFound(t *testing.T) {
	t.Parallel()
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte("package p\n\n" + text)} }
	bad, err := CheckKeyNames(fstest.MapFS{
		"a/a.go":              file("var a = prefix + \":v1:\" + name\nvar b = fmt.Sprintf(`%s:v1:{%s}:due`, p, q)\n"),
		"a/b.go":              file("func f() string { return \"{\" + q + \"}:due\" }\n"),
		"a/good.go":           file("// a comment may say :v1:{queue}\nvar a = \"v1\"\nvar c = ':'\nvar d = \"{}\"\n"),
		"a/a_test.go":         file("var a = \"leaseq:v1:{q}:due\"\n"),
		"internal/keys/in.go": file("var a = \":v1:{\"\n"),
	})
	require.NoError(t, err)
	require.Len(t, bad, 3)
	require.Contains(t, bad[0], "a/a.go:3:18: \":v1:\" looks like a part of a key")
	require.Contains(t, bad[1], "a/a.go:4:21")
	require.Contains(t, bad[2], "a/b.go:3:")

	_, err = CheckKeyNames(fstest.MapFS{"bad.go": {Data: []byte("no Go at all")}})
	require.ErrorContains(t, err, "bad.go")
}
