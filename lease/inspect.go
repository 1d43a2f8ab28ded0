package lease

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/leaseq/leaseq/internal/script"
)

// Stats is a picture of one partition, taken in one step. Claimable is how many of Due may be claimed now. Expired is how
// many of Processing are leases that have run out and that no sweeper has ended yet: the backlog of sweeping, which stays
// above 0 only where nobody sweeps, where holders are being spared after a gap, or while full batches are worked off.
type Stats struct {
	Due, Claimable, Processing, Expired, Dead, Done int64
	Records, Sessions                               int64
	OldestDue                                       time.Duration // how long the head of due has been claimable; negative: due is empty
	NextExpiry                                      time.Duration // until the next lease runs out; negative: nothing is in processing
	SinceSweep                                      time.Duration // negative: never swept
	Paused                                          bool          // claims give nothing
	PauseLeft                                       time.Duration // of a paused queue: until it goes on; 0: until it is resumed
	Counters                                        map[string]int64
}

// Stats reads the sizes of the places and the monotonic counters.
func (s *Store) Stats(ctx context.Context) (Stats, error) {
	req := &script.Request{Script: statsScript, Args: []any{}}
	if err := s.repeat(ctx, req); err != nil {
		return Stats{}, err
	}
	if len(req.Reply) != 14 {
		return Stats{}, odd(statsScript, req.Reply)
	}
	n, ok := integers(req.Reply[:13], 13)
	pairs, ok2 := req.Reply[13].([]any)
	if !ok || !ok2 || len(pairs)%2 != 0 {
		return Stats{}, odd(statsScript, req.Reply)
	}
	out := Stats{
		Due: n[0], Claimable: n[1], Processing: n[2], Expired: n[3], Dead: n[4], Done: n[5], Records: n[6], Sessions: n[7],
		OldestDue: millis(n[8]), NextExpiry: millis(n[9]), SinceSweep: millis(n[10]), Counters: map[string]int64{},
		Paused: n[11] >= 0, PauseLeft: millis(max(n[11], 0)),
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		name, isName := pairs[i].(string)
		text, isText := pairs[i+1].(string)
		if !isName || !isText {
			return Stats{}, odd(statsScript, req.Reply)
		}
		out.Counters[name], _ = strconv.ParseInt(text, 10, 64)
	}
	return out, nil
}

// A Failure is one of a job's last errors.
type Failure struct {
	At      time.Time // on Redis' clock
	Attempt int
	Holder  string
	Reason  string
	Class   Class // of the last error of a dead job, where it is stored
}

// Info is everything that is known of one job.
type Info struct {
	ID                           string
	Place                        Place
	At                           time.Time // when it is due, its lease runs out, it died, or was done; on Redis' clock
	In                           time.Duration
	Record                       []byte
	Failures, Expiries, Redrives int
	MaxRetries, MaxExpiries      *int
	NotAfter                     time.Time // too late to start after it; zero: none
	Errors                       []Failure // the last five, oldest first
	Stack                        string    // of the last panic, for dead jobs
	Holder                       string    // in processing: who holds it
	Fence                        int64     // in processing
	Cancelling                   bool
	Result                       []byte // in done: what its handler gave; nil from InspectHeads, or where there is none
}

// Inspect reads jobs by ID; an ID that no job has comes back with place Nowhere. 1 to 1,000 IDs. It is one step unless
// the records and results exceed 4 MiB together; then there are more.
func (s *Store) Inspect(ctx context.Context, ids []string) ([]Info, error) {
	return s.inspect(ctx, ids, 0)
}

// InspectHeads is Inspect with only the first bytes of each record, for looking at many jobs whose payloads are large.
func (s *Store) InspectHeads(ctx context.Context, ids []string, bytes int) ([]Info, error) {
	if bytes < 1 {
		return nil, fmt.Errorf("inspect: the first %d bytes of records: want 1 or more", bytes)
	}
	return s.inspect(ctx, ids, bytes)
}

func (s *Store) inspect(ctx context.Context, ids []string, head int) ([]Info, error) {
	if err := checkBatch("inspect", len(ids)); err != nil {
		return nil, err
	}
	out := make([]Info, 0, len(ids))
	for len(out) < len(ids) {
		some, err := s.inspectSome(ctx, ids[len(out):], head)
		if err != nil {
			return nil, err
		}
		out = append(out, some...)
	}
	return out, nil
}

// inspected is how many fields the answer has for each job.
const inspected = 8

// inspectSome reads the first of the jobs: as many as one answer holds.
func (s *Store) inspectSome(ctx context.Context, ids []string, head int) ([]Info, error) {
	args, err := idArgs("inspect", []any{head, MaxBytes}, ids)
	if err != nil {
		return nil, err
	}
	req := &script.Request{Script: inspectScript, Args: args}
	if err := s.repeat(ctx, req); err != nil {
		return nil, err
	}
	n := (len(req.Reply) - 2) / inspected
	if n < 1 || n > len(ids) || len(req.Reply) != 2+inspected*n {
		return nil, odd(inspectScript, len(req.Reply))
	}
	now, ok := req.Reply[1].(int64)
	if !ok || req.Status() != "OK" {
		return nil, odd(inspectScript, req.Reply[:2])
	}
	out := make([]Info, n)
	for i := range out {
		var field [inspected]string
		for j := range field {
			if field[j], ok = req.Reply[2+inspected*i+j].(string); !ok {
				return nil, odd(inspectScript, req.Reply[2+inspected*i+j])
			}
		}
		if out[i], ok = readInfo(ids[i], now, field); !ok {
			return nil, odd(inspectScript, field[0])
		}
	}
	return out, nil
}

// readInfo reads what is told of one job; false where its place is none that is known.
func readInfo(id string, now int64, field [inspected]string) (info Info, ok bool) {
	info = Info{ID: id, Record: []byte(field[2]), Holder: field[6]}
	if len(field[0]) == 1 {
		info.Place, ok = placeOf(field[0][0])
	}
	if info.At = dueTime(field[1]); !info.At.IsZero() {
		info.In = millis(info.At.UnixMilli() - now)
	}
	info.Failures, info.Expiries, info.Redrives, info.MaxRetries, info.MaxExpiries = readCounts(field[3])
	info.NotAfter = notAfter(field[3])
	info.Errors, info.Stack = readFailures(field[4])
	if field[7] != "" {
		info.Result = []byte(field[7])
	}
	token, marked := strings.CutPrefix(field[5], "!")
	info.Cancelling = marked
	fence, _, _ := strings.Cut(token, ":")
	info.Fence, _ = strconv.ParseInt(fence, 10, 64)
	return info, ok
}

// notAfter reads the deadline in the text form of counts; zero where there is none.
func notAfter(counts string) time.Time {
	if fields := strings.Fields(counts); len(fields) > 5 {
		return dueTime(fields[5])
	}
	return time.Time{}
}

func readFailures(text string) (list []Failure, stack string) {
	lines, stack, _ := strings.Cut(text, "\n\n")
	for line := range strings.SplitSeq(lines, "\n") {
		fields := strings.SplitN(line, "\t", 4)
		if len(fields) != 4 {
			continue
		}
		ms, _ := strconv.ParseInt(fields[0], 10, 64)
		attempt, _ := strconv.Atoi(fields[1])
		reason, class := cutClass(fields[3])
		list = append(list, Failure{At: time.UnixMilli(ms), Attempt: attempt, Holder: fields[2], Reason: reason, Class: class})
	}
	return list, stack
}
