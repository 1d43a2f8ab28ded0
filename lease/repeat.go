package lease

import (
	"context"
	"sync"

	"github.com/leaseq/leaseq/internal/script"
)

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
		s.left.behind(answer)
		return ctx.Err()
	}
}

// leavings are the unnumbered calls that their callers have left: each ends with the try that is on the wire, and what
// that one does must not come after Close.
type leavings struct {
	mu     sync.Mutex
	closed bool
	under  sync.WaitGroup
}

// behind has Close wait for a call; after Close the caller waits itself.
func (l *leavings) behind(answer <-chan error) {
	l.mu.Lock()
	closed := l.closed
	if !closed {
		l.under.Go(func() { <-answer })
	}
	l.mu.Unlock()
	if closed {
		<-answer
	}
}

func (l *leavings) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
}

func (l *leavings) await() { l.under.Wait() }
