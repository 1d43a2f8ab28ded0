package lease

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOnlyTheContextOfTheLostJobEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		verdicts := map[string]error{
			"lost": &LostError{ID: "lost", Place: Due}, "gone": ErrGone, "cancelled": ErrCancelled,
		}
		beats := make(chan Beat, 100)
		var redis pretender
		k, _ := keeperWith(t, redis.asks(func(_ int, held []Held) (Extended, error) {
			got := granted(length, held)
			for i, one := range held {
				got.Results[i] = verdicts[one.ID]
			}
			return got, nil
		}), &KeeperOptions{OnBeat: func(b Beat) { beats <- b }})
		holds := map[string]*Hold{}
		for _, id := range []string{"a", "lost", "b", "gone", "cancelled", "c"} {
			holds[id] = k.Hold(t.Context(), leased(id, length))
		}
		run(length/3 + time.Second)
		for id, want := range map[string]struct {
			cause error
			state HoldState
		}{"lost": {ErrLost, HoldLost}, "gone": {ErrLost, HoldLost}, "cancelled": {ErrCancelled, HoldCancelled}} {
			require.Error(t, holds[id].Context().Err(), id)
			assert.Equal(t, want.cause, context.Cause(holds[id].Context()), id)
			assert.Equal(t, want.state, holds[id].State(), id)
			assert.False(t, holds[id].Startable(), id)
		}
		run(3 * length)
		for _, id := range []string{"a", "b", "c"} {
			assert.NoError(t, holds[id].Context().Err(), id)
			assert.True(t, holds[id].Startable(), id)
		}
		assert.Equal(t, Beat{Held: 6, Extended: 3, Lost: 3}, <-beats)
		assert.Equal(t, Beat{Held: 3, Extended: 3}, <-beats, "what is lost is not asked for again")
	})
}

func TestTheLocalDeadlineEndsTheContextThoughRedisIsSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var redis pretender
		k, _ := keeperWith(t, redis.asks(func(n int, held []Held) (Extended, error) {
			got := granted(length, held)
			until(2 * time.Second) // a slow answer makes the lease no longer
			if n > 6 {
				return Extended{}, errors.New("i/o timeout")
			}
			return got, nil
		}), nil)
		h := k.Hold(t.Context(), leased("a", length))
		<-h.Context().Done()
		assert.Equal(t, redis.asked()[5]+length, time.Since(redis.began))
		assert.Equal(t, ErrLost, context.Cause(h.Context()))
		assert.Equal(t, HoldOverdue, h.State(), "which nobody in Redis has said")
		assert.False(t, h.Startable())
	})
}

func TestALateAnswerDoesNotBringAnEndedContextBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var redis pretender
		k, _ := keeperWith(t, redis.asks(func(_ int, held []Held) (Extended, error) {
			got := granted(length, held)
			until(length)
			return got, nil
		}), nil)
		h := k.Hold(t.Context(), leased("a", length))
		run(3 * length)
		assert.Error(t, h.Context().Err())
		assert.Equal(t, HoldOverdue, h.State())
		assert.Zero(t, k.Holding())
	})
}

func TestEachDeadlineIsKeptByItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k, _ := keeperWith(t, nil, &KeeperOptions{NoExtend: true})
		began := time.Now()
		var holds []*Hold
		for i := range 50 { // the later ones have the earlier deadlines
			holds = append(holds, k.Hold(t.Context(), leased("a", length-time.Duration(i)*100*time.Millisecond)))
		}
		for i := len(holds) - 1; i >= 0; i-- {
			<-holds[i].Context().Done()
			assert.Equal(t, length-time.Duration(i)*100*time.Millisecond, time.Since(began))
		}
	})
}

func TestWithoutExtendingALeaseRunsOutAtItsDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var redis pretender
		k, _ := keeperWith(t, redis.grants(), &KeeperOptions{NoExtend: true})
		h := k.Hold(t.Context(), leased("a", length))
		assert.False(t, h.Extending())
		<-h.Context().Done()
		assert.Equal(t, length, time.Since(redis.began))
		assert.Empty(t, redis.asked())
	})
}

func TestALeaseThatIsExtendedNoMoreRunsOutAtItsDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var redis pretender
		k, _ := keeperWith(t, redis.grants(), nil)
		stopped, kept := k.Hold(t.Context(), leased("stopped", length)), k.Hold(t.Context(), leased("kept", length))
		run(length / 2)
		stopped.StopExtending()
		assert.False(t, stopped.Extending())
		assert.True(t, kept.Extending())
		<-stopped.Context().Done()
		assert.Equal(t, length/3+length, time.Since(redis.began), "its last extension holds")
		assert.Equal(t, HoldOverdue, stopped.State())
		run(length)
		assert.NoError(t, kept.Context().Err())
	})
}

func TestDoneEndsTheContextAndTheRenewals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var redis pretender
		k, _ := keeperWith(t, redis.grants(), nil)
		h := k.Hold(t.Context(), leased("a", length))
		run(length / 2)
		require.Len(t, redis.asked(), 1)
		h.Done()
		assert.Equal(t, context.Canceled, context.Cause(h.Context()))
		assert.Equal(t, HoldCurrent, h.State(), "it was not lost")
		assert.Zero(t, k.Holding())
		h.Done()
		run(5 * length)
		assert.Len(t, redis.asked(), 1)

		k.Hold(t.Context(), leased("b", length)) // after a pause with nothing held
		run(length / 2)
		assert.Len(t, redis.asked(), 2)
	})
}

func TestExtendingByHandMovesTheDeadlineAndNeverBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k, _ := keeperWith(t, nil, &KeeperOptions{NoExtend: true})
		began := time.Now()
		h := k.Hold(t.Context(), leased("a", length))
		run(length / 2)
		h.Extended(began.Add(2 * length))
		h.Extended(began.Add(length + time.Second))
		<-h.Context().Done()
		assert.Equal(t, 2*length, time.Since(began))
	})
}

func TestCancelEndsTheContextWithItsCauseAndKeepsTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var redis pretender
		k, _ := keeperWith(t, redis.grants(), nil)
		type key struct{}
		parent, end := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		h := k.Hold(parent, leased("a", length))
		end()
		assert.NoError(t, h.Context().Err(), "it does not end with its parent")
		assert.Equal(t, "value", h.Context().Value(key{}))
		cause := errors.New("shutdown")
		h.Cancel(cause)
		assert.Equal(t, cause, context.Cause(h.Context()))
		run(2 * length)
		assert.Greater(t, len(redis.asked()), 3, "still renewed, since its handler may still be at work")
		assert.Equal(t, HoldCurrent, h.State())
	})
}

func TestNothingIsLeftWhenRunReturns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var redis pretender
		var under atomic.Int64
		k, stop := keeperWith(t, redis.asks(func(_ int, held []Held) (Extended, error) {
			under.Add(1)
			defer under.Add(-1)
			until(2 * time.Second)
			return granted(length, held), nil
		}), nil)
		k.Hold(t.Context(), leased("a", length))
		run(length/3 + time.Second)
		require.EqualValues(t, 1, under.Load())
		stop()
		assert.Zero(t, under.Load())
	})
}

func TestKeeperAndSweeperRefuseBatchesOutOfRange(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	for _, batch := range []int{-1, MaxBatch + 1} {
		_, err := NewKeeper(b.Store, &KeeperOptions{Batch: batch})
		assert.Error(t, err)
		_, err = NewSweeper(b.Store, &SweeperOptions{Batch: batch})
		assert.Error(t, err)
	}
	_, err := NewKeeper(b.Store, &KeeperOptions{Batch: MaxBatch})
	assert.NoError(t, err)
	_, err = NewSweeper(b.Store, nil)
	assert.NoError(t, err)
}
