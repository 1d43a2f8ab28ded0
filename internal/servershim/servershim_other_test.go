//go:build !linux

package servershim

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBuildSaysThatItNeedsLinux(t *testing.T) {
	t.Parallel()
	_, err := Build("")
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorContains(t, err, "needs Linux")
}
