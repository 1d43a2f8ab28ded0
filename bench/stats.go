package main

import (
	"math"
	"slices"
)

// median is the middle value, or the mean of the two in the middle. There is at least one value.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// percentile is the smallest value that p percent of the values do not exceed; 0 gives the smallest of all. There is at
// least one value.
func percentile(values []float64, p float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// ratio is a ÷ b; it is not ok where that says nothing.
func ratio(a, b float64) (r float64, ok bool) {
	if a < 0 || b <= 0 {
		return 0, false
	}
	return a / b, true
}
