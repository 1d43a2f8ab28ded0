package mutation

import (
	"fmt"
	"strings"
	"time"
)

// A Row is one mutant in the table.
type Row struct {
	Mutant
	*Found
}

// Table writes rows as Markdown.
func Table(rows []Row) string {
	var out strings.Builder
	out.WriteString("| without | found by | after | s |\n|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&out, "| %s | %s | %s | %.1f |\n", r.Name, r.Hunt.found(r.By), r.After, float64(r.Took)/float64(time.Second))
	}
	return out.String()
}

func (h Hunt) found(by string) string {
	switch {
	case by == "":
		return "**nothing**"
	case h.Storm != "":
		return "storm " + h.Storm + ": " + by
	case h.Lists:
		return "calls beside the model"
	}
	return "`" + by + "`"
}

// Listed reads the names of the mutants out of a text with the table.
func Listed(text string) []string {
	var names []string
	within := false
	for line := range strings.Lines(text) {
		switch cells := strings.Split(line, "|"); {
		case strings.HasPrefix(line, "| without |"):
			within = true
		case within && strings.HasPrefix(line, "| "):
			names = append(names, strings.TrimSpace(cells[1]))
		case !strings.HasPrefix(line, "|"):
			within = false
		}
	}
	return names
}
