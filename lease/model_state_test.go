package lease

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A modelJob is what must be known of a job.
type modelJob struct {
	place                        Place
	from, to                     int64 // its score lies in between, ms
	score                        int64 // and this is what it is
	failures, expiries, redrives int
	retries, most                *int // its own limits
	token                        string
	cancelled                    bool
	lines                        int // of errors
	record                       string
}

// A model is one partition in the simplest form that can be right: jobs, each in one place, and counters.
type model struct {
	jobs          map[string]*modelJob
	stats         map[string]int
	fence         int64
	retries, most int // the queue's limits
	wake          bool
	known         []Lease         // every lease that was ever given out, the lost ones too
	unseen        map[string]bool // tokens that nobody was told of
}

func newModel() *model {
	return &model{jobs: map[string]*modelJob{}, stats: map[string]int{}, retries: 20, most: 5, unseen: map[string]bool{}}
}

func (m *model) place(id string) Place {
	if j := m.jobs[id]; j != nil {
		return j.place
	}
	return Nowhere
}

// in lists the jobs of a place in its order.
func (m *model) in(place Place) []string {
	var out []string
	for id, j := range m.jobs {
		if j.place == place {
			out = append(out, id)
		}
	}
	slices.SortFunc(out, func(a, b string) int {
		return cmp.Or(cmp.Compare(m.jobs[a].score, m.jobs[b].score), cmp.Compare(a, b))
	})
	return out
}

// upTo lists the first n jobs of a place whose scores are at most now.
func (m *model) upTo(place Place, now int64, n int) []string {
	var out []string
	for _, id := range m.in(place) {
		if m.jobs[id].score <= now && len(out) < n {
			out = append(out, id)
		}
	}
	return out
}

func (m *model) move(id string, place Place, from, to int64) {
	j := m.jobs[id]
	j.place, j.from, j.to = place, from, to
	if place != Processing {
		j.token, j.cancelled = "", false
	}
}

// remove forgets a job.
func (m *model) remove(id string) { delete(m.jobs, id) }

func (m *model) count(stat string, n int) {
	if n != 0 {
		m.stats[stat] += n
	}
}

func (j *modelJob) counts() string {
	if j.failures+j.expiries+j.redrives == 0 && j.retries == nil && j.most == nil {
		return ""
	}
	return fmt.Sprintf("%d %d %d %s %s -", j.failures, j.expiries, j.redrives, limit(j.retries), limit(j.most))
}

// A picture is what Redis holds.
type picture struct {
	scores                      map[Place]map[string]float64
	jobs, leases, counts, lines map[string]string
	stats                       map[string]string
	wake                        int64
}

func (b *bench) picture(ctx context.Context, t require.TestingT) picture {
	p := picture{scores: map[Place]map[string]float64{}}
	places := map[Place]*redis.ZSliceCmd{}
	hashes := map[string]*redis.MapStringStringCmd{}
	var wake *redis.IntCmd
	_, err := b.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, place := range []Place{Due, Processing, Dead, Done} {
			places[place] = pipe.ZRangeWithScores(ctx, b.key(string(place)), 0, -1)
		}
		for _, name := range []string{"jobs", "leases", "counts", "errors", "stats"} {
			hashes[name] = pipe.HGetAll(ctx, b.key(name))
		}
		wake = pipe.LLen(ctx, b.key("wake"))
		return nil
	})
	require.NoError(t, err)
	for place, cmd := range places {
		p.scores[place] = map[string]float64{}
		for _, z := range cmd.Val() {
			p.scores[place][z.Member.(string)] = z.Score
		}
	}
	p.jobs, p.leases, p.counts = hashes["jobs"].Val(), hashes["leases"].Val(), hashes["counts"].Val()
	p.lines, p.stats, p.wake = hashes["errors"].Val(), hashes["stats"].Val(), wake.Val()
	return p
}

// compare asserts that Redis holds what the model says, and notes the exact scores.
func (m *model) compare(t *rapid.T, p picture) {
	jobs, leases, counts, lines := map[string]string{}, map[string]string{}, map[string]string{}, map[string]int{}
	for id, j := range m.jobs {
		jobs[id] = j.record
		if j.place == Processing {
			leases[id] = j.token
			if j.cancelled {
				leases[id] = "!" + j.token
			}
		}
		if text := j.counts(); text != "" {
			counts[id] = text
		}
		if j.lines > 0 {
			lines[id] = j.lines
		}
	}
	equal(t, "records", jobs, p.jobs)
	equal(t, "leases", leases, p.leases)
	equal(t, "counts", counts, p.counts)
	got := map[string]int{}
	for id, text := range p.lines {
		text, _, _ = strings.Cut(text, "\n\n")
		got[id] = 1 + strings.Count(text, "\n")
	}
	equal(t, "lines of errors", lines, got)
	for _, place := range []Place{Due, Processing, Dead, Done} {
		for id, score := range p.scores[place] {
			j := m.jobs[id]
			if j == nil || j.place != place {
				t.Fatalf("%s is in %s, and the model has it in %s", id, place, m.place(id))
			}
			if j.score = int64(score); j.score < j.from || j.score > j.to {
				t.Fatalf("%s is in %s at %d, not from %d to %d", id, place, j.score, j.from, j.to)
			}
			j.from, j.to = j.score, j.score
		}
		if n := len(m.in(place)); n != len(p.scores[place]) {
			t.Fatalf("%s has %d members, and the model %d: %v", place, len(p.scores[place]), n, m.in(place))
		}
	}
	stats := map[string]string{}
	for name, n := range m.stats {
		stats[name] = strconv.Itoa(n)
	}
	equal(t, "stats", stats, p.stats)
	if woken := p.wake == 1; woken != m.wake || p.wake > 1 {
		t.Fatalf("wake holds %d elements, the model says %v", p.wake, m.wake)
	}
}

func equal[V comparable](t *rapid.T, what string, want, got map[string]V) {
	if !maps.Equal(want, got) {
		t.Fatalf("%s: the model has %v, Redis %v", what, want, got)
	}
}

// head is the lowest score in due, or -1.
func (m *model) head() int64 {
	if ids := m.in(Due); len(ids) > 0 {
		return m.jobs[ids[0]].score
	}
	return -1
}
