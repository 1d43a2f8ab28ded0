package main

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/leaseq/leaseq/internal/redistest"
)

func TestServersBelowTheOldestThatIsSupportedAreFound(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"5.0.14": true, "6.0.20": true, "6.2.0": false, "7.0.15": false, "8.2.1": false, "10.1.0": false, "": false, "unstable": false,
	} {
		f := facts{server: "redis", version: version}
		assert.Equal(t, want, f.tooOld(), version)
	}
	f := facts{server: "valkey", version: "5.9.0"}
	assert.False(t, f.tooOld(), "its numbers are others")
}

func TestTheFactsOfAServerThatTellsNothingAreEmpty(t *testing.T) {
	t.Parallel()
	f, err := look(t.Context(), redistest.Mini(t))
	assert.NoError(t, err)
	assert.Empty(t, f.version)
	assert.Empty(t, f.policy)
	assert.Error(t, f.policyErr)
}

func TestInfoIsReadLineByLine(t *testing.T) {
	t.Parallel()
	got := readInfo("# Server\r\nredis_version:7.0.15\r\nexecutable:/a:b\r\n\r\n# Memory\r\nmaxmemory_policy:noeviction\r\n")
	assert.Equal(t, map[string]string{"redis_version": "7.0.15", "executable": "/a:b", "maxmemory_policy": "noeviction"}, got)
}
