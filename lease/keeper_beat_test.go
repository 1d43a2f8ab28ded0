package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const length = 15 * time.Second

// A pretender stands in for Redis in a bubble, and notes when it was asked for what.
type pretender struct {
	began time.Time

	mu    sync.Mutex
	sends []time.Duration
	named [][]Held
}

// asks has a Keeper ask; n is 1 for its first call.
func (p *pretender) asks(answer func(n int, held []Held) (Extended, error)) extender {
	p.began = time.Now()
	return func(_ context.Context, _ time.Duration, held []Held) (Extended, error) {
		p.mu.Lock()
		p.sends, p.named = append(p.sends, time.Since(p.began)), append(p.named, held)
		n := len(p.sends)
		p.mu.Unlock()
		return answer(n, held)
	}
}

// grants answers at once that all are extended.
func (p *pretender) grants() extender {
	return p.asks(func(_ int, held []Held) (Extended, error) { return granted(length, held), nil })
}

// asked tells when the calls were sent.
func (p *pretender) asked() []time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.sends)
}

// run lets a bubble's clock run on, until all that was to happen by then has happened.
func run(d time.Duration) {
	until(d)
	synctest.Wait()
}

func TestTheKeeperBeatsEveryThirdOfALeaseFromTheSendOfTheLastBeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var redis pretender
		k, _ := keeperWith(t, redis.asks(func(_ int, held []Held) (Extended, error) {
			got := granted(length, held)
			until(300 * time.Millisecond) // the answer takes its time
			return got, nil
		}), nil)
		h := k.Hold(t.Context(), leased("a", length))
		run(4*length + time.Second)
		require.NoError(t, h.Context().Err())
		sends := redis.asked()
		require.Len(t, sends, 12)
		for i, send := range sends {
			assert.Equal(t, time.Duration(i+1)*length/3, send)
		}
		assert.Equal(t, redis.began.Add(sends[11]+length), h.Deadline(), "counted from before the send")
	})
}

func TestTheFirstBeatCountsFromTheSendOfTheClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var redis pretender
		k, _ := keeperWith(t, redis.grants(), nil)
		l := leased("a", length)
		l.Deadline = l.Deadline.Add(-length / 3) // it was on its way for that long
		k.Hold(t.Context(), l)
		run(length/3 - time.Millisecond)
		assert.Equal(t, []time.Duration{0}, redis.asked())
	})
}

func TestTenThousandHeldJobsAreFortyCallsABeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		var redis pretender
		k, _ := keeperWith(t, redis.grants(), nil)
		for i := range n {
			k.Hold(t.Context(), leased(fmt.Sprint(i), length))
		}
		for beat := 1; beat <= 3; beat++ {
			run(length / 3)
			assert.Len(t, redis.asked(), 40*beat)
		}
		named := map[string]int{}
		for _, held := range redis.named {
			assert.LessOrEqual(t, len(held), DefaultBatch)
			for _, one := range held {
				named[one.ID]++
			}
		}
		assert.Len(t, named, n)
		for id, times := range named {
			require.Equal(t, 3, times, id)
		}
	})
}

func TestAFailedBeatIsRepeatedQuicklyAndTheLeaseLives(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ length, gap time.Duration }{
		{15 * time.Second, 200 * time.Millisecond}, {4 * time.Second, 200 * time.Millisecond},
		{2 * time.Second, 100 * time.Millisecond}, {200 * time.Millisecond, 10 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			var redis pretender
			var failing atomic.Bool
			failing.Store(true)
			beats := make(chan Beat, 1000)
			k, _ := keeperWith(t, redis.asks(func(_ int, held []Held) (Extended, error) {
				if failing.Load() {
					return Extended{}, errors.New("no connection")
				}
				return granted(c.length, held), nil
			}), &KeeperOptions{OnBeat: func(b Beat) { beats <- b }})
			h := k.Hold(t.Context(), leased("a", c.length))
			run(c.length * 9 / 10)
			sends := redis.asked()
			require.Greater(t, len(sends), 5)
			for i := 1; i < len(sends); i++ {
				assert.LessOrEqual(t, sends[i]-sends[i-1], c.gap)
				assert.GreaterOrEqual(t, sends[i]-sends[i-1], c.gap/2, "but not in a frenzy")
			}
			assert.Error(t, (<-beats).Err)
			failing.Store(false)
			run(3 * c.length)
			assert.NoError(t, h.Context().Err(), "it was in time")
			var last Beat
			for len(beats) > 0 {
				last = <-beats
			}
			assert.Equal(t, Beat{Held: 1, Extended: 1}, last)
		})
	}
}

func TestAHungCallGetsCompanyButNotWithoutEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var redis pretender
		var under atomic.Int64
		release := make(chan struct{})
		k, stop := keeperWith(t, redis.asks(func(int, []Held) (Extended, error) {
			under.Add(1)
			defer under.Add(-1)
			<-release
			return Extended{}, errors.New("too late")
		}), nil)
		h := k.Hold(t.Context(), leased("a", length))
		<-h.Context().Done()
		assert.Equal(t, length, time.Since(redis.began), "the deadline is not behind a call")
		assert.Len(t, redis.asked(), 4)
		assert.ErrorIs(t, context.Cause(h.Context()), ErrLost)
		assert.Equal(t, HoldOverdue, h.State())
		assert.EqualValues(t, 4, under.Load())
		close(release)
		stop()
		assert.Zero(t, under.Load())
	})
}

func TestTheFirstOfSeveralAnswersCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var redis pretender
		k, _ := keeperWith(t, redis.asks(func(n int, held []Held) (Extended, error) {
			if n == 1 {
				until(length * 4 / 5) // its connection is dead
				return Extended{}, errors.New("i/o timeout")
			}
			return granted(length, held), nil
		}), nil)
		h := k.Hold(t.Context(), leased("a", length))
		run(length * 3 / 2)
		assert.NoError(t, h.Context().Err())
		assert.Equal(t, HoldCurrent, h.State())
	})
}

// One batch gets no answer at all; the others are renewed in their time.
func TestABatchWithoutAnAnswerHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		k, stop := keeperWith(t, func(_ context.Context, _ time.Duration, held []Held) (Extended, error) {
			if held[0].ID == "hangs" {
				<-release
				return Extended{}, errors.New("too late")
			}
			return granted(length, held), nil
		}, &KeeperOptions{Batch: 1})
		good := k.Hold(t.Context(), leased("good", length))
		run(length/3 - time.Millisecond)
		hangs := k.Hold(t.Context(), leased("hangs", length)) // just before a beat: it has nearly a whole lease yet
		run(time.Second)
		late := k.Hold(t.Context(), leased("late", length))
		<-hangs.Context().Done()
		run(3 * length)
		assert.NoError(t, good.Context().Err())
		assert.NoError(t, late.Context().Err())
		close(release)
		stop()
	})
}

func TestTheKeeperFollowsTheLeaseThatRedisTells(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var redis pretender
		k, _ := keeperWith(t, redis.asks(func(n int, held []Held) (Extended, error) {
			if n <= 5 {
				return granted(3*time.Second, held), nil
			}
			return granted(30*time.Second, held), nil
		}), nil)
		k.Hold(t.Context(), leased("a", length))
		run(time.Minute + time.Second)
		want := []time.Duration{5, 6, 7, 8, 9, 10, 20, 30, 40, 50, 60}
		for i := range want {
			want[i] *= time.Second
		}
		assert.Equal(t, want, redis.asked())
	})
}

func TestAKeeperCanAskForALengthOfItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k, _ := keeperWith(t, func(_ context.Context, asked time.Duration, held []Held) (Extended, error) {
			assert.Equal(t, time.Minute, asked)
			return granted(asked, held), nil
		}, &KeeperOptions{Length: time.Minute})
		began := time.Now()
		h := k.Hold(t.Context(), leased("a", length))
		run(length / 2)
		assert.Equal(t, began.Add(length/3+time.Minute), h.Deadline())
	})
}
