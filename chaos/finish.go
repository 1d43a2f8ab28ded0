package chaos

import (
	"slices"

	"github.com/leaseq/leaseq/chaos/record"
)

// mostShown is how many events of one job a violation shows.
const mostShown = 40

// finish judges the counters of the queue: that they balance, and that they fit what the history knows. The history is
// taken to have begun with the queue.
func (b *book) finish() {
	stats := b.final.Stats
	b.looked(CheckStats)
	sum := int64(len(b.final.Processing))
	for _, name := range []string{"acked", "nacked", "released", "buried", "expired", "cancelled_processing"} {
		sum += stats[name]
	}
	if stats["claimed"] != sum {
		b.violation(CheckStats, nil, "claimed is %d, and what ended and what is in processing make %d", stats["claimed"], sum)
	}
	for _, f := range b.faults {
		if f.does(record.Loses) {
			b.untold(CheckStats)
			return
		}
	}
	var acks, maybe, claims int64
	for _, j := range b.order {
		for i := range j.leases {
			l := &j.leases[i]
			claims++
			if l.out == record.OutAcked {
				acks++
			} else if l.mayAck() {
				maybe++
			}
		}
	}
	t := &b.report.Totals
	b.within("acked", stats["acked"], acks, acks+maybe)
	b.within("enqueued", stats["enqueued"], t.Acknowledged, t.Acknowledged+t.Maybe)
	b.within("claimed", stats["claimed"], claims, max(claims, stats["claimed"]))
	refused := b.report.Cases["settle lost"] + b.report.Cases["settle gone"]
	b.within("refused", stats["refused"], refused, max(refused, stats["refused"]))
	highest := int64(0)
	for fence := range b.fences {
		highest = max(highest, fence)
	}
	if highest > b.final.Fence {
		b.violation(CheckFences, nil, "the fence %d was given, and the highest that Redis knows of is %d", highest, b.final.Fence)
	}
}

// within judges one counter.
func (b *book) within(name string, n, lo, hi int64) {
	b.looked(CheckStats)
	if n < lo || n > hi {
		b.violation(CheckStats, nil, "the counter %s is %d, and by the history between %d and %d", name, n, lo, hi)
	}
}

// evidence reads the history once more, for the events of the jobs that are shown.
func (b *book) evidence(h History) error {
	wanted := map[string][]Shown{}
	for i := range b.report.Checks {
		for _, v := range b.report.Checks[i].Examples {
			if v.ID != "" {
				wanted[v.ID] = nil
			}
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	for _, log := range h {
		process, wall := "", int64(0)
		calls := map[int64]string{} // of wanted jobs
		_, err := log.Each(func(e *record.Event) error {
			id := e.ID
			switch e.Kind {
			case record.Opened:
				process, wall = e.Process, e.Wall
			case record.Answered:
				id = calls[e.Call]
			}
			if list, ok := wanted[id]; ok && id != "" {
				if e.Kind == record.Called {
					calls[e.Call] = id
				}
				list = append(list, Shown{Process: process, Event: *e, wall: wall + e.At})
				if len(list) > 4*mostShown {
					list = latestOf(list)
				}
				wanted[id] = list
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	for i := range b.report.Checks {
		for k := range b.report.Checks[i].Examples {
			v := &b.report.Checks[i].Examples[k]
			v.Events = latestOf(wanted[v.ID])
		}
	}
	return nil
}

// latestOf sorts by the wall clock, which is good enough to be read, and keeps the last ones.
func latestOf(list []Shown) []Shown {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(x, y Shown) int { return compare(x.wall, y.wall) })
	return list[max(0, len(list)-mostShown):]
}
