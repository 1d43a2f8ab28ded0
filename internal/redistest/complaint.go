package redistest

import (
	"fmt"
	"slices"
	"strings"
)

// A complaint gathers problems. Those of many IDs become one line.
type complaint struct {
	list []string
	ids  map[string][]string
	kept []string // the keys of ids, in the order of their first use
}

// shown is how many IDs a line names.
const shown = 5

func (c *complaint) add(format string, args ...any) {
	c.list = append(c.list, fmt.Sprintf(format, args...))
}

// each notes a problem of one ID, to be told by flush.
func (c *complaint) each(what, id string) {
	if c.ids == nil {
		c.ids = map[string][]string{}
	}
	if _, known := c.ids[what]; !known {
		c.kept = append(c.kept, what)
	}
	c.ids[what] = append(c.ids[what], fmt.Sprintf("%q", id))
}

func (c *complaint) flush() {
	for _, what := range c.kept {
		all := c.ids[what]
		slices.Sort(all)
		names := strings.Join(all[:min(len(all), shown)], ", ")
		if len(all) > shown {
			names += fmt.Sprintf(" and %d more", len(all)-shown)
		}
		c.add("%s: %s", what, names)
	}
	c.ids, c.kept = nil, nil
}
