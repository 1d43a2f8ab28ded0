package archtest

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the folder of the main module.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(dir, "go.mod"))
	return dir
}

// listed has the packages of the main module by operating system, once each.
var listed = map[string]func() ([]*Package, error){}

func init() {
	for _, goos := range systems {
		listed[goos] = sync.OnceValues(func() ([]*Package, error) {
			return List(filepath.Join("..", ".."), goos, false, "./...", "./testdata/")
		})
	}
}

// ownPackages lists the packages of the main module, as one of systems builds them. Nobody may change them.
func ownPackages(t *testing.T, goos string) []*Package {
	t.Helper()
	packages, err := listed[goos]()
	require.NoError(t, err)
	require.NotEmpty(t, packages)
	return packages
}

// systems are those that leaseq is built for.
var systems = []string{"linux", "darwin", "windows"}

func TestImportsPointDown(t *testing.T) {
	t.Parallel()
	for _, goos := range systems {
		require.Empty(t, CheckFloors(Floors, ownPackages(t, goos)), goos)
	}
}

func TestImportsThatDoNotPointDownAreFound(t *testing.T) {
	t.Parallel()
	floors := map[string]int{"low": 0, "a": 1, "b": 1, "a/high": 2, "top": 4}
	for _, c := range []struct {
		from, imports string
		want          string // "": allowed
	}{
		{"a", "low", ""},
		{"a", "a/part", ""},
		{"a/part", "a/part/deeper", ""},
		{"a/high", "a", ""},
		{"a/high", "b", ""},
		{"top", "a/high/part", ""},
		{"a", "b", "siblings never import each other"},
		{"a", "b/part", "siblings"},
		{"a/part", "a", "siblings"}, // with the line above, a circle
		{"a/part", "a/other", "siblings"},
		{"a", "ab", ""}, // and ab has no floor, below
		{"low", "a", "floor 1, and imports point down"},
		{"a", "a/high", "floor 2, and imports point down"},
	} {
		bad := CheckFloors(floors, []*Package{{ImportPath: Module + "/" + c.from, Imports: []string{Module + "/" + c.imports}}})
		if c.want == "" {
			require.Empty(t, bad, "%s imports %s", c.from, c.imports)
			continue
		}
		require.Len(t, bad, 1, "%s imports %s", c.from, c.imports)
		require.Contains(t, bad[0], c.want)
	}
	bad := CheckFloors(floors, []*Package{
		{ImportPath: Module + "/ab"},
		{ImportPath: Module + "/low", Imports: []string{"net/url", "github.com/redis/go-redis/v9"}},
		{ImportPath: Module + "/a", Imports: []string{"net/http", "net/http/pprof", "net/httpx", "github.com/spf13/cobra"}},
		{ImportPath: Module + "/top", Imports: []string{"net/http", "github.com/spf13/cobra"}},
	})
	require.Equal(t, []string{
		"ab has no floor: give it a line in Floors",
		"low (floor 0) imports github.com/redis/go-redis/v9: the lowest floor has the standard library only",
		"a (floor 1) imports net/http: only floor 4 and above may know it",
		"a (floor 1) imports net/http/pprof: only floor 4 and above may know it",
		"a (floor 1) imports github.com/spf13/cobra: only floor 4 and above may know it",
	}, bad)
}

func TestAListThatGoCannotMakeIsAnError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.org/m\n"), 0o600))
	_, err := List(dir, "", false, "./unheard-of")
	require.ErrorContains(t, err, "unheard-of")
}
