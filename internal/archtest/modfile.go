package archtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
)

// Required are the modules that the main go.mod may require directly, and why each is worth it.
var Required = map[string]string{
	"github.com/redis/go-redis/v9":      "the Redis client that users have",
	"github.com/google/uuid":            "time-ordered IDs",
	"github.com/spf13/cobra":            "cmd/reaper: commands and flags",
	"github.com/spf13/pflag":            "cmd/reaper: each flag's twin in the environment",
	"github.com/jedib0t/go-pretty/v6":   "cmd/reaper: tables",
	"github.com/schollz/progressbar/v3": "cmd/reaper: progress on a terminal",
	"github.com/alicebob/miniredis/v2":  "cmd/reaper: the demo's Redis where there is no other; tests",
	"github.com/stretchr/testify":       "tests: assertions",
	"github.com/ory/dockertest/v3":      "tests: a Redis in Docker where there is no redis-server",
	"go.uber.org/goleak":                "tests: no goroutine outlives them",
	"pgregory.net/rapid":                "tests: properties",
	"golang.org/x/term":                 "cmd/reaper: progress on a terminal only",
	"github.com/ugorji/go/codec":        "reliable/msgpackcodec: MessagePack",
	"gonum.org/v1/plot":                 "chaos/htmlreport: plots as SVG",
}

// A Requirement is one line of a go.mod.
type Requirement struct {
	Path, Version string
	Indirect      bool
}

// ReadModfile returns the requirements of the go.mod in dir.
func ReadModfile(dir string) ([]Requirement, error) {
	cmd := exec.Command("go", "mod", "edit", "-json")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go mod edit -json: %w", err)
	}
	var file struct{ Require []Requirement }
	err = json.Unmarshal(out, &file)
	return file.Require, err
}

// CheckRequirements returns every direct requirement that is not allowed, and every package that is imported, by a test
// too, from a module that is not: a requirement may be called indirect and not be it.
func CheckRequirements(allowed map[string]string, requirements []Requirement, packages []*Package) []string {
	var bad []string
	for _, r := range requirements {
		if !r.Indirect && allowed[r.Path] == "" {
			bad = append(bad, fmt.Sprintf("go.mod requires %s, which is not on the list", r.Path))
		}
	}
	found := map[string]string{}
	for _, p := range packages {
		for _, path := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			if module := moduleOf(path, requirements); module != "" && allowed[module] == "" {
				found[module] = fmt.Sprintf("%s imports %s of module %s, which is not on the list", short(p.ImportPath), path, module)
			}
		}
	}
	for _, module := range slices.Sorted(maps.Keys(found)) {
		bad = append(bad, found[module])
	}
	return bad
}

// moduleOf finds the required module that a package is of, "" where there is none. The longest path wins.
func moduleOf(path string, requirements []Requirement) string {
	longest := ""
	for _, r := range requirements {
		if inside(path, r.Path) && len(r.Path) > len(longest) {
			longest = r.Path
		}
	}
	return longest
}

// unusedRequirements returns what is allowed and imported by nothing.
func unusedRequirements(allowed map[string]string, requirements []Requirement, packages []*Package) []string {
	used := map[string]bool{}
	for _, p := range packages {
		for _, path := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			used[moduleOf(path, requirements)] = true
		}
	}
	var unused []string
	for _, module := range slices.Sorted(maps.Keys(allowed)) {
		if !used[module] {
			unused = append(unused, strings.TrimSpace(module+" "+allowed[module]))
		}
	}
	return unused
}
