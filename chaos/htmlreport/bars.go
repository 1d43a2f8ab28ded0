package htmlreport

import (
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// bars are the counts of a histogram, each of the same width from 0 on.
type bars struct {
	counts []float64
	width  float64
}

func histogram(times []time.Duration, most float64, n int) *bars {
	b := &bars{counts: make([]float64, n), width: most / float64(n)}
	for _, d := range times {
		at := int(float64(d) / float64(time.Millisecond) / b.width)
		b.counts[min(at, n-1)]++
	}
	return b
}

func (b *bars) highest() (most float64) {
	for _, n := range b.counts {
		most = max(most, n)
	}
	return most
}

// Plot draws them, as gonum's plots want it.
func (b *bars) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for i, n := range b.counts {
		if n == 0 {
			continue
		}
		from, to := x(float64(i)*b.width)+0.4, x(float64(i+1)*b.width)-0.4
		top := max(y(n), c.Min.Y+1) // one is seen beside a thousand
		c.FillPolygon(inkBars, []vg.Point{{X: from, Y: c.Min.Y}, {X: to, Y: c.Min.Y}, {X: to, Y: top}, {X: from, Y: top}})
	}
}

// A mark is a dashed line across the plot.
type mark struct{ x float64 }

// Plot draws it, as gonum's plots want it.
func (m *mark) Plot(c draw.Canvas, p *plot.Plot) {
	x, _ := p.Transforms(&c)
	style := draw.LineStyle{Color: inkExpired, Width: 1.6, Dashes: []vg.Length{5, 3}}
	c.StrokeLine2(style, x(m.x), c.Min.Y, x(m.x), c.Max.Y)
}

// above counts times over a bound.
func above(times []time.Duration, bound time.Duration) (n int) {
	for _, d := range times {
		if d > bound {
			n++
		}
	}
	return n
}
