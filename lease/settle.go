package lease

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/leaseq/leaseq/internal/script"
)

// An Op is what a settle does with a lease.
type Op byte

// The four ways to end a lease.
const (
	Ack     Op = 'a' // finished: the job is removed, and its ID kept in done where the policy has a DoneAge
	Nack    Op = 'n' // failed: failures + 1; back to due after Delay, or to dead when the retries are used up
	Release Op = 'r' // unfinished: back to due, counts nothing
	Bury    Op = 'b' // failed for good: failures + 1; to dead
)

// opNames are the arguments for the script, made once.
var opNames = [256]any{Ack: "a", Nack: "n", Release: "r", Bury: "b"}

// A Verdict ends one lease.
type Verdict struct {
	Op    Op
	Newer bool // Release: counts it as a record that a newer version wrote
	ID    string
	Token string

	Delay  time.Duration // Nack, Release: from Redis' now, rounded up to milliseconds; 0 is due at once
	KeepAt string        // Release: put back at its old due time instead; see KeepDue
	Reason string        // Nack, Bury: one line of valid UTF-8, at most 512 bytes
	Class  Class         // Nack, Bury: why the job is dead if this ends it; may be left out
	Stack  string        // Nack, Bury: kept only if the job goes to dead, at most 4 KiB

	Result []byte // Ack: kept with the ID in done, at most MaxResult; where nothing is kept it is dropped. An empty one is none

	Attached *Attached // a record that is changed in the same step; nil: none
}

// KeepDue makes a release put the job back at the due time it had, its place in the queue.
func (v *Verdict) KeepDue(l *Lease) { v.KeepAt = l.due }

// A Settled is what became of a job whose lease was ended.
type Settled struct {
	Place     Place // Nowhere (acked, whether or not its ID is kept in done), Due or Dead
	Cancelled bool  // the job had been cancelled, and is removed
	Err       error // [*LostError], ErrGone, [*RecordError] or [*UnknownError]: the lease was not ended by this call
}

// Settle ends leases, acks, nacks, releases and buries mixed, in one call. A verdict on a lease that is not its
// holder's any more is refused (ErrLost by errors.Is) and changes nothing, and so is an ack whose attached record is not
// its owner's ([ErrRecord]). 1 to 1,000 verdicts; the attached records of more than one hold at most 4 MiB together, and so
// do their results.
func (s *Store) Settle(ctx context.Context, verdicts []Verdict) ([]Settled, error) {
	call, err := s.settleCall(verdicts)
	if err != nil {
		return nil, err
	}
	err = s.sessions.Do(ctx, call)
	return settled(call, err, verdicts)
}

// Exchange settles and claims in one round trip: n jobs, or none with n = 0. The two have results and errors of their
// own. Nothing is claimed that the settle of the same call put back is bound to be among.
func (s *Store) Exchange(ctx context.Context, verdicts []Verdict, n int, o *ClaimOptions) (done []Settled, settleErr error, jobs Claimed, claimErr error) {
	switch {
	case len(verdicts) == 0:
		jobs, claimErr = s.Claim(ctx, n, o)
		return
	case n == 0:
		done, settleErr = s.Settle(ctx, verdicts)
		return
	}
	settle, settleErr := s.settleCall(verdicts)
	claim, claimErr := s.claimCall(n, o)
	if err := errors.Join(settleErr, claimErr); err != nil {
		return nil, err, Claimed{}, err
	}
	err := s.sessions.Do(ctx, settle, claim)
	done, settleErr = settled(settle, err, verdicts)
	if err != nil {
		return done, settleErr, Claimed{}, err
	}
	jobs, claimErr = claimed(claim, o)
	return done, settleErr, jobs, claimErr
}

func (s *Store) settleCall(verdicts []Verdict) (*script.Call, error) {
	if err := checkBatch("settle", len(verdicts)); err != nil {
		return nil, err
	}
	records, err := s.settleRecords(verdicts)
	if err != nil {
		return nil, err
	}
	if err := checkResults(verdicts); err != nil {
		return nil, fmt.Errorf("settle: %w", err)
	}
	args := make([]any, 1, 1+len(records.args)+3*len(verdicts))
	args[0] = s.stub
	args = append(args, records.args...)
	texts := make([]string, 0, 2*len(verdicts)) // pointers to these are cheaper than copies in each argument
	for i := range verdicts {
		v := &verdicts[i]
		if err := v.check(); err != nil {
			return nil, fmt.Errorf("settle %s: %w", v.ID, err)
		}
		texts = append(texts, v.ID, v.Token)
		args = append(args, v.opName(), &texts[len(texts)-2], &texts[len(texts)-1])
		switch v.Op {
		case Ack:
			if len(v.Result) > 0 {
				args = append(args, v.Result)
			}
		case Nack:
			args = append(args, v.when(), v.Class.with(v.Reason), v.Stack)
		case Release:
			mark := ""
			if v.Newer {
				mark = "newer"
			}
			args = append(args, v.when(), mark)
		case Bury:
			args = append(args, v.Class.with(v.Reason), v.Stack)
		}
	}
	return &script.Call{Op: "settle", Script: settleScript, Args: args, Records: records.keys}, nil
}

// settleRecords gathers the records that verdicts attach. That of a job's own effects is marked.
func (s *Store) settleRecords(verdicts []Verdict) (all attachments, err error) {
	for i := range verdicts {
		v := &verdicts[i]
		if v.Attached == nil {
			continue
		}
		mark := ""
		if v.Attached.Key == s.keys.Once(v.ID) {
			mark = "own"
		}
		if err := all.add(s, i, v.Attached, mark); err != nil {
			return attachments{}, fmt.Errorf("settle %s: %w", v.ID, err)
		}
	}
	return all, all.check()
}

// check refuses what the script could not store as it is: it must not stop halfway through a batch.
func (v *Verdict) check() error {
	switch {
	case opNames[v.Op] == nil:
		return fmt.Errorf("unknown verdict %q", string(v.Op))
	case len(v.Result) > MaxResult:
		return &TooLargeError{What: "result", Size: len(v.Result), Limit: MaxResult}
	case len(v.Result) > 0 && v.Op != Ack:
		return fmt.Errorf("a result with the verdict %q: only an ack has one", string(v.Op))
	case v.Delay < 0:
		return fmt.Errorf("a delay of %v: want 0 or more", v.Delay)
	case len(v.Reason) > maxReason || strings.ContainsAny(v.Reason, "\r\n") || !utf8.ValidString(v.Reason):
		return fmt.Errorf("a reason of %d bytes: want one line of valid UTF-8, at most %d bytes", len(v.Reason), maxReason)
	case v.Class != ClassUnknown && !v.Class.known():
		return fmt.Errorf("class %q is none of %v", v.Class, Classes())
	case len(v.Stack) > maxStack:
		return fmt.Errorf("a stack of %d bytes: want at most %d", len(v.Stack), maxStack)
	}
	if v.KeepAt == "" {
		return nil
	}
	if at, err := strconv.ParseFloat(v.KeepAt, 64); err != nil || math.IsNaN(at) {
		return fmt.Errorf("%q is no due time: use KeepDue", v.KeepAt)
	}
	return nil
}

// opName is the verdict's letter for the script: that of an ack with a result is its own.
func (v *Verdict) opName() any {
	if len(v.Result) > 0 {
		return "k"
	}
	return opNames[v.Op]
}

// Size is how many bytes the result and the fields of the attached record have: of all verdicts of one call at most [MaxBytes].
func (v *Verdict) Size() int { return len(v.Result) + v.Attached.Size() }

// checkResults bounds what the results of one call hold together.
func checkResults(verdicts []Verdict) error {
	bytes := 0
	for i := range verdicts {
		bytes += len(verdicts[i].Result)
	}
	if bytes > MaxBytes {
		return &TooLargeError{What: "the results of one call", Size: bytes, Limit: MaxBytes}
	}
	return nil
}

func (v *Verdict) when() string {
	if v.KeepAt != "" {
		return "@" + v.KeepAt
	}
	return strconv.FormatInt(ceilMillis(v.Delay), 10)
}

func settled(call *script.Call, err error, verdicts []Verdict) ([]Settled, error) {
	if err == nil {
		err = call.Err
	}
	out := make([]Settled, len(verdicts))
	if err != nil {
		items := unknownItems(err, call, len(verdicts), func(rest string, i int) error {
			return readSettled(rest, i, &verdicts[i]).Err
		})
		if items == nil {
			return nil, err
		}
		for i := range out {
			out[i].Err = items[i]
		}
		return out, err
	}
	if len(call.Rest) != len(verdicts) {
		return nil, odd(settleScript, call.Rest)
	}
	for i := range out {
		out[i] = readSettled(call.Rest, i, &verdicts[i])
	}
	return out, nil
}

func readSettled(rest string, i int, v *Verdict) Settled {
	if i >= len(rest) {
		return Settled{Err: odd(settleScript, rest)}
	}
	switch rest[i] {
	case 'o':
		return Settled{}
	case 'd':
		return Settled{Place: Due}
	case 'x':
		return Settled{Place: Dead}
	case 'c':
		return Settled{Cancelled: true}
	case 'r':
		if v.Attached != nil {
			return Settled{Err: &RecordError{ID: v.ID, Key: v.Attached.Key}}
		}
	}
	return Settled{Err: lost(settleScript, rest[i], v.ID)}
}

// lost reads the code of a lease that is not the caller's.
func lost(sc *script.Script, code byte, id string) error {
	place, ok := placeOf(code)
	switch {
	case !ok:
		return odd(sc, string(code))
	case place == Nowhere:
		return ErrGone
	}
	return &LostError{ID: id, Place: place}
}
