package lease

import (
	"context"
	"fmt"
	"time"

	"github.com/leaseq/leaseq/internal/script"
)

// A Held names a lease.
type Held struct {
	ID, Token string

	Attached *Attached // a record that is changed in the same step, if the lease is extended; nil: none
}

// Extended is what an extend answered.
type Extended struct {
	Results  []error   // per item: nil, ErrCancelled, [*LostError] or ErrGone
	Deadline time.Time // until then the extended ones are held at least, on this process' monotonic clock
	Length   time.Duration
}

// Extend moves the expiries of leases to a lease length from now, never back; 0 is the published length. It is safe to
// run twice, so an error leaves nothing to resolve: extend again. Repeated until answered, refused, or ctx ends. A record
// that is attached does not decide about the lease: one of another owner is left as it is, and the lease is extended.
func (s *Store) Extend(ctx context.Context, length time.Duration, held []Held) (Extended, error) {
	req, err := s.extendRequest(length, held)
	if err != nil {
		return Extended{}, err
	}
	if err := s.repeat(ctx, req); err != nil {
		return Extended{}, err
	}
	return readExtended(req, held)
}

// ExtendOnce is Extend with a single try, on connections of the Store's own: for callers that repeat in their own time,
// and must not wait for a connection of a pool that others take.
func (s *Store) ExtendOnce(ctx context.Context, length time.Duration, held []Held) (Extended, error) {
	return s.extendBy(ctx, s.runner.SendFirst, length, held)
}

// extendAgain is ExtendOnce after a try that had no answer: connections of the Store's own that have been idle are replaced.
func (s *Store) extendAgain(ctx context.Context, length time.Duration, held []Held) (Extended, error) {
	return s.extendBy(ctx, s.runner.SendAgain, length, held)
}

// extendShared is ExtendOnce on the client's own connections.
func (s *Store) extendShared(ctx context.Context, length time.Duration, held []Held) (Extended, error) {
	return s.extendBy(ctx, s.runner.Send, length, held)
}

func (s *Store) extendBy(ctx context.Context, send func(context.Context, ...*script.Request), length time.Duration, held []Held) (Extended, error) {
	req, err := s.extendRequest(length, held)
	if err != nil {
		return Extended{}, err
	}
	if send(ctx, req); req.Err != nil {
		return Extended{}, req.Err
	}
	return readExtended(req, held)
}

func (s *Store) extendRequest(length time.Duration, held []Held) (*script.Request, error) {
	if err := checkBatch("extend", len(held)); err != nil {
		return nil, err
	}
	var records attachments
	for i := range held {
		if a := held[i].Attached; a != nil {
			if err := records.add(s, i, a, a.Expiry); err != nil {
				return nil, fmt.Errorf("extend %s: %w", held[i].ID, err)
			}
		}
	}
	if err := records.check(); err != nil {
		return nil, err
	}
	args := make([]any, 1, 1+len(records.args)+2*len(held))
	args[0] = ceilMillis(max(length, 0))
	args = append(args, records.args...)
	for i := range held {
		args = append(args, held[i].ID, held[i].Token)
	}
	return &script.Request{Script: extendScript, Args: args, Records: records.keys}, nil
}

func readExtended(req *script.Request, held []Held) (Extended, error) {
	if len(req.Reply) != 3 || req.Status() != "OK" {
		return Extended{}, odd(extendScript, req.Reply)
	}
	codes, ok1 := req.Reply[1].(string)
	ms, ok2 := req.Reply[2].(int64)
	if !ok1 || !ok2 || ms <= 0 || len(codes) != len(held) {
		return Extended{}, odd(extendScript, req.Reply)
	}
	out := Extended{Results: make([]error, len(held)), Length: millis(ms), Deadline: req.SentAt.Add(millis(ms))}
	for i := range held {
		switch codes[i] {
		case 'o':
		case 'c':
			out.Results[i] = ErrCancelled
		default:
			out.Results[i] = lost(extendScript, codes[i], held[i].ID)
		}
	}
	return out, nil
}
