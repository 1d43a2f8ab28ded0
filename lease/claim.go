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
const claimHead = 10

// checkClaim reads the first fence and the number of jobs; ok is false for what is no claim's answer, or contradicts itself.
func checkClaim(reply []any) (first, n int64, ok bool) {
	if len(reply) < claimHead || reply[0] != "OK" {
		return 0, 0, false
	}
	length, ok1 := reply[1].(int64)
	_, ok2 := reply[2].(int64)
	_, ok3 := reply[3].(string)
	text, ok4 := reply[4].(string)
	n, ok5 := reply[5].(int64)
	_, ok6 := reply[6].(int64)
	_, ok7 := reply[7].(int64)
	heads, ok8 := reply[8].(string)
	ids, ok9 := reply[9].(string)
	first, err := strconv.ParseInt(text, 10, 64)
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 || !ok6 || !ok7 || !ok8 || !ok9 || err != nil || length <= 0 || first < 0 {
		return 0, 0, false
	}
	if n < 0 || n > MaxBatch || len(reply) < claimHead+int(n) || first > math.MaxInt64-n {
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
	for range n {
		var size int
		if _, size, _, heads, ok = cutHead(heads); !ok || size > len(ids) {
			return 0, 0, false
		}
		ids = ids[size:]
	}
	return first, n, heads == "" && ids == ""
}

// lateOf reads what a claim's answer with n jobs tells of those that were too late, three texts each: a line of heads, the
// ID and the record. ok is false for what is no such list.
func lateOf(reply []any, n int64) (late []string, ok bool) {
	rest := reply[claimHead+n:]
	if len(rest) == 0 {
		return nil, true
	}
	list, ok := rest[0].([]any)
	if !ok || len(rest) > 1 || len(list) == 0 || len(list)%3 != 0 || len(list) > 3*MaxBatch {
		return nil, false
	}
	for _, one := range list {
		text, isText := one.(string)
		if !isText {
			return nil, false
		}
		late = append(late, text)
	}
	for one := range slices.Chunk(late, 3) {
		if _, size, _, more, ok := cutHead(one[0]); !ok || more != "" || size != len(one[1]) {
			return nil, false
		}
	}
	return late, true
}

// cutHead reads one line of a claim's heads: the due time, the length of the ID, and the counts, if there are any.
func cutHead(heads string) (due string, size int, counts, rest string, ok bool) {
	line, rest, _ := strings.Cut(heads, "\n")
	due, line, ok = strings.Cut(line, " ")
	length, counts, _ := strings.Cut(line, " ")
	size, err := strconv.Atoi(length)
	return due, size, counts, rest, ok && err == nil && size >= 0
}

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
		Jobs: make([]Lease, n),
	}
	tokens := newTokens(first, len(out.Jobs), call)
	heads, ids := reply[8].(string), reply[9].(string)
	for i := range out.Jobs {
		job := &out.Jobs[i]
		*job = Lease{
			Fence: first + int64(i), Token: tokens.next(), Record: bytesOf(reply[claimHead+i].(string)),
			Length: out.Length, Deadline: call.SentAt.Add(out.Length),
		}
		var size int
		size, heads = job.readHead(heads, now)
		job.ID, ids = ids[:size], ids[size:]
	}
	late, _ := lateOf(reply, n)
	for one := range slices.Chunk(late, 3) {
		job := Lease{ID: one[1], Record: bytesOf(one[2])}
		job.readHead(one[0], now)
		out.TooLate = append(out.TooLate, job)
	}
	return out, nil
}

// readHead takes what the next line of a claim's heads tells; size is the length of the ID.
func (l *Lease) readHead(heads string, now int64) (size int, rest string) {
	var counts string
	l.due, size, counts, rest, _ = cutHead(heads)
	l.Due = dueTime(l.due)
	l.Failures, l.Expiries, l.Redrives, l.MaxRetries, l.MaxExpiries = readCounts(counts)
	l.NotAfter = notAfter(counts)
	if !l.Due.IsZero() {
		l.Late = max(time.UnixMilli(now).Sub(l.Due), 0)
	}
	return size, rest
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
