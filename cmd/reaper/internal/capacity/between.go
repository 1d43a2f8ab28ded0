package capacity

// A knot is one measured value.
type knot struct{ x, y float64 }

// between reads a value off the straight lines that join the knots, whose x all grow, or all fall. Beyond the first and
// the last it is theirs: nothing is made up that was not measured.
func between(knots []knot, x float64) float64 {
	if last := knots[len(knots)-1]; knots[0].x > last.x {
		turned := make([]knot, len(knots))
		for i, k := range knots {
			turned[i] = knot{-k.x, k.y}
		}
		return between(turned, -x)
	}
	for i, k := range knots {
		if x > k.x {
			continue
		}
		if i == 0 {
			return k.y
		}
		before := knots[i-1]
		return before.y + (k.y-before.y)*(x-before.x)/(k.x-before.x)
	}
	return knots[len(knots)-1].y
}
