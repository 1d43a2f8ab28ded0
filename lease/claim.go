package lease

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/leaseq/leaseq/internal/script"
)

// A Lease is a job that is held: proved by its token, until its deadline.
type Lease struct {
	ID     string
	Token  string
	Fence  int64     // grows with every claim of a partition: for fenced writes to another database
	Record []byte    // the envelope as it was enqueued
	Due    time.Time // when it was due, on Redis' clock
	due    string

	Late     time.Duration // for how long it had been due when it was claimed, on Redis' clock
	Deadline time.Time     // on this process' monotonic clock: until then nobody else gets the job
	Length   time.Duration

	Failures, Expiries, Redrives int
	MaxRetries, MaxExpiries      *int // the job's own limits, if it has any
}

// Attempt is the number of this start: 1 at first.
func (l *Lease) Attempt() int { return l.Failures + l.Expiries + 1 }

// ClaimedAt is when the claim was sent, on this process' monotonic clock.
func (l *Lease) ClaimedAt() time.Time { return l.Deadline.Add(-l.Length) }

// Claimed is what a claim found.
type Claimed struct {
	Jobs    []Lease
	Length  time.Duration // of the leases
	NextDue time.Duration // until the next job is due: 0 now, negative where nothing is due at all
	Held    string        // why nothing more was given though it is due: "" for no reason
	Missing int           // members without a record that were put into dead
	At      time.Time     // just before the call that was answered: what NextDue counts from
}

// ClaimOptions are the optional settings of a claim; nil is valid.
type ClaimOptions struct {
	Lease time.Duration // longer than the published one; default the published one
	Bytes int           // of records in the answer; default and maximum 4 MiB
}

// Claim leases up to n due jobs (1–1,000), the lowest due times first. Fewer may come though more are due, where their
// records would not fit the answer. An [*UnknownError] says that jobs may have been leased: they are given back,
// uncounted, in the background. A lease shorter than the published one is refused with a [*ShortLeaseError].
func (s *Store) Claim(ctx context.Context, n int, o *ClaimOptions) (Claimed, error) {
	call, err := s.claimCall(n, o)
	if err != nil {
		return Claimed{}, err
	}
	if err := s.sessions.Do(ctx, call); err != nil {
		return Claimed{}, err
	}
	return claimed(call, o)
}

func (s *Store) claimCall(n int, o *ClaimOptions) (*script.Call, error) {
	if err := checkBatch("claim", n); err != nil {
		return nil, err
	}
	var opts ClaimOptions
	if o != nil {
		opts = *o
	}
	if opts.Lease < 0 || opts.Bytes < 0 || opts.Bytes > MaxBytes {
		return nil, fmt.Errorf("claim: lease %v, bytes %d: want 0 or more, and at most %d bytes", opts.Lease, opts.Bytes, MaxBytes)
	}
	if opts.Bytes == 0 {
		opts.Bytes = MaxBytes
	}
	lease := ceilMillis(opts.Lease)
	return &script.Call{
		Op: "claim", Script: claimScript, Claim: n,
		ClaimArgs: func(seen int64, n int) []any { return []any{seen, n, lease, opts.Bytes, s.stub} },
		Seen:      highestFence,
	}, nil
}

// highestFence reads the highest fence that a claim's answer gave out.
func highestFence(reply []any) int64 {
	if len(reply) < claimHead {
		return 0
	}
	text, _ := reply[4].(string)
	first, _ := strconv.ParseInt(text, 10, 64)
	n, _ := reply[5].(int64)
	if n == 0 {
		return 0
	}
	return first + n - 1
}

// claimHead is how many elements of a claim's answer come before the jobs.
const claimHead = 8

func claimed(call *script.Call, o *ClaimOptions) (Claimed, error) {
	if call.Err != nil {
		return Claimed{}, call.Err
	}
	reply := call.Reply
	if status, _ := reply[0].(string); status == "SHORT" && len(reply) == 2 {
		ms, _ := reply[1].(int64)
		return Claimed{}, &ShortLeaseError{Asked: o.Lease, Published: millis(ms)}
	}
	if len(reply) < claimHead || (len(reply)-claimHead)%4 != 0 {
		return Claimed{}, odd(claimScript, reply)
	}
	length, ok1 := reply[1].(int64)
	next, ok2 := reply[2].(int64)
	held, ok3 := reply[3].(string)
	firstText, _ := reply[4].(string)
	first, err := strconv.ParseInt(firstText, 10, 64)
	missing, ok4 := reply[6].(int64)
	now, ok5 := reply[7].(int64)
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 || err != nil {
		return Claimed{}, odd(claimScript, reply[:claimHead])
	}
	out := Claimed{
		Length: millis(length), NextDue: millis(next), Held: held, Missing: int(missing), At: call.SentAt,
		Jobs: make([]Lease, (len(reply)-claimHead)/4),
	}
	owner := ":" + call.Session + ":" + strconv.FormatUint(call.Number, 10)
	for i := range out.Jobs {
		fence := first + int64(i)
		job := &out.Jobs[i]
		*job = Lease{
			Fence: fence, Token: strconv.FormatInt(fence, 10) + owner,
			Length: out.Length, Deadline: call.SentAt.Add(out.Length),
		}
		fields := reply[claimHead+4*i : claimHead+4*i+4]
		if !job.read(fields) {
			return Claimed{}, odd(claimScript, fields)
		}
		if !job.Due.IsZero() {
			job.Late = max(time.UnixMilli(now).Sub(job.Due), 0)
		}
	}
	return out, nil
}

func (l *Lease) read(fields []any) bool {
	id, ok1 := fields[0].(string)
	record, ok2 := fields[1].(string)
	due, ok3 := fields[2].(string)
	counts, ok4 := fields[3].(string)
	l.ID, l.Record, l.due, l.Due = id, []byte(record), due, dueTime(due)
	l.Failures, l.Expiries, l.Redrives, l.MaxRetries, l.MaxExpiries = readCounts(counts)
	return ok1 && ok2 && ok3 && ok4
}

// dueTime reads a score of due. Scores that are no time (infinities, by somebody's hand) become the zero time.
func dueTime(score string) time.Time {
	ms, err := strconv.ParseFloat(score, 64)
	if err != nil || ms < -1e15 || ms > 1e15 {
		return time.Time{}
	}
	return time.UnixMilli(int64(ms))
}

// readCounts reads the text form of counts; what is not in it is 0 or nil.
func readCounts(text string) (failures, expiries, redrives int, maxRetries, maxExpiries *int) {
	if text == "" {
		return
	}
	fields := strings.Fields(text)
	number := func(i int) *int {
		if i >= len(fields) {
			return nil
		}
		n, err := strconv.Atoi(fields[i])
		if err != nil {
			return nil
		}
		return &n
	}
	value := func(i int) int {
		if n := number(i); n != nil {
			return *n
		}
		return 0
	}
	return value(0), value(1), value(2), number(3), number(4)
}
