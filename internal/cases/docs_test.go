package cases

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	caseHeading = regexp.MustCompile(`(?m)^## (S[0-9]{2}) \S`)
	caseTest    = regexp.MustCompile("\\bTest:\\s+`Test(S[0-9]{2})`\\.")
	caseName    = regexp.MustCompile(`^Test(S[0-9]{2})(?:[^0-9].*)?$`)
)

// toldCases are the IDs of the cases that a document tells, and those whose test it names, in its order.
func toldCases(document string) (told, named []string) {
	for _, match := range caseHeading.FindAllStringSubmatch(document, -1) {
		told = append(told, match[1])
	}
	for _, match := range caseTest.FindAllStringSubmatch(document, -1) {
		named = append(named, match[1])
	}
	return told, named
}

// testedCases are the IDs of the cases that have a test function in these files, whatever systems they are built for.
func testedCases(files ...string) ([]string, error) {
	var ids []string
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, decl := range file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil {
				if match := caseName.FindStringSubmatch(fn.Name.Name); match != nil {
					ids = append(ids, match[1])
				}
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// compareCases returns every case that is told and not tested, or tested and not told, and what else is wrong with the
// document.
func compareCases(document string, tested []string) []string {
	var bad []string
	told, named := toldCases(document)
	if !slices.Equal(told, named) {
		bad = append(bad, fmt.Sprintf("the headings are of %v, the tests named under them are of %v", told, named))
	}
	for i, id := range told {
		if slices.Contains(told[:i], id) {
			bad = append(bad, id+" is told twice")
		}
		if !slices.Contains(tested, id) {
			bad = append(bad, fmt.Sprintf("%s is told and has no test: want a function Test%s… in internal/cases", id, id))
		}
	}
	for _, id := range tested {
		if !slices.Contains(told, id) {
			bad = append(bad, fmt.Sprintf("%s has a test and is not told: want a heading `## %s …` in docs/cases.md", id, id))
		}
	}
	return bad
}

func TestEveryCaseIsToldAndTested(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile(filepath.Join("..", "..", "docs", "cases.md"))
	require.NoError(t, err)
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	tested, err := testedCases(files...)
	require.NoError(t, err)
	require.NotEmpty(t, tested)
	require.Empty(t, compareCases(string(document), tested))
}

func TestACaseThatIsNotToldOrNotTestedIsFound(t *testing.T) {
	t.Parallel()
	const document = "# Cases\n\n## S01 One\n\nText.\n\nSmall: 1. Test: `TestS01`.\n\n## S02 Two\n\nTest: `TestS02`.\n"
	require.Empty(t, compareCases(document, []string{"S01", "S02"}))
	require.Len(t, compareCases(document, []string{"S02"}), 1)
	require.Contains(t, compareCases(document, []string{"S01", "S02", "S03"})[0], "S03 has a test and is not told")
	require.Contains(t, compareCases(strings.Replace(document, "`TestS02`", "none", 1), []string{"S01", "S02"})[0], "[S01]")
	require.Contains(t, strings.Join(compareCases(document+"\n## S01 One\n\nTest: `TestS01`.\n", []string{"S01", "S02"}), "\n"), "S01 is told twice")

	file := filepath.Join(t.TempDir(), "x_test.go")
	text := "//go:build none\n\npackage x\n\nfunc TestS07_A(t *testing.T) {}\nfunc TestS07B(t *testing.T) {}\nfunc TestS08() {}\n" +
		"func TestS081() {}\nfunc (x) TestS09() {}\nfunc testS10() {}\n"
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	tested, err := testedCases(file)
	require.NoError(t, err)
	require.Equal(t, []string{"S07", "S08"}, tested)
	_, err = testedCases(file + ".gone")
	require.Error(t, err)
}
