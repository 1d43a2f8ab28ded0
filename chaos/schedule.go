package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"
)

// A Schedule is which faults come when. A seed, the Options and a version of this module make one; saved, it can be
// played again. What the faults meet is up to the machine.
type Schedule struct {
	Seed       uint64    `json:"seed"`
	DurationMS int64     `json:"duration_ms"`
	Faults     []Planned `json:"faults"`
}

// A Planned is one fault of a Schedule.
type Planned struct {
	Name  string `json:"name"`
	Lane  Lane   `json:"lane"`
	AtMS  int64  `json:"at_ms"`  // from the begin of the run; later where the one before it in its lane is not over
	ForMS int64  `json:"for_ms"` // how long it lasts
	Pick  uint64 `json:"pick"`   // seeds what it hits, and the rest
}

// ReadSchedule reads what Save has written.
func ReadSchedule(file string) (*Schedule, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	s := &Schedule{}
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("%s is no schedule: %w", file, err)
	}
	return s, nil
}

// Save writes the schedule as JSON.
func (s *Schedule) Save(file string) error {
	text, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

func (s *Schedule) check(faults []Fault) error {
	if s == nil {
		return nil
	}
	var errs []error
	for i, p := range s.Faults {
		known := slices.ContainsFunc(faults, func(f Fault) bool { return f.Name == p.Name })
		switch {
		case !known:
			errs = append(errs, fmt.Errorf("Schedule.Faults[%d] is %q, which is none of Faults", i, p.Name))
		case p.AtMS < 0 || p.ForMS < 0:
			errs = append(errs, fmt.Errorf("Schedule.Faults[%d] (%q): at_ms %d and for_ms %d: want 0 or more", i, p.Name, p.AtMS, p.ForMS))
		}
	}
	return errors.Join(errs...)
}

// pace is how long a lane rests between two faults, on average, in leases.
var pace = map[Lane]float64{Kills: 0.25, Freezes: 0.3, Crew: 1, Links: 0.5, Server: 0.8}

// makeSchedule fills the time before the calm with faults, lane by lane: in each round of a lane every one of its faults
// comes, as often as its weight says, in an order by chance; so the rarest comes too, if there is time.
func (s *settings) makeSchedule(faults []Fault) *Schedule {
	out := &Schedule{Seed: s.Seed, DurationMS: s.Duration.Milliseconds()}
	storm := s.Duration - s.calm - s.last
	for n, lane := range lanes {
		rng := rand.New(rand.NewPCG(s.Seed, uint64(n)))
		var queue []*Fault
		at := time.Duration(rng.Float64() * float64(s.Lease))
		for first := true; at < storm; first = false {
			if len(queue) == 0 {
				if queue = round(faults, lane, first, rng); len(queue) == 0 {
					break
				}
			}
			f := queue[0]
			queue = queue[1:]
			length := f.length(s.Lease, rng.Float64())
			if f.Early && at > storm/3+2*s.Lease && !first {
				continue
			}
			if at+length >= storm {
				if at += s.Lease / 4; len(queue) > 0 { // a shorter one may fit
					continue
				}
				break
			}
			out.Faults = append(out.Faults, Planned{
				Name: f.Name, Lane: lane, AtMS: at.Milliseconds(), ForMS: length.Milliseconds(), Pick: rng.Uint64() >> 11,
			})
			at += length + time.Duration((0.5+rng.Float64())*pace[lane]*float64(s.Lease))
		}
	}
	slices.SortStableFunc(out.Faults, func(x, y Planned) int { return compare(x.AtMS, y.AtMS) })
	return out
}

// round is each fault of a lane, shuffled; those of the first round that ask for it come first.
func round(faults []Fault, lane Lane, first bool, rng *rand.Rand) []*Fault {
	var out []*Fault
	for i := range faults {
		f := &faults[i]
		if f.Lane != lane || f.Early && !first {
			continue
		}
		for range max(f.Weight, 1) {
			out = append(out, f)
		}
	}
	rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	slices.SortStableFunc(out, func(x, y *Fault) int {
		switch {
		case x.Early == y.Early:
			return 0
		case x.Early:
			return -1
		}
		return 1
	})
	return out
}
