package lease

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/leaseq/leaseq/internal/script"
)

// Reschedule gives jobs in due another due time: d from Redis' now, rounded up to milliseconds; 0 is due at once. Per
// item: nil, [*DelayTooLongError], [*LostError] with the place where the job is instead of due, or ErrGone. 1 to 1,000 IDs.
func (s *Store) Reschedule(ctx context.Context, d time.Duration, ids []string) ([]error, error) {
	if d < 0 {
		return nil, fmt.Errorf("reschedule: a delay of %v: want 0 or more", d)
	}
	return s.reschedule(ctx, "reschedule", strconv.FormatInt(ceilMillis(d), 10), d, ids)
}

// Promote makes jobs in due claimable at once. One that is claimable already keeps its place in the order. Per item as
// Reschedule.
func (s *Store) Promote(ctx context.Context, ids []string) ([]error, error) {
	return s.reschedule(ctx, "promote", "now", 0, ids)
}

func (s *Store) reschedule(ctx context.Context, op, when string, asked time.Duration, ids []string) ([]error, error) {
	if err := checkBatch(op, len(ids)); err != nil {
		return nil, err
	}
	args := make([]any, 0, 2*len(ids))
	for _, id := range ids {
		args = append(args, id, when)
	}
	return s.coded(ctx, op, rescheduleScript, args, ids, func(i int, code byte, limits limitsTold) error {
		if code == 'l' {
			return limits.tooLong(0, ids[i], asked)
		}
		return nil
	})
}

// Bury puts jobs in due into dead, by an operator's hand: no failure is counted. reason is one line of valid UTF-8 of at
// most 512 bytes, without tabs; it is kept as the job's last error, with this store's holder, attempt 0 and [ClassByHand].
// Per item: nil, [*LostError] with the place where the job is instead of due, or ErrGone. 1 to 1,000 IDs.
func (s *Store) Bury(ctx context.Context, reason string, ids []string) ([]error, error) {
	if len(reason) > maxReason || strings.ContainsAny(reason, "\r\n\t") || !utf8.ValidString(reason) {
		return nil, fmt.Errorf("bury: a reason of %d bytes: want one line of valid UTF-8 without tabs, at most %d bytes", len(reason), maxReason)
	}
	args, err := idArgs("bury", []any{s.stub, ClassByHand.with(reason)}, ids)
	if err != nil {
		return nil, err
	}
	return s.coded(ctx, "bury", buryScript, args, ids, nil)
}

// coded makes a numbered call whose answer is one code an item: o is success, a place refuses, and own reads what is
// neither, or returns nil.
func (s *Store) coded(ctx context.Context, op string, sc *script.Script, args []any, ids []string, own func(i int, code byte, limits limitsTold) error) ([]error, error) {
	read := func(rest string, i int) error {
		codes, limits := cutLimits(rest)
		switch {
		case len(codes) != len(ids):
			return odd(sc, rest)
		case codes[i] == 'o':
			return nil
		}
		if own != nil {
			if err := own(i, codes[i], limits); err != nil {
				return err
			}
		}
		return lost(sc, codes[i], ids[i])
	}
	call, err := s.numbered(ctx, op, sc, args)
	if err != nil {
		return unknownItems(err, call, len(ids), read), err
	}
	out := make([]error, len(ids))
	for i := range out {
		out[i] = read(call.Rest, i)
	}
	return out, nil
}
