package archtest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/leaseq/leaseq/internal/script"
)

// CheckKeysTold returns every key of a partition that a document has no row for.
func CheckKeysTold(document string, names []string) []string {
	var bad []string
	for _, name := range names {
		if !strings.Contains(document, "\n| `"+name+"` |") {
			bad = append(bad, fmt.Sprintf("key %s has no row", name))
		}
	}
	return bad
}

// CheckScriptsTold returns every script whose row is missing in a document, or says something else than its header.
func CheckScriptsTold(document string, headers []script.Header, argv map[string]string) []string {
	var bad []string
	for _, h := range headers {
		row := fmt.Sprintf("| %s | `%s` | `%s` |", h.Name, escapeCell(argv[h.Name]), escapeCell(h.Answer))
		if !strings.Contains(document, "\n"+row+"\n") {
			bad = append(bad, "there is no row "+row)
		}
	}
	return bad
}

// escapeCell writes a text as a cell of a Markdown table.
func escapeCell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

var argvLine = regexp.MustCompile(`(?m)^-- ARGV: (.*)$`)

// argvOf is what a script's header says about ARGV, as it stands there.
func argvOf(body string) string {
	if match := argvLine.FindStringSubmatch(body); match != nil {
		return match[1]
	}
	return ""
}

var (
	counterNamed  = regexp.MustCompile(`'HINCRBY', stats, '([a-z_]+)'`)
	counterTables = regexp.MustCompile(`(?:local tally = |pairs\()\{([^}]*)\}`)
	counterSet    = regexp.MustCompile(`\btally\.([a-z_]+) = `)
	counterField  = regexp.MustCompile(`\b([a-z_]+) = `)
)

// counters finds the names of the counters that scripts raise: named in the call, or gathered in a table before it.
func counters(scripts ...string) []string {
	var names []string
	for _, text := range scripts {
		for _, match := range counterNamed.FindAllStringSubmatch(text, -1) {
			names = append(names, match[1])
		}
		for _, table := range counterTables.FindAllStringSubmatch(text, -1) {
			for _, match := range counterField.FindAllStringSubmatch(table[1], -1) {
				names = append(names, match[1])
			}
		}
		for _, match := range counterSet.FindAllStringSubmatch(text, -1) {
			names = append(names, match[1])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// CheckCountersTold returns every counter that a document does not name.
func CheckCountersTold(document string, names []string) []string {
	var bad []string
	for _, name := range names {
		if !strings.Contains(document, "`"+name+"`") {
			bad = append(bad, fmt.Sprintf("counter %s is not named", name))
		}
	}
	return bad
}
