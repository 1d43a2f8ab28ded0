package model

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The names of the places, as keys have them.
const (
	Due        = "due"
	Processing = "processing"
	Dead       = "dead"
	Done       = "done"
)

// A Time is a score in milliseconds: from At to To. The scripts round up what lies ahead, and a model that knows the
// server's clock in whole milliseconds only cannot tell by how much. Comparing learns the exact one.
type Time struct{ At, To int64 }

// Exactly is a time that is known.
func Exactly(at int64) Time { return Time{At: at, To: at} }

// A Job is what is known of one job, in one place.
type Job struct {
	Place                        string
	Score                        Time
	Record                       string // "": somebody deleted it
	Failures, Expiries, Redrives int
	MaxRetries, MaxExpiries      *int  // its own
	NotAfter                     int64 // ms; 0: none
	Token                        string
	Cancelled                    bool
	Errors                       []string // lines of `when attempt holder reason`
	Result                       string   // in done
	Stack                        string
}

// A Session is the record of one.
type Session struct {
	Number uint64
	When   int64
	Rest   string
}

// Policy is what the queue has published.
type Policy struct {
	Lease                     int64 // ms
	MaxRetries, MaxExpiries   int
	ExpiryBackoff, BackoffCap int64 // ms
	PayloadLimit              int   // 0: none
	HeaderLimit, MaxLength    *int  // nil: none
	MaxDelay                  int64 // ms
	DeadKeep                  *int  // nil: all
	DeadAge                   int64 // ms; 0: none
	DoneAge                   int64 // ms; 0: acked jobs are not kept
	DoneBefore                int64 // what it was before it was switched off; 0: it never was
	DoneKeep                  *int  // nil: all
	Concurrency               *int  // nil, 0: none
	Rate                      *int  // nil, 0: none
	RateInterval              int64 // ms

	Paused      bool
	PausedUntil int64 // ms; 0: until it is resumed
}

// told writes the limits that have refused something, behind the codes of an answer.
func told(codes, refusing string, limits ...int64) string {
	if !strings.ContainsAny(codes, refusing) {
		return codes
	}
	for _, n := range limits {
		if n < 0 {
			codes += " -"
		} else {
			codes += " " + strconv.FormatInt(n, 10)
		}
	}
	return codes
}

func orNone(limit *int) int64 {
	if limit == nil {
		return -1
	}
	return int64(*limit)
}

func (p *Policy) payload() int64 {
	if p.PayloadLimit == 0 {
		return -1
	}
	return int64(p.PayloadLimit)
}

// refuses is the code of the size that is over its limit, 0 where none is.
func (p *Policy) refuses(size, headers int) byte {
	switch {
	case p.PayloadLimit > 0 && size > p.PayloadLimit:
		return 't'
	case p.HeaderLimit != nil && headers > *p.HeaderLimit:
		return 'h'
	}
	return 0
}

// A Partition is one partition of a queue in the plainest form that can be right: a map of jobs, and counters. Each of its
// methods is one script, at one moment of the server's clock in milliseconds, and answers the same codes.
type Partition struct {
	Jobs     map[string]*Job
	Stats    map[string]int
	Sessions map[string]Session
	Records  map[string]*Record // by name
	Holders  map[string]string  // by session
	Policy   Policy
	Fence    int64
	RateNext int64 // µs, when the last start's share of the rate is over
	Wake     bool
	Stub     string

	Swept, Grace int64
	Row          int
	Judged       bool // swept without NoGrace once: grace and row are stored
}

// NewPartition is an empty one under the policy that holds where none is published.
func NewPartition(stub string) *Partition {
	return &Partition{
		Jobs: map[string]*Job{}, Stats: map[string]int{}, Sessions: map[string]Session{}, Holders: map[string]string{}, Stub: stub,
		Records: map[string]*Record{},
		Policy:  Policy{Lease: 15_000, MaxRetries: 20, MaxExpiries: 5, MaxDelay: 7 * 24 * 3_600_000},
	}
}

// In lists the jobs of a place in its order.
func (p *Partition) In(place string) []string {
	var out []string
	for id, j := range p.Jobs {
		if j.Place == place {
			out = append(out, id)
		}
	}
	slices.SortFunc(out, func(a, b string) int {
		return cmp.Or(cmp.Compare(p.Jobs[a].Score.At, p.Jobs[b].Score.At), cmp.Compare(a, b))
	})
	return out
}

// UpTo lists the first n jobs of a place whose scores are at most at.
func (p *Partition) UpTo(place string, at int64, n int) []string {
	var out []string
	for _, id := range p.In(place) {
		if p.Jobs[id].Score.At <= at && len(out) < n {
			out = append(out, id)
		}
	}
	return out
}

// Where is the code of the place that a job is in.
func (p *Partition) Where(id string) byte {
	j := p.Jobs[id]
	if j == nil {
		return '0'
	}
	return map[string]byte{Due: '1', Processing: '2', Dead: '3', Done: '4'}[j.Place]
}

func (p *Partition) count(name string, n int) {
	if n != 0 {
		p.Stats[name] += n
	}
}

// head is the lowest score in due.
func (p *Partition) head() (at int64, ok bool) {
	ids := p.In(Due)
	if len(ids) == 0 {
		return 0, false
	}
	return p.Jobs[ids[0]].Score.At, true
}

func (p *Partition) move(id, place string, score Time) {
	j := p.Jobs[id]
	j.Place, j.Score = place, score
	if place != Processing {
		j.Token, j.Cancelled = "", false
	}
}

// after is when something is due that was given a delay, in ms.
func after(now, delay int64) Time {
	if delay == 0 {
		return Exactly(now)
	}
	return Time{At: now + delay, To: now + delay + 1}
}

// back collects what one script puts back to due, and whom that wakes.
type back struct {
	p        *Partition
	had      bool
	head     int64
	earliest int64
	any      bool
}

func (p *Partition) putBack() *back {
	head, had := p.head()
	return &back{p: p, head: head, had: had}
}

func (b *back) put(id string, score Time) {
	b.p.move(id, Due, score)
	if !b.any || score.To < b.earliest {
		b.earliest, b.any = score.To, true
	}
}

// wake pushes a wake-up if the head has become earlier, or, where now is given, if something is claimable at once.
func (b *back) wake(now int64) {
	if b.any && (b.earliest <= now || !b.had || b.earliest < b.head) {
		b.p.Wake = true
	}
}

// fail adds a line to a job's last errors.
func (j *Job) fail(now int64, attempt int, holder, reason, stack string) {
	if len(j.Errors) > 4 {
		j.Errors = j.Errors[len(j.Errors)-4:]
	}
	j.Errors = append(slices.Clip(j.Errors), fmt.Sprintf("%d\t%d\t%s\t%s", now, attempt, holder, reason))
	j.Stack = stack
}

func (j *Job) errors() string {
	text := strings.Join(j.Errors, "\n")
	if j.Stack != "" {
		text += "\n\n" + j.Stack
	}
	return text
}

// counts is the text form of a job's counters, "" where all is as at first.
func (j *Job) counts() string {
	if j.Failures+j.Expiries+j.Redrives == 0 && j.MaxRetries == nil && j.MaxExpiries == nil && j.NotAfter == 0 {
		return ""
	}
	notAfter := "-"
	if j.NotAfter != 0 {
		notAfter = strconv.FormatInt(j.NotAfter, 10)
	}
	return fmt.Sprintf("%d %d %d %s %s %s", j.Failures, j.Expiries, j.Redrives, own(j.MaxRetries), own(j.MaxExpiries), notAfter)
}

func own(limit *int) string {
	if limit == nil {
		return "-"
	}
	return strconv.Itoa(*limit)
}

func limit(own *int, queue int) int {
	if own != nil {
		return *own
	}
	return queue
}

// holder names who holds a token.
func (p *Partition) holder(token string) string {
	parts := strings.Split(token, ":")
	if len(parts) != 3 {
		return ""
	}
	return p.Holders[parts[1]]
}

// Answered notes that a numbered call of a session was answered.
func (p *Partition) Answered(session string, number uint64, now int64, rest string) {
	p.Sessions[session] = Session{Number: number, When: now, Rest: rest}
}
