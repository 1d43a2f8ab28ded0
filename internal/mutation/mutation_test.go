package mutation

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// full reports whether the mutants are compiled and hunted, as `make mutants` does.
func full() bool { return os.Getenv("LEASEQ_MUTANTS") == "full" }

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	require.NoError(t, err)
	return dir
}

func all() []Mutant { return append(append([]Mutant(nil), Scripts...), Processes...) }

// Every mutant fits the code as it is today. In full, what is to find it finds nothing in the code as it is, and finds
// the mutant. One after the other: a storm must not be disturbed.
func TestEveryMutantIsCaught(t *testing.T) {
	sound := map[Hunt]bool{}
	var rows []Row
	for _, m := range all() {
		t.Run(m.Name, func(t *testing.T) {
			dir := t.TempDir()
			overlay, err := m.Overlay(root(t), dir)
			require.NoError(t, err)
			if !full() {
				return
			}
			if !sound[m.Hunt] {
				f := hunt(t, m.Hunt, dir, "")
				require.False(t, f.Caught, "the code as it is does not pass: %s\n%s", f.By, f.Output)
				sound[m.Hunt] = true
			}
			f := hunt(t, m.Hunt, dir, overlay)
			rows = append(rows, Row{m, f})
			require.True(t, f.Caught, "nothing finds out that this is missing\n%s", f.Output)
			t.Logf("%s, after %s", m.Hunt.found(f.By), f.After)
		})
	}
	if full() {
		fmt.Printf("\n%s\n", Table(rows))
	}
}

func hunt(t *testing.T, h Hunt, dir, overlay string) *Found {
	t.Helper()
	f, err := h.Run(t.Context(), root(t), dir, overlay)
	if f == nil {
		f = &Found{}
	}
	require.NoError(t, err, f.Output)
	return f
}

// The table in chaos/README.md names every mutant that there is, in this order, and no other.
func TestTheTableNamesEveryMutant(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "chaos", "README.md"))
	require.NoError(t, err)
	var names []string
	for _, m := range all() {
		names = append(names, m.Name)
	}
	require.Equal(t, names, Listed(string(text)), "run make mutants, and put its table into chaos/README.md")
}

// An edit whose text is not there, or twice, is refused.
func TestAnEditThatDoesNotFitIsRefused(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.lua"), []byte("one two two"), 0o600))
	for _, old := range []string{"two", "three"} {
		_, err := Edit{File: "a.lua", Old: old}.Apply(dir)
		require.ErrorContains(t, err, "a.lua holds")
	}
	text, err := Edit{File: "a.lua", Old: "one ", New: "no "}.Apply(dir)
	require.NoError(t, err)
	require.Equal(t, "no two two", string(text))
	_, err = Edit{File: "a.lua", Old: "one", New: "one"}.Apply(dir)
	require.ErrorContains(t, err, "changes nothing")
}
