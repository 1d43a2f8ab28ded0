package script

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
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
	var unknown *UnknownError
	if errors.As(truth, &unknown) {
		truth = resolved(t, truth)
	}
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
	c := count("x")
	err := d.Do(ctx, c)
	if err == nil {
		err = c.Err // it was clear before the caller had left
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { assert.ErrorIs(t, resolved(t, err), ErrNeverRan) })
	}
	all.Wait()
}

// afterPipeline runs a function when a pipeline's answers have come, before anybody looks at them.
type afterPipeline struct{ do func() }

func (*afterPipeline) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*afterPipeline) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (h *afterPipeline) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		h.do()
		return err
	}
}

// The claim of a round trip is answered, the other call did not run and has its context end: what the claim was given
// is either handed over or given back, never neither.
func TestAClaimIsNotLostWithACallBesideItThatNeverRan(t *testing.T) {
	t.Parallel()
	d := plainDesk(t)
	var hook afterPipeline
	hook.do = func() {}
	d.rdb.AddHook(&hook)
	kept := 0
	for range 200 {
		first := count("x")
		require.NoError(t, d.Do(t.Context(), first))
		require.NoError(t, d.direct.HDel(t.Context(), d.key("sessions"), first.Session).Err()) // the next call gets NOSESSION
		require.NoError(t, d.direct.HDel(t.Context(), d.key("holders"), first.Session).Err())
		ctx, cancel := context.WithCancel(t.Context())
		hook.do = cancel
		plain, claim := count("x"), grab(5)
		err := d.Do(ctx, plain, claim)
		cancel()
		if err != nil {
			_ = resolved(t, err)
			continue
		}
		if _, n := grabbed(claim.Reply); claim.Err == nil {
			kept += n
		}
	}
	require.Eventually(t, func() bool { return d.Waiting() == 0 }, patience, pollEvery)
	assert.Equal(t, kept, d.stat(t, "grabbed")-d.stat(t, "taken_back"))
}
