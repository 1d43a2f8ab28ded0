package htmlreport

import (
	"bytes"
	"fmt"
	"html/template"
	"regexp"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// An ink is a colour of the page's style sheet, so that plots are readable on light and on dark ground. In the drawing it
// is a colour that nothing else has, which inline exchanges for the style sheet's.
type ink uint8

const (
	inkText ink = iota + 1
	inkEnqueued
	inkStarted
	inkAcked
	inkFailed
	inkExpired
	inkBars
	inkKills
	inkFreezes
	inkCrew
	inkLinks
	inkServer
)

var inkNames = map[ink]string{
	inkText: "ink", inkEnqueued: "enqueued", inkStarted: "started", inkAcked: "acked", inkFailed: "failed",
	inkExpired: "expired", inkBars: "bars", inkKills: "kills", inkFreezes: "freezes", inkCrew: "crew", inkLinks: "links", inkServer: "server",
}

// RGBA makes an ink a color.Color.
func (i ink) RGBA() (r, g, b, a uint32) { return thin{i, 0xff}.RGBA() }

// A thin ink lets through what is below.
type thin struct {
	ink   ink
	alpha uint8
}

// RGBA rounds up, so that the drawing, which divides by the opacity and rounds down, has the ink's number again.
func (t thin) RGBA() (r, g, b, a uint32) {
	a = uint32(t.alpha) * 0x101
	of := func(part uint8) uint32 { return uint32(part)*0x101*a/0xffff + 1 }
	return of(0x5e), of(0xa0), of(uint8(t.ink)), a
}

var inkInSVG = regexp.MustCompile(`#5EA0([0-9A-F]{2})`)

// inline makes a drawing a part of an HTML page: without the frame of a file of its own, with colours of the page's style
// sheet, and with words for those who do not see it.
func inline(c *vgsvg.Canvas, id, title, words string) (template.HTML, error) {
	text := &bytes.Buffer{}
	if _, err := c.WriteTo(text); err != nil {
		return "", err
	}
	drawing := text.String()
	at := strings.Index(drawing, "<svg")
	end := strings.IndexByte(drawing[max(at, 0):], '>')
	if at < 0 || end < 0 {
		return "", fmt.Errorf("htmlreport: the plot %q is no SVG", title)
	}
	w, h := c.Size()
	head := fmt.Sprintf(`<svg viewBox="0 0 %.5g %.5g" role="img" aria-labelledby="%s-title %s-words"><title id="%s-title">%s</title><desc id="%s-words">%s</desc>`,
		w.Points(), h.Points(), id, id, id, template.HTMLEscapeString(title), id, template.HTMLEscapeString(words))
	body := inkInSVG.ReplaceAllStringFunc(drawing[at+end+1:], func(found string) string {
		var n int
		if _, err := fmt.Sscanf(found, "#5EA0%X", &n); err != nil || inkNames[ink(n)] == "" {
			return found
		}
		return "var(--" + inkNames[ink(n)] + ")"
	})
	return template.HTML(head + body), nil // all text in it is escaped, by vgsvg or above
}

// newPlot is a plot with our fonts and inks.
func newPlot(x, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	p.X.Label.Text, p.Y.Label.Text = x, y
	for _, style := range []*font.Font{
		&p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font, &p.X.Tick.Label.Font, &p.Y.Tick.Label.Font,
	} {
		*style = font.Font{Typeface: "Liberation", Variant: "Sans", Size: 11}
	}
	p.X.Tick.Label.Font.Size, p.Y.Tick.Label.Font.Size = 10, 10
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Color, axis.Tick.Label.Color = inkText, inkText
		axis.Color, axis.Tick.Color = inkText, inkText
		axis.Label.Padding = vg.Points(4)
	}
	return p
}
