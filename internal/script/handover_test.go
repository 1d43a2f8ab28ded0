package script

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Contexts end at any moment of a call's life. What was handed over and what was given back must add up to what was
// given out, and what a caller was told to what happened.
func TestHandingOverAndSealingExcludeEachOther(t *testing.T) {
	t.Parallel()
	d := plainDesk(t)
	require.NoError(t, d.Do(t.Context(), grab(1), count("x"))) // opens sessions
	var kept, ran, left, told atomic.Int64
	kept.Add(1)
	ran.Add(1)
	var callers sync.WaitGroup
	for range 6 {
		callers.Go(func() {
			for range 120 {
				ctx, cancel := context.WithTimeout(context.Background(), rand.N(3*time.Millisecond))
				claim, plain := grab(5), count("x")
				calls := [][]*Call{{claim}, {plain}, {plain, claim}}[rand.N(3)]
				err := d.Do(ctx, calls...)
				cancel()
				if err == nil {
					told.Add(1)
					for _, c := range calls {
						tally(t, c, c.Err, &kept, &ran)
					}
					continue
				}
				left.Add(1)
				truth := resolved(t, err)
				if calls[0] == plain {
					tally(t, plain, truth, nil, &ran)
				} else {
					assert.ErrorIs(t, truth, ErrNeverRan)
				}
			}
		})
	}
	callers.Wait()
	assert.Positive(t, left.Load())
	assert.Positive(t, told.Load())
	assert.Zero(t, d.Waiting())
	assert.EqualValues(t, ran.Load(), d.stat(t, "x"))
	assert.EqualValues(t, kept.Load(), d.stat(t, "grabbed")-d.stat(t, "taken_back"))
}

// tally notes what became of a call. A call that was told of has its answer or never ran.
func tally(t *testing.T, c *Call, truth error, kept, ran *atomic.Int64) {
	switch {
	case errors.Is(truth, ErrNeverRan):
	case assert.NoError(t, truth) && c.Claim > 0:
		_, n := grabbed(c.Reply)
		kept.Add(int64(n))
	default:
		assert.NotEmpty(t, c.Rest)
		ran.Add(1)
	}
}

func TestManyMayResolveOneCall(t *testing.T) {
	t.Parallel()
	d := plainDesk(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for {
		err := d.Do(ctx, count("x"))
		if err == nil {
			continue // it was told to be too late before the caller had left
		}
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { assert.ErrorIs(t, resolved(t, err), ErrNeverRan) })
		}
		all.Wait()
		return
	}
}
