package htmlreport

import (
	"fmt"
	"image/color"
	"slices"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/leaseq/leaseq/chaos"
)

const (
	wide       = vg.Length(760)
	mostPoints = 380 // of one curve: more cannot be told apart
)

func figures(o *chaos.Outcome) ([]figure, error) {
	var out []figure
	for _, draw := range []func(*chaos.Outcome) (figure, error){throughput, trouble, recoveries} {
		f, err := draw(o)
		if err != nil {
			return nil, fmt.Errorf("htmlreport: %s: %w", f.Title, err)
		}
		out = append(out, f)
	}
	return out, nil
}

// A curve is one line of a plot over time.
type curve struct {
	name  string
	ink   ink
	value func(s *chaos.Second) int64
}

// throughput shows what was done in each second, with the times of faults over it, and below them fault by fault.
func throughput(o *chaos.Outcome) (figure, error) {
	curves := []curve{
		{"enqueued", inkEnqueued, func(s *chaos.Second) int64 { return s.Enqueued }},
		{"started", inkStarted, func(s *chaos.Second) int64 { return s.Started }},
		{"acked", inkAcked, func(s *chaos.Second) int64 { return s.Acked }},
	}
	f := figure{Title: "Throughput and faults", Caption: "Jobs per second; on the ground and below it, when faults lasted."}
	for _, c := range curves {
		f.Key = append(f.Key, keyEntry{c.name, c.name})
	}
	if len(o.Seconds) == 0 {
		return f, nil
	}
	over, strips := newPlot("", "jobs per second"), newPlot("seconds since the run began", "")
	names := strip(strips, o)
	for _, lane := range bands(over, o) {
		f.Key = append(f.Key, keyEntry{string(lane), "fault: " + string(lane)})
	}
	if err := addCurves(over, o, curves); err != nil {
		return f, err
	}
	height := vg.Length(220)
	below := vg.Length(34 + 13*max(len(names), 1))
	canvas := vgsvg.New(wide, height+below)
	all := draw.New(canvas)
	top, bottom := draw.Crop(all, 4, -8, below, -6), draw.Crop(all, 4, -8, 4, -height)
	left := max(leftOf(over, top), leftOf(strips, bottom)) // both begin at the same place
	over.Draw(draw.Crop(top, left-leftOf(over, top), 0, 0, 0))
	strips.Draw(draw.Crop(bottom, left-leftOf(strips, bottom), 0, 0, 0))
	words := fmt.Sprintf("Curves of jobs enqueued, started and acked in each second of %d. %s", len(o.Seconds), faultWords(o))
	var err error
	f.SVG, err = inline(canvas, "throughput", f.Title, words)
	return f, err
}

// leftOf is how much of a canvas the labels of the vertical axis take.
func leftOf(p *plot.Plot, c draw.Canvas) vg.Length { return p.DataCanvas(c).Min.X - c.Min.X }

func faultWords(o *chaos.Outcome) string {
	var parts []string
	for _, f := range o.Faults {
		if f.Bit > 0 {
			parts = append(parts, fmt.Sprintf("%s %d times", clean(f.Name), f.Bit))
		}
	}
	if len(parts) == 0 {
		return "No fault had an effect."
	}
	return "Faults with an effect: " + strings.Join(parts, ", ") + "."
}

// length is the end of the time axis, in seconds.
func length(o *chaos.Outcome) float64 {
	end := max(float64(len(o.Seconds)), float64(o.DurationMS)/1000, 1)
	for _, w := range o.Windows {
		end = max(end, float64(w.ToMS)/1000)
	}
	return end
}

// addCurves draws curves over time, each point the average of as many seconds as are needed to have few enough.
func addCurves(p *plot.Plot, o *chaos.Outcome, curves []curve) error {
	each := (len(o.Seconds) + mostPoints - 1) / mostPoints
	p.Y.Min, p.Y.Max = 0, 1
	for _, c := range curves {
		var points plotter.XYs
		for at := 0; at < len(o.Seconds); at += each {
			part := o.Seconds[at:min(at+each, len(o.Seconds))]
			var sum int64
			for i := range part {
				sum += c.value(&part[i])
			}
			points = append(points, plotter.XY{X: float64(at) + float64(len(part))/2, Y: float64(sum) / float64(len(part))})
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return err
		}
		line.Color, line.Width = c.ink, vg.Points(1.6)
		p.Add(line)
	}
	p.X.Min, p.X.Max = 0, length(o)
	p.Y.Max *= 1.05
	return nil
}

var laneInks = map[chaos.Lane]ink{chaos.Kills: inkKills, chaos.Freezes: inkFreezes, chaos.Crew: inkCrew, chaos.Links: inkLinks, chaos.Server: inkServer}

// bands colour the ground of a plot where faults of a lane lasted. It returns the lanes that there are.
func bands(p *plot.Plot, o *chaos.Outcome) []chaos.Lane {
	names := lanesOf(o)
	byLane := spansBy(o.Windows, names.of)
	var seen []chaos.Lane
	for _, lane := range lanesInOrder {
		if spans := byLane[lane]; len(spans) > 0 {
			seen = append(seen, lane)
			p.Add(&boxes{spans: merged(spans, length(o)/mostPoints), fill: thin{laneInks[lane], 0x28}})
		}
	}
	return seen
}

// strip draws one row for each fault that had an effect, and returns their names, from below.
func strip(p *plot.Plot, o *chaos.Outcome) []string {
	lanes := lanesOf(o)
	byName := spansBy(o.Windows, func(name string) string { return name })
	var names []string
	for name := range byName {
		names = append(names, name)
	}
	slices.SortFunc(names, func(x, y string) int {
		if d := slices.Index(lanesInOrder, lanes.of(y)) - slices.Index(lanesInOrder, lanes.of(x)); d != 0 {
			return d
		}
		return strings.Compare(y, x)
	})
	var ticks []plot.Tick
	for i, name := range names {
		p.Add(&boxes{
			spans: merged(byName[name], length(o)/mostPoints), fill: laneInks[lanes.of(name)],
			low: float64(i) + 0.15, high: float64(i) + 0.85,
		})
		ticks = append(ticks, plot.Tick{Value: float64(i) + 0.5, Label: shortened(clean(name))})
	}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, length(o), 0, float64(max(len(names), 1))
	p.Y.Tick.Marker = plot.ConstantTicks(ticks)
	p.Y.Tick.Length, p.Y.Width = 0, 0
	return names
}

func shortened(name string) string {
	name = strings.ReplaceAll(name, "\n", " ")
	if runes := []rune(name); len(runes) > 24 {
		return string(runes[:23]) + "…"
	}
	return name
}

// boxes are filled from low to high at some times; both zero: the whole height.
type boxes struct {
	spans     []span
	fill      color.Color
	low, high float64
}

// Plot draws them, as gonum's plots want it.
func (b *boxes) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	low, high := c.Min.Y, c.Max.Y
	if b.high > b.low {
		low, high = y(b.low), y(b.high)
	}
	var path vg.Path
	for _, s := range b.spans {
		from, to := x(s.from), x(s.to)
		path.Move(vg.Point{X: from, Y: low})
		path.Line(vg.Point{X: to, Y: low})
		path.Line(vg.Point{X: to, Y: high})
		path.Line(vg.Point{X: from, Y: high})
		path.Close()
	}
	c.SetColor(b.fill)
	c.Fill(path)
}

// trouble shows failures and leases that ran out.
func trouble(o *chaos.Outcome) (figure, error) {
	f := figure{
		Title: "Failures and expiries", Key: []keyEntry{{"failed", "failed"}, {"expired", "lease ran out"}},
		Caption: "Per second: handlers that failed, and starts of jobs whose lease before had run out; on the ground, when faults lasted.",
	}
	if len(o.Seconds) == 0 {
		return f, nil
	}
	p := newPlot("seconds since the run began", "jobs per second")
	for _, lane := range bands(p, o) {
		f.Key = append(f.Key, keyEntry{string(lane), "fault: " + string(lane)})
	}
	err := addCurves(p, o, []curve{
		{"failed", inkFailed, func(s *chaos.Second) int64 { return s.Failed }},
		{"expired", inkExpired, func(s *chaos.Second) int64 { return s.Expired }},
	})
	if err != nil {
		return f, err
	}
	canvas := vgsvg.New(wide, 190)
	p.Draw(draw.Crop(draw.New(canvas), 4, -8, 4, -6))
	var failed, expired int64
	for _, s := range o.Seconds {
		failed, expired = failed+s.Failed, expired+s.Expired
	}
	f.SVG, err = inline(canvas, "trouble", f.Title, fmt.Sprintf("Curves over time: %d failures and %d starts after an expiry in all.", failed, expired))
	return f, err
}

// recoveries shows how long jobs of workers that died waited for their next claim.
func recoveries(o *chaos.Outcome) (figure, error) {
	if o.Report == nil {
		return recoveriesOf(o, nil)
	}
	return recoveriesOf(o, o.Report.Recoveries())
}

func recoveriesOf(o *chaos.Outcome, times []time.Duration) (figure, error) {
	bound := leaseOf(o) + prompt
	f := figure{Title: "Recovery times", Key: []keyEntry{{"bars", "jobs"}, {"expired", fmt.Sprintf("bound: lease + %v = %v", prompt, bound)}}}
	f.Caption = "From the death of a worker to the next claim of each job that it held, where no outage lay in between."
	if len(times) == 0 {
		return f, nil
	}
	f.Caption += fmt.Sprintf(" %s jobs, of which %s took longer than the bound.", grouped(int64(len(times))), strconv.Itoa(above(times, bound)))
	p := newPlot("milliseconds from the worker's death to the next claim", "jobs")
	most := max(float64(times[len(times)-1].Milliseconds()), float64(bound.Milliseconds())) * 1.05
	bins := histogram(times, most, 60)
	p.Add(bins, &mark{x: float64(bound.Milliseconds())})
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, most, 0, bins.highest()*1.08
	canvas := vgsvg.New(wide, 220)
	p.Draw(draw.Crop(draw.New(canvas), 4, -8, 4, -6))
	words := fmt.Sprintf("Histogram of %d recovery times: median %.0f ms, 99th percentile %.0f ms, longest %.0f ms, with a mark at %d ms.",
		len(times), o.RecoveryP50, o.RecoveryP99, o.RecoveryMax, bound.Milliseconds())
	var err error
	f.SVG, err = inline(canvas, "recoveries", f.Title, words)
	return f, err
}
