package lease

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/leaseq/leaseq/internal/script"
)

// A Position is where a listing goes on: behind a job, also when that is not there any more. The zero value is the
// beginning.
type Position struct {
	score, id string
}

// IsZero reports whether it is the beginning.
func (p Position) IsZero() bool { return p.score == "" }

// String writes it so that [ParsePosition] reads it: "" for the beginning.
func (p Position) String() string {
	if p.IsZero() {
		return ""
	}
	return p.score + "/" + p.id
}

// ParsePosition reads what String wrote.
func ParsePosition(text string) (Position, error) {
	if text == "" {
		return Position{}, nil
	}
	score, id, ok := strings.Cut(text, "/")
	if _, err := strconv.ParseFloat(score, 64); !ok || err != nil || id == "" {
		return Position{}, fmt.Errorf("position %q: want one that an earlier listing told", text)
	}
	return Position{score: score, id: id}, nil
}

// ListOptions narrow a listing down; nil is valid.
type ListOptions struct {
	After Position
	// From and To bound the jobs' times in their place (when they are due, run out, died or were done), both included, on
	// Redis' clock. Zero: no bound.
	From, To time.Time
}

// A Listed page is some jobs of a place in its order.
type Listed struct {
	IDs  []string
	Next Position  // where the next page begins; after the last page, where jobs that come later would
	More bool      // there is more now
	Now  time.Time // on Redis' clock, in whole milliseconds
}

// List reads up to n IDs (1–1,000) of a place in its order. A page begins behind the last job of the page before, wherever
// that job is by now: what stays in the place comes exactly once, whatever else comes and goes meanwhile. The cost does
// not grow with the number of jobs.
func (s *Store) List(ctx context.Context, place Place, n int, o *ListOptions) (Listed, error) {
	if err := checkBatch("list", n); err != nil {
		return Listed{}, err
	}
	if place == Nowhere {
		return Listed{}, fmt.Errorf("list: place %q: want due, processing, dead or done", place)
	}
	var opts ListOptions
	if o != nil {
		opts = *o
	}
	req := &script.Request{Script: listScript, Args: []any{
		string(place), n, bound(opts.From, "-inf"), bound(opts.To, "+inf"), opts.After.score, opts.After.id,
	}}
	if err := s.repeat(ctx, req); err != nil {
		return Listed{}, err
	}
	r := req.Reply
	if len(r) < 3 || len(r) > 3+2*n || len(r)%2 != 1 || req.Status() != "OK" {
		return Listed{}, odd(listScript, len(r))
	}
	head, ok := integers(r[:3], 3)
	if !ok || head[1] != 0 && head[1] != 1 || head[1] == 1 && len(r) == 3 {
		return Listed{}, odd(listScript, r[:3])
	}
	out := Listed{Next: opts.After, More: head[1] == 1, Now: time.UnixMilli(head[0])}
	for i := 3; i < len(r); i += 2 {
		id, isText := r[i].(string)
		score, isScore := r[i+1].(string)
		if _, err := strconv.ParseFloat(score, 64); !isText || !isScore || err != nil {
			return Listed{}, odd(listScript, r[i:i+2])
		}
		out.IDs, out.Next = append(out.IDs, id), Position{score: score, id: id}
	}
	return out, nil
}

// bound writes a time as a bound of scores.
func bound(t time.Time, none string) string {
	if t.IsZero() {
		return none
	}
	return strconv.FormatInt(t.UnixMilli(), 10)
}

// PositionOf is the position behind a job that was seen in a place at a time.
func PositionOf(at time.Time, id string) Position {
	return Position{score: strconv.FormatInt(at.UnixMilli(), 10), id: id}
}
