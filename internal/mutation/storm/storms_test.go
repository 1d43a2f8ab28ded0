package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A storm that chaos refuses would be found out only where all mutants are tried, which takes ten minutes.
func TestEveryStormIsOneThatChaosTakes(t *testing.T) {
	t.Parallel()
	for name, o := range storms {
		require.NoError(t, o.Check(), name)
	}
}
