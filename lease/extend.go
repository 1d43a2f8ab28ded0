package lease

import (
	"context"
	"time"

	"github.com/leaseq/leaseq/internal/script"
)

// A Held names a lease.
type Held struct{ ID, Token string }

// Extended is what an extend answered.
type Extended struct {
	Results  []error   // per item: nil, ErrCancelled, [*LostError] or ErrGone
	Deadline time.Time // until then the extended ones are held at least, on this process' monotonic clock
	Length   time.Duration
}

// Extend moves the expiries of leases to a lease length from now, never back; 0 is the published length. It is safe to
// run twice, so an error leaves nothing to resolve: extend again. Repeated until answered, refused, or ctx ends.
func (s *Store) Extend(ctx context.Context, length time.Duration, held []Held) (Extended, error) {
	req, err := extendRequest(length, held)
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
	return extendBy(ctx, s.runner.SendFirst, length, held)
}

// extendShared is ExtendOnce on the client's own connections.
func (s *Store) extendShared(ctx context.Context, length time.Duration, held []Held) (Extended, error) {
	return extendBy(ctx, s.runner.Send, length, held)
}

func extendBy(ctx context.Context, send func(context.Context, ...*script.Request), length time.Duration, held []Held) (Extended, error) {
	req, err := extendRequest(length, held)
	if err != nil {
		return Extended{}, err
	}
	if send(ctx, req); req.Err != nil {
		return Extended{}, req.Err
	}
	return readExtended(req, held)
}

func extendRequest(length time.Duration, held []Held) (*script.Request, error) {
	if err := checkBatch("extend", len(held)); err != nil {
		return nil, err
	}
	args := make([]any, 1, 1+2*len(held))
	args[0] = ceilMillis(max(length, 0))
	for _, one := range held {
		args = append(args, one.ID, one.Token)
	}
	return &script.Request{Script: extendScript, Args: args}, nil
}

func readExtended(req *script.Request, held []Held) (Extended, error) {
	if len(req.Reply) != 3 {
		return Extended{}, odd(extendScript, req.Reply)
	}
	codes, ok1 := req.Reply[1].(string)
	ms, ok2 := req.Reply[2].(int64)
	if !ok1 || !ok2 || len(codes) != len(held) {
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

// repeat runs an unnumbered script in a goroutine of its own, so that the end of ctx is noticed at once though the
// client waits for an answer.
func (s *Store) repeat(ctx context.Context, req *script.Request) error {
	if ctx.Done() == nil {
		return s.runner.Repeat(ctx, req)
	}
	own := *req
	answer := make(chan error, 1)
	go func() { answer <- s.runner.Repeat(ctx, &own) }()
	select {
	case err := <-answer:
		*req = own
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
