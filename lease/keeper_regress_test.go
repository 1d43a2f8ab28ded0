package lease

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// extender stands in for Redis: it is asked for every extend call of a Keeper.
type extender func(ctx context.Context, length time.Duration, held []Held) (Extended, error)

// keeperWith makes a Keeper that runs until the test ends, or stop is called, and asks f instead of Redis.
func keeperWith(t *testing.T, f extender, o *KeeperOptions) (k *Keeper, stop func()) {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // never used
	t.Cleanup(func() { _ = rdb.Close() })
	store, err := NewStore(rdb, "q", nil)
	require.NoError(t, err)
	k, err = NewKeeper(store, o)
	require.NoError(t, err)
	k.extend, k.company, k.again = f, f, f
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = k.Run(ctx)
	}()
	stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(stop)
	return k, stop
}

// leased is a lease that was claimed just now.
func leased(id string, length time.Duration) *Lease {
	return &Lease{ID: id, Token: id, Length: length, Deadline: time.Now().Add(length)}
}

// granted answers that every lease was extended.
func granted(length time.Duration, held []Held) Extended {
	return Extended{Results: make([]error, len(held)), Length: length, Deadline: time.Now().Add(length)}
}

// until lets the bubble's clock run on.
func until(d time.Duration) { <-time.After(d) }

func TestLeasesThatAreOverAreForgottenThoughNobodySettlesThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const length = 3 * time.Second
		k, _ := keeperWith(t, func(_ context.Context, _ time.Duration, held []Held) (Extended, error) {
			got := granted(length, held)
			for i, h := range held {
				switch h.ID {
				case "lost":
					got.Results[i] = &LostError{ID: h.ID, Place: Due}
				case "cancelled":
					got.Results[i] = ErrCancelled
				}
			}
			return got, nil
		}, nil)
		for _, id := range []string{"lost", "cancelled", "kept"} {
			k.Hold(t.Context(), leased(id, length))
		}
		k.Hold(t.Context(), leased("runs out", length)).StopExtending()
		until(2 * length)
		require.Equal(t, 1, k.Holding(), "only what is kept alive")
	})
}

func TestARepeatedExtendNamesOnlyWhatIsStillToBeExtended(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const length = 3 * time.Second
		var asked []int
		k, _ := keeperWith(t, func(_ context.Context, _ time.Duration, held []Held) (Extended, error) {
			asked = append(asked, len(held))
			return Extended{}, errors.New("no answer")
		}, nil)
		stopped, settled := k.Hold(t.Context(), leased("stopped", length)), k.Hold(t.Context(), leased("settled", length))
		k.Hold(t.Context(), leased("kept", length))
		until(length/3 + 10*time.Millisecond)
		synctest.Wait()
		require.Equal(t, []int{3}, asked)
		stopped.StopExtending()
		settled.Done()
		until(time.Second)
		synctest.Wait()
		require.Greater(t, len(asked), 2)
		for _, n := range asked[1:] {
			require.Equal(t, 1, n)
		}
	})
}

func TestAFailingExtendIsNotRepeatedForLeasesThatWereSettled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const length = 3 * time.Second
		calls := 0
		k, _ := keeperWith(t, func(context.Context, time.Duration, []Held) (Extended, error) {
			calls++
			return Extended{}, errors.New("refused")
		}, nil)
		h := k.Hold(t.Context(), leased("a", length))
		until(length/3 + 10*time.Millisecond)
		synctest.Wait()
		h.Done()
		until(time.Minute)
		synctest.Wait()
		require.LessOrEqual(t, calls, 2)
	})
}

func TestAShorterLeaseThatIsClaimedDuringABeatIsRenewedInItsOwnTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var first sync.Once
		k, _ := keeperWith(t, func(_ context.Context, _ time.Duration, held []Held) (Extended, error) {
			first.Do(func() { until(100 * time.Millisecond) }) // a slow answer
			return granted(15*time.Second, held), nil
		}, nil)
		k.Hold(t.Context(), leased("old", 3*time.Second))
		until(time.Second + 50*time.Millisecond) // its beat is under way
		h := k.Hold(t.Context(), leased("new", 2*time.Second))
		until(3 * time.Second)
		require.NoError(t, h.Context().Err(), "nobody renewed it")
	})
}

// slowLog takes its time for every line.
type slowLog struct{ slog.Handler }

func (slowLog) Enabled(context.Context, slog.Level) bool { return true }

func (slowLog) Handle(context.Context, slog.Record) error {
	until(100 * time.Millisecond)
	return nil
}

func TestASlowLogKeepsNoContextAliveAfterItsDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k, _ := keeperWith(t, nil, &KeeperOptions{NoExtend: true, Logger: slog.New(slowLog{})})
		const length = time.Second
		var holds []*Hold
		for range 20 {
			holds = append(holds, k.Hold(t.Context(), leased("a", length)))
			until(10 * time.Millisecond) // so that each has a deadline of its own
		}
		for _, h := range holds {
			<-h.Context().Done()
			require.Less(t, time.Since(h.Deadline()), 250*time.Millisecond)
		}
	})
}

func TestWhatIsHeldWhenTheKeeperEndsHasItsContextEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k, stop := keeperWith(t, nil, &KeeperOptions{NoExtend: true})
		before := k.Hold(t.Context(), leased("before", time.Hour))
		stop()
		after := k.Hold(t.Context(), leased("after", time.Hour))
		for _, h := range []*Hold{before, after} {
			require.ErrorIs(t, context.Cause(h.Context()), ErrClosed)
		}
		require.Zero(t, k.Holding())
	})
}

func TestHeartbeatsThatFailedForJobsThatAreOverAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const day = 24 * time.Hour
		down := true
		k, _ := keeperWith(t, func(_ context.Context, _ time.Duration, held []Held) (Extended, error) {
			if down {
				return Extended{}, errors.New("down")
			}
			return granted(day, held), nil
		}, nil)
		h := k.Hold(t.Context(), leased("a", day))
		run(day/3 + time.Second)
		require.Error(t, k.Health(), "heartbeats fail")
		h.Done()
		run(time.Second)
		down = false
		run(time.Hour)
		k.Hold(t.Context(), leased("b", day))
		run(time.Second)
		require.NoError(t, k.Health(), "no beat is due yet")
	})
}
