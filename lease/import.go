package lease

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A Kept job is one that was taken out of a queue, or copied, to be put into one again as it was.
type Kept struct {
	ID     string
	Place  Place     // Due or Dead
	At     time.Time // when it is due, or died; dead jobs are taken to have died by Redis' now
	Record []byte    // the envelope: opaque here, never empty

	Failures, Expiries, Redrives int
	MaxRetries, MaxExpiries      *int
	NotAfter                     time.Time // zero: none
	Errors                       []Failure // at most five, oldest first
	Stack                        string    // at most 4 KiB
}

// Kept is the job as Import takes it.
func (info *Info) Kept() Kept {
	return Kept{
		ID: info.ID, Place: info.Place, At: info.At, Record: info.Record,
		Failures: info.Failures, Expiries: info.Expiries, Redrives: info.Redrives,
		MaxRetries: info.MaxRetries, MaxExpiries: info.MaxExpiries, NotAfter: info.NotAfter, Errors: info.Errors, Stack: info.Stack,
	}
}

// Import makes jobs whose ID is in no place, in due or dead, with their counters, limits and errors as they are given.
// Per item: nil, or [*DuplicateError]. It does not ask for the limits that the queue has published. Out of memory
// (ErrOutOfMemory) leaves nothing behind. 1 to 1,000 jobs, whose records hold at most 4 MiB together; one may exceed that.
func (s *Store) Import(ctx context.Context, jobs []Kept) ([]error, error) {
	if err := checkBatch("import", len(jobs)); err != nil {
		return nil, err
	}
	bytes := 0
	args := make([]any, 0, 6*len(jobs))
	for i := range jobs {
		job := &jobs[i]
		if err := job.Check(); err != nil {
			return nil, fmt.Errorf("import %s: %w", job.ID, err)
		}
		bytes += len(job.Record)
		args = append(args, job.ID, string(job.Place), job.At.UnixMilli(), job.Record, job.counts(), job.errors())
	}
	if bytes > MaxBytes && len(jobs) > 1 {
		return nil, fmt.Errorf("import: records of %d bytes: want at most %d together, or one job", bytes, MaxBytes)
	}
	read := func(rest string, i int) error {
		if len(rest) == len(jobs) && rest[i] == 'c' {
			return nil
		}
		if len(rest) == len(jobs) {
			if place, ok := placeOf(rest[i]); ok && place != Nowhere {
				return &DuplicateError{ID: jobs[i].ID, Place: place}
			}
		}
		return odd(importScript, rest)
	}
	call, err := s.numbered(ctx, "import", importScript, args)
	if err != nil {
		return unknownItems(err, call, len(jobs), read), err
	}
	out := make([]error, len(jobs))
	for i := range out {
		out[i] = read(call.Rest, i)
	}
	return out, nil
}

// mostCount bounds counters: Lua and Go read them alike up to there.
const mostCount = 1_000_000_000

// mostErrors is how many last errors a job keeps.
const mostErrors = 5

// Check refuses what no script would have stored, and names it.
func (k *Kept) Check() error {
	count := func(n int) bool { return n >= 0 && n <= mostCount }
	limit := func(n *int) bool { return n == nil || count(*n) }
	switch {
	case k.ID == "" || len(k.Record) == 0:
		return errors.New("it needs an ID and a record")
	case k.Place != Due && k.Place != Dead:
		return fmt.Errorf("its place is %q: want due or dead", k.Place)
	case k.At.IsZero() || dueTime(strconv.FormatInt(k.At.UnixMilli(), 10)).IsZero():
		return fmt.Errorf("its time in %s is %v: want one that a clock shows", k.Place, k.At)
	case !count(k.Failures) || !count(k.Expiries) || !count(k.Redrives) || !limit(k.MaxRetries) || !limit(k.MaxExpiries):
		return fmt.Errorf("counters or limits are out of range: want 0 to %d", mostCount)
	case len(k.Errors) > mostErrors || len(k.Stack) > maxStack || k.Stack != "" && len(k.Errors) == 0:
		return fmt.Errorf("%d errors and a stack of %d bytes: want at most %d, and %d bytes beside an error", len(k.Errors), len(k.Stack), mostErrors, maxStack)
	}
	for i := range k.Errors {
		f := &k.Errors[i]
		bad := len(f.Reason) > maxReason || strings.ContainsAny(f.Reason+f.Holder, "\r\n\t") || !utf8.ValidString(f.Reason+f.Holder) || len(f.Holder) > 64
		if bad || !count(f.Attempt) || f.Class != ClassUnknown && !f.Class.known() {
			return fmt.Errorf("error %d: want an attempt, a reason of at most %d bytes and a holder of at most 64, each one line of valid UTF-8 without tabs, and a known class", i+1, maxReason)
		}
	}
	return nil
}

// counts is the stored form of the counters, "" where all is as at first.
func (k *Kept) counts() string {
	if k.Failures+k.Expiries+k.Redrives == 0 && k.MaxRetries == nil && k.MaxExpiries == nil && k.NotAfter.IsZero() {
		return ""
	}
	return fmt.Sprintf("%d %d %d %s %s %s", k.Failures, k.Expiries, k.Redrives, ownLimit(k.MaxRetries), ownLimit(k.MaxExpiries), ownTime(k.NotAfter))
}

// errors is the stored form of the last errors.
func (k *Kept) errors() string {
	lines := make([]string, len(k.Errors))
	for i := range k.Errors {
		f := &k.Errors[i]
		lines[i] = fmt.Sprintf("%d\t%d\t%s\t%s", f.At.UnixMilli(), f.Attempt, f.Holder, f.Class.with(f.Reason))
	}
	text := strings.Join(lines, "\n")
	if k.Stack != "" {
		text += "\n\n" + k.Stack
	}
	return text
}
