package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// Floors is where each package, with everything below it that has no line of its own, stands. An import may only point
// down. Packages of one floor are siblings and never import each other, but for the folders below a package itself.
var Floors = map[string]int{
	"internal/keys":     0,
	"internal/wire":     0,
	"internal/model":    0,
	"internal/lazyctx":  0,
	"internal/pulse":    0,
	"internal/callback": 0,
	"testdata":          0,

	"internal/script":     1,
	"internal/childproc":  1,
	"internal/clockshift": 1,
	"internal/redisproc":  1,
	"internal/servershim": 1,
	"internal/netfault":   1,

	"lease":       2,
	"idempotency": 2,

	"reliable":             3,
	"reaper":               3,
	"idempotency/sqlguard": 3,

	"reliable/otelhooks":    4,
	"reliable/msgpackcodec": 4,
	"reliable/reliabletest": 4,
	"reaper/metrics":        4,
	"reaper/dashboard":      4,
	"chaos":                 4,
	"chaos/record":          4,

	"chaos/htmlreport": 5, // shows what chaos has found: a program that only storms links no plots

	"cmd/reaper": 6,

	// For tests only: nothing below can import these.
	"internal/redistest":  6,
	"internal/oldversion": 6,
	"internal/cases":      7,
	"internal/failover":   7,
	"internal/durability": 7,
	"internal/archtest":   7,
	"internal/mutation":   7,

	"internal/mutation/storm": 8, // a command
}

// optionalFloor is the lowest floor whose packages may know HTTP, a CLI library, Prometheus or OpenTelemetry.
const optionalFloor = 4

// optional are the import paths (with all below them) that only the optional floors may import.
var optional = []string{
	"net/http", "github.com/spf13", "github.com/jedib0t/go-pretty", "github.com/schollz/progressbar",
	"github.com/prometheus", "go.opentelemetry.io", "gonum.org",
}

// floorOf finds the line that holds for a package: its own, or that of the nearest folder above.
func floorOf(floors map[string]int, path string) (floor int, ok bool) {
	for path = short(path); ; {
		if floor, ok = floors[path]; ok {
			return floor, true
		}
		cut := strings.LastIndexByte(path, '/')
		if cut < 0 {
			return 0, false
		}
		path = path[:cut]
	}
}

// CheckFloors returns every import of one package of ours by another that does not point down, every package without a
// floor, what is not of the standard library on the lowest floor, and what only the optional floors may know. Circles
// need no rule of their own: one of their imports would not point down.
func CheckFloors(floors map[string]int, packages []*Package) []string {
	var bad []string
	for _, p := range packages {
		floor, ok := floorOf(floors, p.ImportPath)
		if !ok {
			bad = append(bad, fmt.Sprintf("%s has no floor: give it a line in Floors", short(p.ImportPath)))
			continue
		}
		for _, path := range p.Imports {
			if why := checkImport(floors, p.ImportPath, floor, path); why != "" {
				bad = append(bad, fmt.Sprintf("%s (floor %d) imports %s: %s", short(p.ImportPath), floor, short(path), why))
			}
		}
	}
	return bad
}

func checkImport(floors map[string]int, from string, floor int, path string) string {
	if !own(path) {
		switch first, _, _ := strings.Cut(path, "/"); {
		case floor == 0 && strings.Contains(first, "."):
			return "the lowest floor has the standard library only"
		case floor < optionalFloor && slices.ContainsFunc(optional, func(dir string) bool { return inside(path, dir) }):
			return fmt.Sprintf("only floor %d and above may know it", optionalFloor)
		}
		return ""
	}
	to, ok := floorOf(floors, path)
	switch {
	case !ok, to < floor: // one without a floor is named by itself
		return ""
	case to > floor:
		return fmt.Sprintf("that is floor %d, and imports point down", to)
	case inside(path, from):
		return ""
	}
	return "siblings never import each other"
}
