package script

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEachWaitIsBetweenHalfAndTheWholeOfItsStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most = 100 * time.Millisecond
		different := map[time.Duration]bool{}
		for range 50 {
			b := newBackoff(most)
			for _, step := range []time.Duration{4, 8, 16, 32, 64, 100, 100, 100} {
				step *= time.Millisecond
				began := time.Now()
				require.NoError(t, b.sleep(t.Context()))
				waited := time.Since(began)
				assert.GreaterOrEqual(t, waited, step/2)
				assert.LessOrEqual(t, waited, step)
				different[waited] = true
			}
		}
		assert.Greater(t, len(different), 100, "waits are spread")
	})
}

func TestACapBelowTheFirstStepHolds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBackoff(time.Millisecond)
		for range 10 {
			began := time.Now()
			require.NoError(t, b.sleep(t.Context()))
			assert.LessOrEqual(t, time.Since(began), time.Millisecond)
		}
	})
}

func TestTheEndOfTheContextEndsTheWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		require.ErrorIs(t, Sleep(ctx, time.Hour), context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(began))
		require.NoError(t, Sleep(t.Context(), time.Minute))
	})
}
