package archtest

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestEachRowOfTheFaultTableHasATestOrAReason(t *testing.T) {
	t.Parallel()
	bad, err := CheckFaultTable(os.DirFS(root(t)))
	require.NoError(t, err)
	require.Empty(t, bad)
}

func TestRowsWithoutATestAreFound(t *testing.T) {
	t.Parallel()
	table := &strings.Builder{}
	for n := 4; n <= faultRows; n++ {
		fmt.Fprintf(table, "| %d | x | y | not here: a reason |\n", n)
	}
	tree := fstest.MapFS{
		"docs/reliability.md": {Data: []byte("| 1 | a | b | `TestThere` |\n| 2 | a | b | `TestNowhere` |\n| 3 | a | b | |\n" + strings.Replace(table.String(), "| 9 |", "| nine |", 1))},
		"x/x_test.go":         {Data: []byte("package x\n\nfunc TestThere(t *testing.T) {}\n")},
	}
	bad, err := CheckFaultTable(tree)
	require.NoError(t, err)
	require.Equal(t, []string{
		"row 2 names TestNowhere, which is no test", "row 3 names no test, and does not say why", "row 9 is missing",
	}, bad)
}
