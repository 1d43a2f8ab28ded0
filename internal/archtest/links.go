package archtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Linked are the modules beside our own that a program which embeds one of Libraries may link, and why.
var Linked = map[string]string{
	"github.com/redis/go-redis/v9": "the Redis client that the user hands in",
	"github.com/cespare/xxhash/v2": "go-redis hashes with it",
	"go.uber.org/atomic":           "go-redis counts with it",
	"golang.org/x/sys":             "go-redis asks it for the processor's abilities",
	"github.com/google/uuid":       "time-ordered IDs",
}

// Libraries are the packages that users embed.
var Libraries = []string{"reliable", "lease", "reaper", "idempotency", "chaos", "chaos/record"}

// Confined are packages that may import the standard library and these packages of ours alone.
var Confined = map[string][]string{
	"chaos/record": {"reliable"}, // a worker of the user's has it inside
}

// CheckConfined returns every import of a confined package that it may not have, and confined packages that are not
// there.
func CheckConfined(confined map[string][]string, packages []*Package) []string {
	var bad []string
	for _, name := range slices.Sorted(maps.Keys(confined)) {
		i := slices.IndexFunc(packages, func(p *Package) bool { return short(p.ImportPath) == name })
		if i < 0 {
			bad = append(bad, name+" is confined and is not there")
			continue
		}
		for _, path := range packages[i].Imports {
			first, _, _ := strings.Cut(path, "/")
			if strings.Contains(first, ".") && !(own(path) && slices.Contains(confined[name], short(path))) {
				bad = append(bad, fmt.Sprintf("%s imports %s: it may have the standard library and %v", name, short(path), confined[name]))
			}
		}
	}
	return bad
}

// CheckLinks returns every module in what a library links that is neither ours nor allowed.
func CheckLinks(allowed map[string]string, packages []*Package) []string {
	found := map[string]string{}
	for _, p := range packages {
		switch {
		case p.Standard || p.Own():
		case p.Module == nil:
			found[p.ImportPath] = p.ImportPath
		case allowed[p.Module.Path] == "":
			found[p.Module.Path] = p.ImportPath
		}
	}
	var bad []string
	for _, module := range slices.Sorted(maps.Keys(found)) {
		bad = append(bad, fmt.Sprintf("module %s is linked (package %s)", module, found[module]))
	}
	return bad
}

// TestOnly are the libraries for tests, with all packages below them, and the packages of ours that may import them
// beside _test files.
var TestOnly = map[string][]string{
	"github.com/stretchr/testify":     {"internal/redistest"},
	"github.com/ory/dockertest":       {"internal/redistest"},
	"github.com/alicebob/miniredis":   {"internal/redistest", "cmd/reaper"}, // the demo's Redis where there is no other
	"go.uber.org/goleak":              {"internal/redistest"},
	"pgregory.net/rapid":              {},
	"testing":                         {"internal/redistest", "internal/oldversion", "reliable/reliabletest"},
	Module + "/internal/redistest":    {},
	Module + "/internal/archtest":     {},
	Module + "/internal/cases":        {},
	Module + "/internal/netfault":     {"internal/redistest", "chaos"},
	Module + "/reliable/reliabletest": {},
}

// CheckTestOnly returns every import of a library for tests by a file that is built into a user's program.
func CheckTestOnly(libraries map[string][]string, packages []*Package) []string {
	var bad []string
	for _, p := range packages {
		for _, path := range p.Imports {
			for _, library := range slices.Sorted(maps.Keys(libraries)) {
				allowed := libraries[library]
				ok := inside(p.ImportPath, library) || slices.ContainsFunc(allowed, func(dir string) bool { return inside(short(p.ImportPath), dir) })
				if inside(path, library) && !ok {
					bad = append(bad, fmt.Sprintf("%s imports %s outside of its tests", short(p.ImportPath), short(path)))
				}
			}
		}
	}
	return bad
}
