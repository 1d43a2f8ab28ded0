package redistest

import (
	"context"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/internal/keys"
)

// CheckQueue fails the test, and lets it go on, if what a queue holds breaks the protocol's rules for its keys. Each of
// its partitions is read in one MULTI, so that it may be called while others work on the queue. The rules:
//
//   - every ID is in at most one of due, processing, dead and done; every member of due, processing and dead has a
//     record, and every record, counts and errors entry belongs to one of them; results belong to done;
//   - leases has exactly the IDs in processing; no two of its tokens have the same fence, none a greater one than fence;
//   - scores are whole milliseconds; wake holds at most one element; sessions and sweep hold what they may;
//   - claimed = acked + nacked + released + buried + expired + cancelled_processing + the number in processing;
//   - every key has its documented type and no TTL; idempotency records are hashes with one; there is no other key.
func CheckQueue(t testing.TB, rdb redis.UniversalClient, prefix, queue string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), cleanupBound)
	defer cancel()
	problems, err := judge(ctx, rdb, prefix, queue)
	if err != nil {
		t.Errorf("queue %s under %s cannot be checked: %v", queue, prefix, err)
	}
	if len(problems) > 0 {
		t.Errorf("queue %s under %s is not in order:\n\t%s", queue, prefix, strings.Join(problems, "\n\t"))
	}
}

// judge returns what is wrong with a queue, in words.
func judge(ctx context.Context, rdb redis.UniversalClient, prefix, queue string) ([]string, error) {
	all, err := find(ctx, rdb, prefix, queue)
	if err != nil {
		return nil, err
	}
	var problems []string
	partitions := map[int]bool{0: true}
	for _, f := range all {
		if f.partition >= 0 {
			partitions[f.partition] = true
		}
		why, err := stranger(ctx, rdb, f)
		if err != nil {
			return nil, err
		}
		if why != "" {
			problems = append(problems, why)
		}
	}
	for _, partition := range slices.Sorted(maps.Keys(partitions)) {
		p, err := keys.New(prefix, queue, partition)
		if err != nil {
			return nil, err
		}
		s, err := take(ctx, rdb, p)
		if err != nil {
			return nil, err
		}
		for _, problem := range s.problems() {
			problems = append(problems, fmt.Sprintf("partition %d: %s", partition, problem))
		}
	}
	return problems, nil
}

// stranger says why a key must not be there. Of the fixed ones that is judged by their snapshot.
func stranger(ctx context.Context, rdb redis.UniversalClient, f found) (string, error) {
	if f.partition >= 0 && slices.Contains(keys.Names, f.name) {
		return "", nil
	}
	if !isRecord(f) {
		return fmt.Sprintf("key %q is not documented", f.key), nil
	}
	var kind *redis.StatusCmd
	var ttl *redis.DurationCmd
	_, err := rdb.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		kind, ttl = pipe.Type(ctx, f.key), pipe.PTTL(ctx, f.key)
		return nil
	})
	switch {
	case err != nil:
		return "", err
	case ttl.Val() == -1:
		return fmt.Sprintf("idempotency record %q has no TTL", f.key), nil
	case kind.Val() != "hash" && kind.Val() != "none":
		return fmt.Sprintf("idempotency record %q is a %s, want a hash", f.key, kind.Val()), nil
	}
	return "", nil
}

// isRecord says whether a key is one of the records that package idempotency keeps.
func isRecord(f found) bool {
	return f.partition >= 0 && (strings.HasPrefix(f.name, "guard:") || strings.HasPrefix(f.name, "once:"))
}

// problems judges a snapshot.
func (s *snapshot) problems() []string {
	c := &complaint{}
	s.keysOf(c)
	s.membership(c)
	s.tokens(c)
	s.numbers(c)
	s.balance(c)
	return c.list
}

// keysOf judges types and times to live.
func (s *snapshot) keysOf(c *complaint) {
	for _, name := range keys.Names {
		if kind := s.types[name]; kind != "none" && kind != types[name] {
			c.add("%s is a %s, want a %s", name, kind, types[name])
		}
		if ttl := s.ttls[name]; ttl != -1 && ttl != -2 {
			c.add("%s has a TTL of %s, want none", name, ttl.Round(time.Millisecond))
		}
	}
	for _, wrong := range s.wrong {
		c.add("%s", wrong)
	}
}

// membership is invariants 1 and 2.
func (s *snapshot) membership(c *complaint) {
	where := map[string]string{}
	live := map[string]bool{} // in due, processing or dead
	for _, place := range []string{"due", "processing", "dead", "done"} {
		for _, id := range ids(s.places[place]) {
			if other, twice := where[id]; twice {
				c.each("in "+other+" and "+place, id)
				continue
			}
			where[id] = place
			live[id] = place != "done"
		}
	}
	records := map[string]bool{}
	for _, id := range s.fields["jobs"] {
		records[id] = true
		if !live[id] {
			c.each("a record of a job that is in none of due, processing, dead", id)
		}
	}
	for _, id := range ids(live) {
		if live[id] && !records[id] {
			c.each("in "+where[id]+" without a record", id)
		}
	}
	for _, hash := range []string{"counts", "errors"} {
		for _, id := range s.fields[hash] {
			if !live[id] {
				c.each(hash+" of a job that is in none of due, processing, dead", id)
			}
		}
	}
	for _, id := range s.fields["results"] {
		if where[id] != "done" {
			c.each("a result of a job that is not in done", id)
		}
	}
	for _, id := range ids(s.leases) {
		if where[id] != "processing" {
			c.each("a lease on a job that is not in processing", id)
		}
	}
	for _, id := range ids(s.places["processing"]) {
		if _, leased := s.leases[id]; !leased {
			c.each("in processing without a lease", id)
		}
	}
	c.flush()
}

var (
	tokenForm   = regexp.MustCompile(`^!?([1-9][0-9]*):[^:]+:[0-9]+$`)
	sessionForm = regexp.MustCompile(`(?s)^[0-9]+ [0-9]+( .*)?$`)
	wholeForm   = regexp.MustCompile(`^-?[0-9]+$`)
)

// tokens judges the leases' tokens and what fence and sessions say.
func (s *snapshot) tokens(c *complaint) {
	highest, err := strconv.ParseInt(s.fence, 10, 64)
	if s.fence != "" && err != nil {
		c.add("fence is %q, want a number", s.fence)
	}
	holder := map[int64]string{}
	for _, id := range ids(s.leases) {
		parts := tokenForm.FindStringSubmatch(s.leases[id])
		if parts == nil {
			c.add("the token of %q is %q, want fence:session:number", id, s.leases[id])
			continue
		}
		fence, err := strconv.ParseInt(parts[1], 10, 64)
		if err != nil || fence > highest {
			c.add("the token of %q has the fence %s, above the highest given out, %d", id, parts[1], highest)
		}
		if other, twice := holder[fence]; twice {
			c.add("%q and %q were given the same fence %d", other, id, fence)
		}
		holder[fence] = id
	}
	for _, session := range ids(s.sessions) {
		if session == "" || !sessionForm.MatchString(s.sessions[session]) {
			c.add("session %q holds %.80q, want number, when and the rest", session, s.sessions[session])
		}
	}
	for _, session := range s.fields["holders"] {
		if _, there := s.sessions[session]; !there {
			c.each("a holder's name without its session", session)
		}
	}
	c.flush()
}

// numbers judges scores, wake and sweep.
func (s *snapshot) numbers(c *complaint) {
	for _, place := range ids(s.places) {
		for _, id := range ids(s.places[place]) {
			if score := s.places[place][id]; math.IsInf(score, 0) || score != math.Trunc(score) {
				c.add("%q is in %s at %v, want whole milliseconds", id, place, score)
			}
		}
	}
	if s.wake > 1 {
		c.add("wake holds %d elements, want at most one", s.wake)
	}
	for _, field := range ids(s.sweep) {
		if !slices.Contains([]string{"swept", "grace", "row"}, field) || !wholeForm.MatchString(s.sweep[field]) {
			c.add("sweep holds %q = %q, want numbers in swept, grace and row", field, s.sweep[field])
		}
	}
	if row, _ := strconv.Atoi(s.sweep["row"]); row < 0 || row > 3 {
		c.add("sweep's row is %d, want 0 to 3", row)
	}
}

// balance judges the counters. A missing one is 0.
func (s *snapshot) balance(c *complaint) {
	count := map[string]int64{}
	for _, field := range ids(s.stats) {
		n, err := strconv.ParseInt(s.stats[field], 10, 64)
		if err != nil || n < 0 {
			c.add("the counter %s is %q, want a number of 0 or more", field, s.stats[field])
		}
		count[field] = n
	}
	ended := int64(0)
	var sum []string
	for _, field := range []string{"acked", "nacked", "released", "buried", "expired", "cancelled_processing"} {
		ended += count[field]
		sum = append(sum, fmt.Sprintf("%s %d", field, count[field]))
	}
	processing := int64(len(s.places["processing"]))
	if count["claimed"] != ended+processing {
		c.add("stats do not balance: claimed %d, but %s and %d in processing make %d",
			count["claimed"], strings.Join(sum, ", "), processing, ended+processing)
	}
}
