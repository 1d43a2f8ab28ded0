package lease

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/leaseq/leaseq/internal/script"
)

// Removed is what became of one job that was to be cancelled.
type Removed struct {
	Cancelled  bool // it is gone
	Cancelling bool // it is being worked on: removed when its lease ends, whatever ends it
	Err        error
}

// Cancel removes jobs by ID, wherever they are. An ID that no job has gives ErrGone. 1 to 1,000 IDs.
//
// records, if any are given, are one for each ID: the whole key of an idempotency record that is deleted with the job, or
// "". It is deleted only where the job is removed by this call. That of a job that is being worked on stays; whatever ends
// the lease leaves it to its time to live, but for a nack, release or bury that has it attached (see [Attached]).
func (s *Store) Cancel(ctx context.Context, ids []string, records ...string) ([]Removed, error) {
	given, items, err := s.recordKeys("cancel", ids, records)
	if err != nil {
		return nil, err
	}
	args, err := idArgs("cancel", items, ids)
	if err != nil {
		return nil, err
	}
	read := func(rest string, i int) Removed {
		switch {
		case len(rest) != len(ids):
		case rest[i] == 'c':
			return Removed{Cancelled: true}
		case rest[i] == 'p':
			return Removed{Cancelling: true}
		case rest[i] == '0':
			return Removed{Err: ErrGone}
		}
		return Removed{Err: odd(cancelScript, rest)}
	}
	call, err := s.numbered(ctx, "cancel", cancelScript, args, given...)
	out := make([]Removed, len(ids))
	if err != nil {
		items := unknownItems(err, call, len(ids), func(rest string, i int) error { return read(rest, i).Err })
		for i := range items {
			out[i].Err = items[i]
		}
		return out, err
	}
	for i := range out {
		out[i] = read(call.Rest, i)
	}
	return out, nil
}

// A Cursor is where a bulk call goes on: the zero value begins, and fixes the upper bound, so that the calls come to an
// end whatever is added meanwhile.
type Cursor struct {
	bound string
	Done  bool // nothing more is below the bound
}

// Redrive puts dead jobs back to due by ID, with fresh counters and redrives + 1. Per item: nil, [*LostError] with the
// place where the job is instead, or ErrGone. 1 to 1,000 IDs.
func (s *Store) Redrive(ctx context.Context, ids []string) ([]error, error) {
	return s.byID(ctx, "redrive", redriveScript, []any{0, ""}, ids, nil)
}

// RedriveNext redrives the up to n jobs (1–1,000) that died first, and moves the cursor on. It returns how many were
// redriven. After an error the same cursor may be used again: nothing is done twice.
func (s *Store) RedriveNext(ctx context.Context, cursor *Cursor, n int) (int, error) {
	return s.bulk(ctx, "redrive", redriveScript, nil, cursor, n)
}

// Purge deletes jobs in due, dead or done by ID, for good. Per item: nil, or ErrGone where the job is not in that place.
// records, if any are given, are one for each ID: the whole key of an idempotency record that is deleted with the job, or
// "".
func (s *Store) Purge(ctx context.Context, place Place, ids []string, records ...string) ([]error, error) {
	if err := purgeable(place); err != nil {
		return nil, err
	}
	given, items, err := s.recordKeys("purge", ids, records)
	if err != nil {
		return nil, err
	}
	return s.byID(ctx, "purge", purgeScript, append([]any{string(place), 0, ""}, items...), ids, given)
}

// PurgeNext deletes the up to n jobs (1–1,000) that were due, died or were done first, as RedriveNext.
func (s *Store) PurgeNext(ctx context.Context, place Place, cursor *Cursor, n int) (int, error) {
	if err := purgeable(place); err != nil {
		return 0, err
	}
	return s.bulk(ctx, "purge", purgeScript, []any{string(place)}, cursor, n)
}

func purgeable(place Place) error {
	if place != Due && place != Dead && place != Done {
		return fmt.Errorf("purge: jobs in %s cannot be purged: want due, dead or done", place)
	}
	return nil
}

func (s *Store) byID(ctx context.Context, op string, sc *script.Script, before []any, ids, records []string) ([]error, error) {
	args, err := idArgs(op, before, ids)
	if err != nil {
		return nil, err
	}
	read := func(rest string, i int) error {
		_, _, codes, err := bulkAnswer(sc, rest)
		switch {
		case err != nil:
			return err
		case len(codes) != len(ids):
			return odd(sc, rest)
		case codes[i] == 'o':
			return nil
		}
		return lost(sc, codes[i], ids[i])
	}
	call, err := s.numbered(ctx, op, sc, args, records...)
	if err != nil {
		return unknownItems(err, call, len(ids), read), err
	}
	out := make([]error, len(ids))
	for i := range out {
		out[i] = read(call.Rest, i)
	}
	return out, nil
}

func (s *Store) bulk(ctx context.Context, op string, sc *script.Script, before []any, cursor *Cursor, n int) (int, error) {
	if err := checkBatch(op, n); err != nil {
		return 0, err
	}
	if cursor == nil {
		return 0, errors.New(op + ": the cursor is nil: begin with a zero Cursor")
	}
	call, err := s.numbered(ctx, op, sc, append(before, n, cursor.bound))
	if err != nil {
		return 0, err
	}
	bound, more, codes, err := bulkAnswer(sc, call.Rest)
	if err != nil {
		return 0, err
	}
	cursor.bound, cursor.Done = bound, !more
	return strings.Count(codes, "o"), nil
}

// bulkAnswer reads `bound more codes`.
func bulkAnswer(sc *script.Script, rest string) (bound string, more bool, codes string, err error) {
	fields := strings.SplitN(rest, " ", 3)
	if len(fields) != 3 || fields[1] != "0" && fields[1] != "1" || strings.Trim(fields[2], "o01234") != "" {
		return "", false, "", odd(sc, rest)
	}
	if _, err := strconv.ParseInt(fields[0], 10, 64); err != nil { // an empty one would begin anew, without end
		return "", false, "", odd(sc, rest)
	}
	return fields[0], fields[1] == "1", fields[2], nil
}

func idArgs(op string, before []any, ids []string) ([]any, error) {
	if err := checkBatch(op, len(ids)); err != nil {
		return nil, err
	}
	args := append(make([]any, 0, len(before)+len(ids)), before...)
	for _, id := range ids {
		args = append(args, id)
	}
	return args, nil
}
