package cases

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/reliable"
)

// redrives are the ways in which a dead job X comes back.
var redrives = map[string]func(l *lane) error{
	"by ID": func(l *lane) error { l.redriveX(); return nil },
	"all that is dead": func(l *lane) error {
		var cursor reliable.Cursor
		n, err := l.queue.RedriveNext(l.t.Context(), &cursor, 10)
		return errors.Join(err, want("redriven", 1, n))
	},
	"by an edit": func(l *lane) error {
		return l.queue.EditAndRedrive(l.t.Context(), "X", reliable.Edit{Payload: []byte("payload")})
	},
	"out of an export": func(l *lane) error {
		info, err := l.queue.Get(l.t.Context(), "X")
		require.NoError(l.t, err)
		l.purgeX(reliable.Dead)
		results, err := l.queue.Import(l.t.Context(), []reliable.Info{info})
		require.NoError(l.t, errors.Join(append(results, err)...))
		l.redriveX()
		return nil
	},
}

// A starter fails each start of a job, and notes what it was given.
type starter struct {
	mu       sync.Mutex
	attempts []int
	redrives []int
	effects  int
	odd      []string
}

func (s *starter) Handle(ctx context.Context, job *reliable.Job) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts, s.redrives = append(s.attempts, job.Attempt), append(s.redrives, job.Redrives)
	if string(job.Payload) != "payload" || job.Headers["idempotency-key"] != "key" {
		s.odd = append(s.odd, fmt.Sprintf("%q %v", job.Payload, job.Headers))
	}
	err := job.Once(ctx, "effect", func(context.Context) error { s.effects++; return nil })
	if err != nil {
		return err
	}
	return fmt.Errorf("failed at start %d", len(s.attempts))
}

func TestS79_ARedrivenJobBeginsAnewAndDiesAgainOnlyAfterAllItsStarts(t *testing.T) {
	t.Parallel()
	const starts = 3
	for name, redrive := range redrives {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLane(t, &reliable.QueueOptions{
				MaxRetries: limitOf(starts - 1), Backoff: reliable.Backoff{Base: time.Millisecond, Cap: 2 * time.Millisecond},
			})
			l.enqueue(reliable.Item{ID: "X", Kind: "case", Payload: []byte("payload"), Headers: map[string]string{"idempotency-key": "key"}})
			first := l.inspect("X")
			h := &starter{}
			died := func() reliable.Info {
				stop := consumeWith(t, l.queue, h, nil)
				require.Eventually(t, func() bool { return l.stats().Dead == 1 }, 20*time.Second, time.Millisecond)
				stop()
				return l.inspect("X")
			}
			before := died()
			for round := 1; round <= 2; round++ {
				require.Equal(t, starts, before.Failures)
				require.Equal(t, reliable.RetriesUsedUp, before.Class)
				require.NoError(t, redrive(l))
				after := l.inspect("X")
				assert.Equal(t, []any{reliable.Due, 0, 0, round, 1}, []any{after.Place, after.Failures, after.Expiries, after.Redrives, after.Attempt})
				assert.Equal(t, []any{first.Payload, first.Headers, first.EnqueuedAt, first.Kind}, []any{after.Payload, after.Headers, after.EnqueuedAt, after.Kind})
				assert.Equal(t, before.Errors, after.Errors, "why it died is kept")
				before = died()
			}
			assert.Equal(t, []int{1, 2, 3, 1, 2, 3, 1, 2, 3}, h.attempts, "all its starts each time, not dead after the first")
			assert.Equal(t, []int{0, 0, 0, 1, 1, 1, 2, 2, 2}, h.redrives)
			assert.Empty(t, h.odd)
			assert.Equal(t, map[bool]int{false: 1, true: 3}[name == "out of an export"], h.effects, "what was done is not done again; an export has no record of it")
			last, _ := before.LastError()
			assert.Equal(t, "failed at start 9", last.Reason)
			assert.Len(t, before.Errors, 5)
		})
	}
}
