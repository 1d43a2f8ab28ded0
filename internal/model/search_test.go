package model

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// grid walks from (0, 0) to the right and down, and is broken at one place.
type grid struct{ size, x, y int }

func (g *grid) Start() [2]int { return [2]int{} }

func (g *grid) Next(s *[2]int, take func(Step, *[2]int)) {
	for axis := range s {
		if to := *s; to[axis] < g.size {
			to[axis]++
			take(Step{What: uint8(axis)}, &to)
		}
	}
}

func (g *grid) Key(s *[2]int) uint64 { return uint64(s[0])<<32 | uint64(s[1]) }

func (g *grid) Broken(s *[2]int) string {
	if *s == [2]int{g.x, g.y} {
		return "here it breaks"
	}
	return ""
}

func (g *grid) Tell(step Step) string { return [...]string{"right", "down"}[step.What] }

func TestSearchVisitsEveryStateOnce(t *testing.T) {
	t.Parallel()
	found, err := Search(&grid{size: 299, x: -1}, 1e6)
	require.NoError(t, err)
	assert.Equal(t, &Found{States: 300 * 300, Steps: 2 * 300 * 299, Depth: 598}, found)
}

func TestSearchTellsTheShortestWay(t *testing.T) {
	t.Parallel()
	found, err := Search(&grid{size: 99, x: 2, y: 3}, 1e6)
	require.NoError(t, err)
	assert.Equal(t, "here it breaks", found.Broken)
	require.Len(t, found.Trace, 5)
	count := map[string]int{}
	for _, step := range found.Trace {
		count[step]++
	}
	assert.Equal(t, map[string]int{"right": 2, "down": 3}, count)
	assert.Contains(t, found.String(), "broken after 5 steps: here it breaks\n   1. ")
}

func TestSearchSaysThatItIsNotExhaustive(t *testing.T) {
	t.Parallel()
	_, err := Search(&grid{size: 99, x: -1}, 1000)
	var bound *BoundError
	require.ErrorAs(t, err, &bound)
	assert.Equal(t, "more than 1000 states: the search is not exhaustive", err.Error())
}

func TestKeySetHoldsEachKeyOnce(t *testing.T) {
	t.Parallel()
	set := newKeySet()
	for round := range 2 {
		for i := range uint64(100_000) {
			for _, key := range []uint64{i, i << 40, scatter(i)} {
				if isNew := set.add(key); isNew != (round == 0 && (i > 0 || key != 0)) && key != 0 {
					t.Fatalf("round %d: adding %#x says %v", round, key, isNew)
				}
			}
		}
	}
	assert.True(t, set.zero)
	assert.False(t, set.add(0))
}

// sound searches a system to its end.
func searchSound[S any](t *testing.T, sys System[S], most int) {
	t.Helper()
	found, err := Search(sys, most)
	require.NoError(t, err, "%v", found)
	t.Log(found)
	require.Empty(t, found.Broken, found.String())
	require.Greater(t, found.States, 1000, "a search of so little shows nothing")
}

// searchBroken finds the shortest way to a broken state.
func searchBroken[S any](t *testing.T, sys System[S], broken string, steps int) {
	t.Helper()
	found, err := Search(sys, 3_000_000)
	require.NoError(t, err, "%v", found)
	t.Log(found)
	require.Contains(t, found.Broken, broken, found.String())
	require.Len(t, found.Trace, steps, found.String())
	for i, step := range found.Trace {
		require.NotEmpty(t, step, fmt.Sprint("step ", i+1))
	}
}
