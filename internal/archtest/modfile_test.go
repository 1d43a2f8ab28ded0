package archtest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDirectRequirementsHaveAReason(t *testing.T) {
	t.Parallel()
	requirements, err := ReadModfile(root(t))
	require.NoError(t, err)
	require.NotEmpty(t, requirements)
	var all []*Package
	for _, goos := range systems {
		all = append(all, ownPackages(t, goos)...)
	}
	require.Empty(t, CheckRequirements(Required, requirements, all))
	require.Empty(t, unusedRequirements(Required, requirements, all), "allowed and imported by nothing: take them off the list")
}

func TestARequirementWithoutAReasonIsFound(t *testing.T) {
	t.Parallel()
	requirements := []Requirement{
		{Path: "example.org/good"}, {Path: "example.org/bad"}, {Path: "example.org/hidden", Indirect: true},
		{Path: "example.org/hidden/v2", Indirect: true}, {Path: "example.org/indirect", Indirect: true},
	}
	allowed := map[string]string{"example.org/good": "it is good", "example.org/unused": "once it was"}
	packages := []*Package{
		{ImportPath: Module + "/a", Imports: []string{"fmt", Module + "/b", "example.org/good/part"}},
		{ImportPath: Module + "/b", XTestImports: []string{"example.org/hidden/v2/part"}},
	}
	require.Equal(t, []string{
		"go.mod requires example.org/bad, which is not on the list",
		"b imports example.org/hidden/v2/part of module example.org/hidden/v2, which is not on the list",
	}, CheckRequirements(allowed, requirements, packages))
	require.Equal(t, []string{"example.org/unused once it was"}, unusedRequirements(allowed, requirements, packages))

	_, err := ReadModfile(t.TempDir())
	require.Error(t, err)
}
