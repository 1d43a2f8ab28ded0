package htmlreport

import (
	"cmp"
	"slices"

	"github.com/leaseq/leaseq/chaos"
)

// lanesInOrder is how lanes are shown, from above.
var lanesInOrder = []chaos.Lane{chaos.Kills, chaos.Freezes, chaos.Crew, chaos.Links, chaos.Server}

// lanes says what a fault is done to, by its name.
type lanes map[string]chaos.Lane

func lanesOf(o *chaos.Outcome) lanes {
	out := lanes{}
	for _, f := range chaos.AllFaults() {
		out[f.Name] = f.Lane
	}
	if o.Schedule != nil {
		for _, p := range o.Schedule.Faults {
			if slices.Contains(lanesInOrder, p.Lane) {
				out[p.Name] = p.Lane
			}
		}
	}
	return out
}

func (l lanes) of(name string) chaos.Lane {
	if lane, ok := l[name]; ok {
		return lane
	}
	return chaos.Server
}

// A span is a time, in seconds since the run began.
type span struct{ from, to float64 }

// merged joins spans that overlap, or lie so close that a plot cannot show what is between them.
func merged(spans []span, resolution float64) []span {
	spans = slices.Clone(spans)
	slices.SortFunc(spans, func(x, y span) int { return cmp.Compare(x.from, y.from) })
	var out []span
	for _, s := range spans {
		s.to = max(s.to, s.from+resolution)
		if n := len(out); n > 0 && s.from <= out[n-1].to+resolution {
			out[n-1].to = max(out[n-1].to, s.to)
			continue
		}
		out = append(out, s)
	}
	return out
}

// spansBy sorts the windows of a run by what a function says of their names.
func spansBy[K comparable](windows []chaos.Window, of func(name string) K) map[K][]span {
	out := map[K][]span{}
	for _, w := range windows {
		key := of(w.Name)
		out[key] = append(out[key], span{from: float64(w.FromMS) / 1000, to: float64(w.ToMS) / 1000})
	}
	return out
}
