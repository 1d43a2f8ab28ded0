package main

import "slices"

// A pace is what the machine did to a script that only counts, which takes as long each time where nothing disturbs it.
type pace struct {
	best   float64 // the least median of all sizes, in µs; 0: it was not measured
	hiccup float64 // how much longer than that the longest of all its calls took of the server
}

// pace looks at the whole run: a hiccup can come to any call.
func (d *document) pace() (p pace) {
	var medians, longest []float64
	for _, c := range slices.Concat(d.Due, d.Processing) {
		if c.Op == opCount {
			medians, longest = append(medians, c.Server), append(longest, c.Longest)
		}
	}
	if len(medians) > 0 {
		p.best = slices.Min(medians)
		p.hiccup = max(slices.Max(longest)-p.best, 0)
	}
	return p
}

// slow is how many times as long as at its best the machine took at each number of jobs; at least 1.
func (p pace) slow(costs []cost) map[int]float64 {
	slow := map[int]float64{}
	for _, c := range costs {
		slow[c.Size] = max(slow[c.Size], 1)
		if c.Op == opCount && p.best > 0 {
			slow[c.Size] = max(slow[c.Size], c.Server/p.best)
		}
	}
	return slow
}
