// Package testdata holds sample data, embedded so that an installed program has it. README.md describes the files.
package testdata

import _ "embed"

//go:embed orders.jsonl
var orders string

// Orders returns the sample jobs, JSON Lines: one object a line, each line ended by a newline. The fields are described
// in README.md. The bytes are a copy that the caller may change.
func Orders() []byte { return []byte(orders) }
