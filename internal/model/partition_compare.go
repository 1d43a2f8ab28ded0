package model

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A Picture is all that Redis holds of a partition.
type Picture struct {
	Scores map[string]map[string]int64  // by place
	Hashes map[string]map[string]string // jobs, leases, counts, errors, results, sessions, holders, sweep, stats
	Kept   map[string]map[string]string // records, by name
	Wake   int64                        // elements
	Fence  int64
}

// Compare lists what differs between the model and Redis, and learns the exact scores of what the scripts rounded up.
func (p *Partition) Compare(got *Picture) []string {
	var bad []string
	want := p.hashes()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !maps.Equal(want[name], got.Hashes[name]) {
			bad = append(bad, fmt.Sprintf("%s: the model has %q, Redis %q", name, want[name], got.Hashes[name]))
		}
	}
	kept := map[string]map[string]string{}
	for name, r := range p.Records {
		kept[name] = r.Fields
	}
	if !maps.EqualFunc(kept, got.Kept, maps.Equal) {
		bad = append(bad, fmt.Sprintf("records: the model has %q, Redis %q", kept, got.Kept))
	}
	for _, place := range []string{Due, Processing, Dead, Done} {
		bad = append(bad, p.compareScores(place, got.Scores[place])...)
	}
	if woken := got.Wake > 0; woken != p.Wake || got.Wake > 1 {
		bad = append(bad, fmt.Sprintf("wake holds %d elements, the model says %v", got.Wake, p.Wake))
	}
	if got.Fence != p.Fence {
		bad = append(bad, fmt.Sprintf("the highest fence is %d, and %d was given last", got.Fence, p.Fence))
	}
	return append(bad, p.balance()...)
}

func (p *Partition) hashes() map[string]map[string]string {
	jobs, leases, counts, errors := map[string]string{}, map[string]string{}, map[string]string{}, map[string]string{}
	results := map[string]string{}
	for id, j := range p.Jobs {
		if j.Record != "" {
			jobs[id] = j.Record
		}
		if j.Place == Processing {
			leases[id] = strings.Repeat("!", int(bit(j.Cancelled))) + j.Token
		}
		if text := j.counts(); text != "" {
			counts[id] = text
		}
		if j.Result != "" {
			results[id] = j.Result
		}
		if len(j.Errors) > 0 {
			errors[id] = j.errors()
		}
	}
	sessions, stats, sweep := map[string]string{}, map[string]string{}, map[string]string{}
	for name, s := range p.Sessions {
		sessions[name] = fmt.Sprintf("%d %d %s", s.Number, s.When, s.Rest)
	}
	for name, n := range p.Stats {
		stats[name] = strconv.Itoa(n)
	}
	if p.Swept > 0 {
		sweep["swept"] = strconv.FormatInt(p.Swept, 10)
	}
	if p.Judged {
		sweep["grace"], sweep["row"] = strconv.FormatInt(p.Grace, 10), strconv.Itoa(p.Row)
	}
	return map[string]map[string]string{
		"jobs": jobs, "leases": leases, "counts": counts, "errors": errors, "results": results, "sessions": sessions, "stats": stats,
		"sweep": sweep, "holders": p.Holders,
	}
}

func (p *Partition) compareScores(place string, got map[string]int64) (bad []string) {
	for id, score := range got {
		j := p.Jobs[id]
		if j == nil || j.Place != place {
			bad = append(bad, fmt.Sprintf("%s is in %s, and the model has it in place %c", id, place, p.Where(id)))
			continue
		}
		if at := j.Score; score < at.At || score > at.To {
			bad = append(bad, fmt.Sprintf("%s is in %s at %d, and not from %d to %d", id, place, score, at.At, at.To))
		}
		j.Score = Exactly(score)
	}
	if ids := p.In(place); len(ids) != len(got) {
		bad = append(bad, fmt.Sprintf("%s has %d members, and the model %q", place, len(got), ids))
	}
	return bad
}

// balance checks that the counters add up.
func (p *Partition) balance() []string {
	ended := 0
	for _, name := range []string{"acked", "nacked", "released", "buried", "expired", "cancelled_processing"} {
		ended += p.Stats[name]
	}
	if now := len(p.In(Processing)); p.Stats["claimed"] != ended+now {
		return []string{fmt.Sprintf("claimed %d is not ended %d + in processing %d", p.Stats["claimed"], ended, now)}
	}
	return nil
}
