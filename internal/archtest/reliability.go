package archtest

import (
	"fmt"
	"io/fs"
	"regexp"
	"strings"
)

// faultRows is how many rows the fault table has.
const faultRows = 27

// testName finds the tests that a row names.
var testName = regexp.MustCompile("`(Test[A-Za-z0-9_]+)`")

// CheckFaultTable returns every row of the fault table in docs/reliability.md that names no test, or one that is not there.
// A row may say "not here" with its reason instead.
func CheckFaultTable(tree fs.FS) ([]string, error) {
	text, err := fs.ReadFile(tree, "docs/reliability.md")
	if err != nil {
		return nil, err
	}
	tests, err := testsIn(tree)
	if err != nil {
		return nil, err
	}
	var bad []string
	for n := 1; n <= faultRows; n++ {
		row := ""
		for line := range strings.Lines(string(text)) {
			if row == "" && strings.HasPrefix(line, fmt.Sprintf("| %d | ", n)) {
				row = line
			}
		}
		names := testName.FindAllStringSubmatch(row, -1)
		switch {
		case row == "":
			bad = append(bad, fmt.Sprintf("row %d is missing", n))
		case len(names) == 0 && !strings.Contains(row, "not here"):
			bad = append(bad, fmt.Sprintf("row %d names no test, and does not say why", n))
		}
		for _, name := range names {
			if !tests[name[1]] {
				bad = append(bad, fmt.Sprintf("row %d names %s, which is no test", n, name[1]))
			}
		}
	}
	return bad, nil
}

var testFunc = regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9_]+)\(`)

// testsIn are the names of all tests of the tree.
func testsIn(tree fs.FS) (map[string]bool, error) {
	files, err := Files(tree, ".go")
	if err != nil {
		return nil, err
	}
	tests := map[string]bool{}
	for _, name := range files {
		if !isTest(name) {
			continue
		}
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return nil, err
		}
		for _, found := range testFunc.FindAllStringSubmatch(string(text), -1) {
			tests[found[1]] = true
		}
	}
	return tests, nil
}
