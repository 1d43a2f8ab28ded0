package main

import "math"

// A point is a cost at a number of jobs.
type point struct{ n, cost float64 }

// fitLog fits cost = base + slope × log2 n by least squares. With fewer than two numbers of jobs the slope is 0.
func fitLog(points []point) (base, slope float64) {
	if len(points) == 0 {
		return 0, 0
	}
	var sumX, sumY, sumXX, sumXY float64
	for _, p := range points {
		x := math.Log2(p.n)
		sumX, sumY, sumXX, sumXY = sumX+x, sumY+p.cost, sumXX+x*x, sumXY+x*p.cost
	}
	n := float64(len(points))
	spread := n*sumXX - sumX*sumX
	if spread < 1e-9 {
		return sumY / n, 0
	}
	slope = (n*sumXY - sumX*sumY) / spread
	return (sumY - slope*sumX) / n, slope
}

// exponent is the power of n with which a cost grows from the first point to the last: 1 is in proportion, 0 not at all.
// Growth with the logarithm has an exponent that falls towards 0: 0.09 from a thousand to ten million.
func exponent(points []point) float64 {
	if len(points) < 2 {
		return 0
	}
	first, last := points[0], points[len(points)-1]
	if first.cost <= 0 || last.cost <= 0 || first.n == last.n {
		return 0
	}
	return math.Log(last.cost/first.cost) / math.Log(last.n/first.n)
}

// excess is how many times as fast as the logarithm of n a cost has grown at the worst of the points: cost ÷ first cost,
// over log n ÷ log first n. Up to 1 is no faster.
func excess(points []point) (worst float64) {
	if len(points) == 0 || points[0].cost <= 0 {
		return 0
	}
	first := points[0]
	for _, p := range points[1:] {
		worst = max(worst, p.cost/first.cost*math.Log(first.n)/math.Log(p.n))
	}
	return worst
}

// line fits y = base + slope × x by least squares.
func line(xs, ys []float64) (base, slope float64) {
	points := make([]point, len(xs))
	for i := range xs {
		points[i] = point{math.Exp2(xs[i]), ys[i]}
	}
	return fitLog(points)
}
