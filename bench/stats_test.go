package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMedian(t *testing.T) {
	require.Equal(t, 7.0, median([]float64{7}))
	require.Equal(t, 2.0, median([]float64{9, 1, 2}))
	require.Equal(t, 2.5, median([]float64{4, 1, 3, 2}))
	values := []float64{3, 1, 2}
	median(values)
	require.Equal(t, []float64{3, 1, 2}, values, "the caller's values stay in their order")
}

func TestPercentile(t *testing.T) {
	var values []float64
	for i := range 200 {
		values = append(values, float64(200-i))
	}
	require.Equal(t, 1.0, percentile(values, 0))
	require.Equal(t, 100.0, percentile(values, 50))
	require.Equal(t, 198.0, percentile(values, 99))
	require.Equal(t, 200.0, percentile(values, 100))
	require.Equal(t, 5.0, percentile([]float64{5}, 99))
}

func TestRatio(t *testing.T) {
	r, ok := ratio(3, 2)
	require.True(t, ok)
	require.Equal(t, 1.5, r)
	for _, c := range [][2]float64{{1, 0}, {1, -1}, {-1, 1}} {
		_, ok = ratio(c[0], c[1])
		require.False(t, ok, c)
	}
}

func TestRatiosAreThoseOfMedians(t *testing.T) {
	r := newResults()
	for _, value := range []float64{10, 30, 20} {
		r.add("one", "speed", value)
	}
	for _, value := range []float64{1, 5, 100} {
		r.add("other", "speed", value)
	}
	value, ok := r.ratio("speed", "one", "other")
	require.True(t, ok)
	require.Equal(t, 4.0, value)
	_, ok = r.ratio("speed", "one", "nobody")
	require.False(t, ok)
	_, ok = r.ratio("weight", "one", "other")
	require.False(t, ok)
}
