package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// libraries are those of Libraries that exist, as patterns for go list.
func libraries(t *testing.T) []string {
	t.Helper()
	var patterns []string
	for _, library := range Libraries {
		if hasGo(t, filepath.Join(root(t), filepath.FromSlash(library))) {
			patterns = append(patterns, "./"+library)
		}
	}
	require.Contains(t, patterns, "./reliable")
	return patterns
}

func hasGo(t *testing.T, dir string) bool {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), ".go") && !strings.HasSuffix(entry.Name(), "_test.go") {
			return true
		}
	}
	return false
}

func TestWhoEmbedsALibraryLinksRedisAndUUIDAlone(t *testing.T) {
	t.Parallel()
	linked := map[string]bool{}
	for _, goos := range systems {
		packages, err := List(root(t), goos, true, libraries(t)...)
		require.NoError(t, err)
		require.Empty(t, CheckLinks(Linked, packages), goos)
		for _, p := range packages {
			if p.Module != nil {
				linked[p.Module.Path] = true
			}
		}
	}
	for module, reason := range Linked {
		require.True(t, linked[module], "%s is allowed and linked by nothing: take it off the list", module)
		require.NotEmpty(t, reason, module)
	}
}

func TestConfinedPackagesImportWhatTheyMay(t *testing.T) {
	t.Parallel()
	for _, goos := range systems {
		require.Empty(t, CheckConfined(Confined, ownPackages(t, goos)), goos)
	}
}

func TestAnImportThatAConfinedPackageMayNotHaveIsFound(t *testing.T) {
	t.Parallel()
	confined := map[string][]string{"a": {"b"}, "missing": nil}
	bad := CheckConfined(confined, []*Package{{ImportPath: Module + "/a", Imports: []string{"fmt", "net/http", Module + "/b", Module + "/b/part", "example.org/b"}}})
	require.Equal(t, []string{
		"a imports b/part: it may have the standard library and [b]",
		"a imports example.org/b: it may have the standard library and [b]",
		"missing is confined and is not there",
	}, bad)
}

func TestALinkedModuleThatIsNotAllowedIsFound(t *testing.T) {
	t.Parallel()
	packages, err := List(root(t), "", true, "./reliable")
	require.NoError(t, err)
	bad := CheckLinks(map[string]string{"github.com/redis/go-redis/v9": "the client"}, packages)
	require.Contains(t, strings.Join(bad, "\n"), "module github.com/google/uuid is linked (package github.com/google/uuid)")
	require.NotContains(t, strings.Join(bad, "\n"), "module github.com/redis")
	require.Equal(t, []string{"module vanished.org/x is linked (package vanished.org/x)"}, CheckLinks(nil, []*Package{{ImportPath: "vanished.org/x"}}))
}

func TestMessagePackIsLinkedByItsOwnPackageAlone(t *testing.T) {
	t.Parallel()
	const module = "module github.com/ugorji/go/codec is linked (package github.com/ugorji/go/codec)"
	with, err := List(root(t), "", true, "./reliable/msgpackcodec")
	require.NoError(t, err)
	require.Equal(t, []string{module}, CheckLinks(Linked, with))
	without, err := List(root(t), "", true, append(libraries(t), "./cmd/reaper")...)
	require.NoError(t, err)
	require.NotContains(t, CheckLinks(Linked, without), module)
}

func TestLibrariesForTestsStayInTests(t *testing.T) {
	t.Parallel()
	for _, goos := range systems {
		require.Empty(t, CheckTestOnly(TestOnly, ownPackages(t, goos)), goos)
	}
}

func TestATestLibraryOutsideOfTestsIsFound(t *testing.T) {
	t.Parallel()
	bad := CheckTestOnly(TestOnly, []*Package{
		{ImportPath: Module + "/internal/redistest", Imports: []string{"github.com/stretchr/testify/require", "testing", "github.com/ory/dockertest/v3"}},
		{ImportPath: Module + "/cmd/reaper/demo", Imports: []string{"github.com/alicebob/miniredis/v2", "github.com/stretchr/testify/assert"}},
		{ImportPath: Module + "/reliable", Imports: []string{"testing/quick", "github.com/alicebob/miniredis/v2", Module + "/internal/redistest"}},
	})
	require.Equal(t, []string{
		"cmd/reaper/demo imports github.com/stretchr/testify/assert outside of its tests",
		"reliable imports testing/quick outside of its tests",
		"reliable imports github.com/alicebob/miniredis/v2 outside of its tests",
		"reliable imports internal/redistest outside of its tests",
	}, bad)
}
