package main

import (
	"bytes"
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A picture is one file with panels side by side.
type picture struct {
	file   string
	panels []func(d *document) (*plot.Plot, error)
}

var pictures = []picture{
	{"scale-due.svg", []func(*document) (*plot.Plot, error){
		func(d *document) (*plot.Plot, error) {
			return growthPlot(d.pace(), "1 job a call", "jobs in due", d.Due, 1)
		},
		func(d *document) (*plot.Plot, error) {
			return growthPlot(d.pace(), "256 jobs a call", "jobs in due", d.Due, 256)
		},
	}},
	{"scale-processing.svg", []func(*document) (*plot.Plot, error){
		func(d *document) (*plot.Plot, error) {
			return growthPlot(d.pace(), "1 job a call", "jobs in processing", d.Processing, 1)
		},
		func(d *document) (*plot.Plot, error) {
			return growthPlot(d.pace(), "256 jobs a call", "jobs in processing", d.Processing, 256)
		},
	}},
	{"scale-memory.svg", []func(*document) (*plot.Plot, error){
		func(d *document) (*plot.Plot, error) {
			return memoryPlot(d, "by payload", "bytes of payload", func(j *jobSize) (int, bool) { return j.Payload, j.ID == idSize })
		},
		func(d *document) (*plot.Plot, error) {
			return memoryPlot(d, "by ID", "bytes of ID", func(j *jobSize) (int, bool) { return j.ID, j.Payload == payloadSize })
		},
	}},
}

const (
	panelWide = vg.Length(400)
	panelHigh = vg.Length(330)
)

// inks are the colours of the calls, which can be told apart by people who do not see red and green.
var inks = map[string]color.RGBA{
	opEnqueue: {0x00, 0x72, 0xb2, 0xff}, opClaim: {0xd5, 0x5e, 0x00, 0xff}, opExtend: {0x00, 0x9e, 0x73, 0xff},
	opPut: {0x80, 0x80, 0x80, 0xff}, opRemove: {0xb0, 0xb0, 0xb0, 0xff},
	opLast: {0x1b, 0x2a, 0x6b, 0xff},
	opAck:  {0xcc, 0x79, 0xa7, 0xff}, opNack: {0xe6, 0x9f, 0x00, 0xff}, opExpire: {0x56, 0xb4, 0xe9, 0xff},
}

func (p *picture) draw(d *document) ([]byte, error) {
	canvas := vgsvg.New(panelWide*vg.Length(len(p.panels)), panelHigh)
	all := draw.New(canvas)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	for i, make := range p.panels {
		panel, err := make(d)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.file, err)
		}
		left := panelWide * vg.Length(i)
		right := panelWide * vg.Length(len(p.panels)-1-i)
		panel.Draw(draw.Crop(all, left+6, -right-14, 6, -6))
	}
	var text bytes.Buffer
	_, err := canvas.WriteTo(&text)
	return text.Bytes(), err
}

func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	for _, f := range []*font.Font{
		&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font, &p.X.Tick.Label.Font, &p.Y.Tick.Label.Font,
		&p.Legend.TextStyle.Font,
	} {
		*f = font.Font{Typeface: "Liberation", Variant: "Sans", Size: 10}
	}
	p.Title.TextStyle.Font.Size = 12
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, decades{}
	p.Y.Min, p.Y.Tick.Marker = 0, whole{}
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, 1.5
	return p
}

// growthPlot shows the medians of each call, and the nearest logarithm. Over an axis with equal steps for each tenfold,
// growth with the logarithm is a straight line.
func growthPlot(machine pace, title, x string, costs []cost, batch int) (*plot.Plot, error) {
	p := newPlot(title, x, "µs of the server for a call")
	for _, g := range machine.growths(costs) {
		if g.Batch != batch || g.Op == opCount {
			continue
		}
		points, fitted := make(plotter.XYs, len(g.points)), plotter.XYs{}
		for i, at := range g.points {
			points[i] = plotter.XY{X: at.n, Y: at.cost}
		}
		for _, at := range g.points {
			fitted = append(fitted, plotter.XY{X: at.n, Y: max(g.at(at.n), 0)})
		}
		marks, err := plotter.NewScatter(points)
		if err != nil {
			return nil, err
		}
		dashes, err := plotter.NewLine(fitted)
		if err != nil {
			return nil, err
		}
		marks.Color, marks.Radius, marks.Shape = inks[g.Op], 3, draw.CircleGlyph{}
		dashes.Color, dashes.Width, dashes.Dashes = inks[g.Op], 1, []vg.Length{4, 3}
		p.Add(dashes, marks)
		p.Legend.Add(fmt.Sprintf("%s (%.2f × log n)", g.Op, g.Excess), marks)
	}
	p.Y.Min = 0
	p.Y.Max = max(p.Y.Max*2, 1) // room for the legend
	return p, nil
}

func memoryPlot(d *document, title, x string, of func(*jobSize) (int, bool)) (*plot.Plot, error) {
	p := newPlot(title, x, "bytes in Redis beside the payload")
	var points plotter.XYs
	var ticks []plot.Tick
	for i := range d.Jobs {
		if size, ok := of(&d.Jobs[i]); ok {
			ticks = append(ticks, plot.Tick{Value: float64(size), Label: commas(float64(size), 0)})
			points = append(points, plotter.XY{X: float64(size), Y: d.Jobs[i].Beside})
		}
	}
	if len(points) == 0 {
		return p, nil
	}
	marks, err := plotter.NewScatter(points)
	if err != nil {
		return nil, err
	}
	marks.Color, marks.Radius, marks.Shape = inks[opEnqueue], 3, draw.CircleGlyph{}
	p.Add(marks)
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
	p.Y.Min, p.Y.Max = 0, p.Y.Max*1.2
	return p, nil
}

// whole are ticks at whole numbers, with commas between thousands.
type whole struct{}

// Ticks makes them, as gonum's plots want it.
func (whole) Ticks(low, high float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(low, high)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = commas(ticks[i].Value, 0)
		}
	}
	return ticks
}

// decades are ticks at each tenfold.
type decades struct{}

// Ticks makes them, as gonum's plots want it.
func (decades) Ticks(low, high float64) (ticks []plot.Tick) {
	for at := 1.0; at <= high*1.01; at *= 10 {
		if at >= low*0.99 {
			ticks = append(ticks, plot.Tick{Value: at, Label: commas(at, 0)})
		}
	}
	return ticks
}
