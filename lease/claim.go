package lease

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

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

	NotAfter time.Time // too late to start after it, on Redis' clock; zero: none
}

// Attempt is the number of this start: 1 at first.
func (l *Lease) Attempt() int { return l.Failures + l.Expiries + 1 }

// ClaimedAt is when the claim was sent, on this process' monotonic clock.
func (l *Lease) ClaimedAt() time.Time { return l.Deadline.Add(-l.Length) }

// Claimed is what a claim found.
type Claimed struct {
	Jobs    []Lease
	Length  time.Duration // of the leases
	NextDue time.Duration // until the next job is due, or may be given: 0 now, negative where nobody knows, or nothing is due at all
	Held    string        // why nothing more was given though it is due: "" for no reason; see [HeldPaused]
	Missing int           // members without a record that were put into dead
	TooLate []Lease       // jobs whose NotAfter had passed: put into dead, so that none has a token, a fence or a deadline
	At      time.Time     // just before the call that was answered: what NextDue counts from
}

// ClaimOptions are the optional settings of a claim; nil is valid.
type ClaimOptions struct {
	Lease time.Duration // longer than the published one; default the published one
	Bytes int           // of records in the answer; default and maximum 4 MiB

	// Room is where Claimed.Jobs are written, if they fit its capacity; what it held is lost. Default: where there is room.
	Room []Lease
}

// Claim leases up to n due jobs (1–1,000), the lowest due times first. Fewer may come though more are due, where their
// records would not fit the answer. An [*UnknownError] says that jobs may have been leased: they are given back,
// uncounted, in the background. A lease shorter than the published one is refused with a [*ShortLeaseError]. A job whose
// NotAfter has passed takes one of the n, and goes to dead instead.
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

// highestFence reads the highest fence that a claim's answer gave out. Of one that is not understood nothing is seen:
// what it leased goes back with the session's next claim.
func highestFence(reply []any) int64 {
	first, n, ok := checkClaim(reply)
	if !ok || n == 0 {
		return 0
	}
	return first + n - 1
}

// claimHead is how many elements of a claim's answer come before the jobs' records.
const claimHead = 12

// checkClaim reads the first fence and the number of jobs; ok is false for what is no claim's answer, or contradicts itself.
func checkClaim(reply []any) (first, n int64, ok bool) {
	if len(reply) < claimHead || reply[0] != "OK" {
		return 0, 0, false
	}
	var numbers [5]int64 // lease, next due, jobs, missing, now
	for i, at := range [...]int{1, 2, 5, 6, 7} {
		if numbers[i], ok = reply[at].(int64); !ok {
			return 0, 0, false
		}
	}
	for _, at := range [...]int{3, 4, 8, 9, 10, 11} {
		if _, ok := reply[at].(string); !ok {
			return 0, 0, false
		}
	}
	first, err := strconv.ParseInt(reply[4].(string), 10, 64)
	n = numbers[2]
	if err != nil || numbers[0] <= 0 || first < 0 || n < 0 || n > MaxBatch || len(reply) < claimHead+int(n) || first > math.MaxInt64-n {
		return 0, 0, false
	}
	for _, field := range reply[claimHead : claimHead+n] {
		if _, ok := field.(string); !ok {
			return 0, 0, false
		}
	}
	if _, ok := lateOf(reply, n); !ok {
		return 0, 0, false
	}
	heads := headsOf(reply, int(n))
	for range n {
		if _, ok := heads.next(); !ok {
			return 0, 0, false
		}
	}
	return first, n, heads.over()
}

// lateFields is how many elements tell of a job that was too late: due time, counts, ID and record.
const lateFields = 4

// lateOf reads what a claim's answer with n jobs tells of those that were too late. ok is false for what is no such list.
func lateOf(reply []any, n int64) (late []string, ok bool) {
	rest := reply[claimHead+n:]
	if len(rest) == 0 {
		return nil, true
	}
	list, ok := rest[0].([]any)
	if !ok || len(rest) > 1 || len(list) == 0 || len(list)%lateFields != 0 || len(list) > lateFields*MaxBatch {
		return nil, false
	}
	for _, one := range list {
		text, isText := one.(string)
		if !isText {
			return nil, false
		}
		late = append(late, text)
	}
	return late, true
}

// heads reads what a claim's answer says of its jobs beside their records.
type heads struct {
	dues, sizes, counts eachOr
	ids                 string
}

func headsOf(reply []any, n int) heads {
	dues, sizes, counts := reply[8].(string), reply[9].(string), reply[10].(string)
	return heads{
		dues:   eachOr{rest: dues, by: " ", all: n > 1 && !strings.Contains(dues, " ")},
		sizes:  eachOr{rest: sizes, by: " ", all: n > 1 && !strings.Contains(sizes, " ")},
		counts: eachOr{rest: counts, by: "\n", all: counts == ""},
		ids:    reply[11].(string),
	}
}

// A head is what a claim's answer says of one job.
type head struct{ id, due, counts string }

// next is the head of the next job; ok is false where there is none, or where it is cut short.
func (h *heads) next() (one head, ok bool) {
	due, ok1 := h.dues.next()
	text, ok2 := h.sizes.next()
	counts, ok3 := h.counts.next()
	size, err := strconv.Atoi(text)
	if !ok1 || !ok2 || !ok3 || err != nil || size < 0 || size > len(h.ids) {
		return head{}, false
	}
	one = head{id: h.ids[:size], due: due, counts: counts}
	h.ids = h.ids[size:]
	return one, true
}

// over reports whether nothing is left.
func (h *heads) over() bool {
	return h.ids == "" && h.dues.over() && h.sizes.over() && h.counts.over()
}

// eachOr is a list of texts, or one that stands for all.
type eachOr struct {
	rest, by string
	all      bool
	ended    bool
}

func (e *eachOr) next() (text string, ok bool) {
	if e.all {
		return e.rest, true
	}
	if e.ended {
		return "", false
	}
	text, rest, more := strings.Cut(e.rest, e.by)
	e.rest, e.ended = rest, !more
	return text, true
}

func (e *eachOr) over() bool { return e.all || e.ended || e.rest == "" }

func claimed(call *script.Call, o *ClaimOptions) (Claimed, error) {
	if call.Err != nil {
		return Claimed{}, call.Err
	}
	reply := call.Reply
	if len(reply) == 2 && reply[0] == "SHORT" && o != nil {
		if ms, ok := reply[1].(int64); ok {
			return Claimed{}, &ShortLeaseError{Asked: o.Lease, Published: millis(ms)}
		}
	}
	first, n, ok := checkClaim(reply)
	if !ok {
		return Claimed{}, odd(claimScript, reply[:min(claimHead, len(reply))])
	}
	length, next, missing, now := reply[1].(int64), reply[2].(int64), reply[6].(int64), reply[7].(int64)
	out := Claimed{
		Length: millis(length), NextDue: millis(next), Held: reply[3].(string), Missing: int(missing), At: call.SentAt,
	}
	if o != nil {
		out.Jobs = o.Room[:0]
	}
	out.Jobs = slices.Grow(out.Jobs, int(n))[:n]
	tokens := newTokens(first, len(out.Jobs), call)
	heads := headsOf(reply, len(out.Jobs))
	for i := range out.Jobs {
		job := &out.Jobs[i]
		*job = Lease{
			Fence: first + int64(i), Token: tokens.next(), Record: bytesOf(reply[claimHead+i].(string)),
			Length: out.Length, Deadline: call.SentAt.Add(out.Length),
		}
		head, _ := heads.next()
		var before *Lease
		if i > 0 {
			before = &out.Jobs[i-1]
		}
		job.read(head, now, before)
	}
	late, _ := lateOf(reply, n)
	for one := range slices.Chunk(late, lateFields) {
		job := Lease{Record: bytesOf(one[3])}
		job.read(head{due: one[0], counts: one[1], id: one[2]}, now, nil)
		out.TooLate = append(out.TooLate, job)
	}
	return out, nil
}

// read takes what a claim's answer tells of a job. Many have the due time of the one before.
func (l *Lease) read(h head, now int64, before *Lease) {
	l.ID, l.due = h.id, h.due
	if before != nil && before.due == h.due {
		l.Due = before.Due
	} else {
		l.Due = dueTime(h.due)
	}
	if h.counts != "" {
		l.Failures, l.Expiries, l.Redrives, l.MaxRetries, l.MaxExpiries = readCounts(h.counts)
		l.NotAfter = notAfter(h.counts)
	}
	if !l.Due.IsZero() {
		l.Late = max(time.UnixMilli(now).Sub(l.Due), 0)
	}
}

// bytesOf gives the bytes of a string that the client has made for this answer alone, without a copy.
func bytesOf(text string) []byte { return unsafe.Slice(unsafe.StringData(text), len(text)) }

// tokens writes the tokens of a claim into one text.
type tokens struct {
	fence int64
	owner string
	text  []byte
}

func newTokens(first int64, n int, call *script.Call) *tokens {
	owner := ":" + call.Session + ":" + strconv.FormatUint(call.Number, 10)
	return &tokens{fence: first, owner: owner, text: make([]byte, 0, n*(len(owner)+19))}
}

func (t *tokens) next() string {
	from := len(t.text)
	t.text = append(strconv.AppendInt(t.text, t.fence, 10), t.owner...)
	t.fence++
	return unsafe.String(&t.text[from], len(t.text)-from) // what was written is not written again
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
