package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/leaseq/leaseq/lease"
)

const (
	// limit is what no call of the default batch, or less, may take of the server: everybody else waits meanwhile.
	limit = 10 * time.Millisecond

	// patience is how many times as fast as the bare commands a call may grow where these grow faster than the logarithm.
	// A thousand jobs are all in the processor's cache, and of ten million hardly any: each step of a search costs more
	// then, not only the number of steps. What is in proportion to the number of jobs grows 4,000 times as fast.
	patience = 1.5

	// dearer is how many times as much a job may cost in a call of the default batch as in one of 50, times what it is with
	// bare commands.
	dearer = 1.5
)

// judge returns everything that is not as it has to be.
func (d *document) judge() error {
	p := d.pace()
	return errors.Join(p.judge("due", d.Due), p.judge("processing", d.Processing))
}

func (p pace) judge(place string, costs []cost) error {
	var errs []error
	slow, bare := p.slow(costs), longestBare(costs)
	for i := range costs {
		c := &costs[i]
		if c.Longest > micros(limit)*slow[c.Size]+p.hiccup {
			errs = append(errs, c.tooLong(place, bare[c.Size]))
		}
	}
	most := p.bareExcess(costs)
	for _, g := range p.growths(costs) {
		if bound := patience * most[g.Batch]; slices.Contains(ops, g.Op) && g.Excess > bound {
			errs = append(errs, fmt.Errorf("%s of %d grows %.1f times as fast as the logarithm of the jobs in %s: want at most %.1f, %.1f times what bare commands do",
				g.Op, g.Batch, g.Excess, place, bound, patience))
		}
	}
	return errors.Join(append(errs, judgeBatches(place, costs))...)
}

// bareExcess is how much faster than the logarithm the bare commands grow, by jobs a call; at least 1.
func (p pace) bareExcess(costs []cost) map[int]float64 {
	most := map[int]float64{}
	for _, g := range p.growths(costs) {
		most[g.Batch] = max(most[g.Batch], 1)
		if slices.Contains(controls, g.Op) {
			most[g.Batch] = max(most[g.Batch], g.Excess)
		}
	}
	return most
}

// tooLong says that a call took more than the limit of the server itself, and more than the machine explains. bare is the
// longest that a call of the bare commands took, in µs.
func (c *cost) tooLong(place string, bare float64) error {
	if !slices.Contains(ops, c.Op) || c.Batch > lease.DefaultBatch {
		return nil
	}
	err := fmt.Errorf("%s of %d with %d jobs in %s took up to %.1f ms of the server, with a median of %.1f: want at most %v",
		c.Op, c.Batch, c.Size, place, c.Longest/1e3, c.Server/1e3, limit)
	if bare > micros(limit) {
		err = fmt.Errorf("%w; bare commands on the same keys took up to %.1f ms: Redis itself does not keep to it with so many jobs in one place", err, bare/1e3)
	}
	return err
}

// longestBare is the longest that a call of the bare commands took at each number of jobs, in µs.
func longestBare(costs []cost) map[int]float64 {
	longest := map[int]float64{}
	for _, c := range costs {
		if slices.Contains(controls, c.Op) {
			longest[c.Size] = max(longest[c.Size], c.Longest)
		}
	}
	return longest
}

// judgeBatches finds calls whose cost grows faster than the number of their jobs.
func judgeBatches(place string, costs []cost) error {
	type key struct {
		op   string
		size int
	}
	of50, bare := map[key]float64{}, map[int]float64{}
	for _, c := range costs {
		if c.Batch == 50 {
			of50[key{c.Op, c.Size}] = c.PerJob
		}
	}
	for _, c := range costs {
		bare[c.Size] = max(bare[c.Size], 1)
		if small := of50[key{c.Op, c.Size}]; slices.Contains(controls, c.Op) && c.Batch == lease.DefaultBatch && small > 0 {
			bare[c.Size] = max(bare[c.Size], c.PerJob/small)
		}
	}
	var errs []error
	for _, c := range costs {
		bound := dearer * bare[c.Size]
		if small := of50[key{c.Op, c.Size}]; slices.Contains(ops, c.Op) && c.Batch == lease.DefaultBatch && small > 0 && c.PerJob > bound*small {
			errs = append(errs, fmt.Errorf("%s of %d with %d jobs in %s costs %.1f µs a job, and of 50 only %.1f: want at most %.1f times as much",
				c.Op, c.Batch, c.Size, place, c.PerJob, small, bound))
		}
	}
	return errors.Join(errs...)
}

// A growth is how one kind of call grows with the number of jobs.
type growth struct {
	Op       string  `json:"op"`
	Batch    int     `json:"batch"`
	Base     float64 `json:"base_us"` // base + slope × log2 n is nearest to the medians
	Slope    float64 `json:"slope_us"`
	Exponent float64 `json:"exponent"`
	Excess   float64 `json:"times_log"` // up to 1: no faster than log n

	points, even []point // as measured; as at the machine's best
}

// at is the fitted cost at a number of jobs.
func (g *growth) at(n float64) float64 { return g.Base + g.Slope*math.Log2(n) }

// growths are those of all kinds of calls, by the medians of the server's own times. How fast they grow is told without
// what the machine was slower at one size than at its best.
func (p pace) growths(costs []cost) (out []growth) {
	at, slow := map[callKey]int{}, p.slow(costs)
	for _, c := range costs {
		key := callKey{c.Op, c.Batch}
		i, ok := at[key]
		if !ok {
			i = len(out)
			at[key] = i
			out = append(out, growth{Op: c.Op, Batch: c.Batch})
		}
		out[i].points = append(out[i].points, point{float64(c.Size), c.Server})
		out[i].even = append(out[i].even, point{float64(c.Size), c.Server / slow[c.Size]})
	}
	for i := range out {
		g := &out[i]
		g.Base, g.Slope = fitLog(g.points)
		g.Base, g.Slope = rounded(g.Base), rounded(g.Slope)
		g.Exponent, g.Excess = rounded(exponent(g.even)), rounded(excess(g.even))
	}
	return out
}
