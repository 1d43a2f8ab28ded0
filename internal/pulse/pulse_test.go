package pulse

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestALoopIsWellWhileItWorksAndIllFromItsFirstFailureOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p Pulse
		p.Begin()
		p.Worked()
		require.NoError(t, p.Check(t.Context(), time.Second))
		time.Sleep(time.Second)
		require.NoError(t, p.Check(t.Context(), time.Second))
		time.Sleep(time.Millisecond)
		require.EqualError(t, p.Check(t.Context(), time.Second), "nothing has worked for 1.001s")
		require.NoError(t, p.Check(t.Context(), 0), "where nothing has to be done")

		p.Failed(errors.New("first"))
		time.Sleep(2 * time.Second)
		last := errors.New("last")
		p.Failed(last)
		err := p.Check(t.Context(), 0)
		require.ErrorIs(t, err, last)
		require.EqualError(t, err, "failing for 2s: last")
		p.Worked()
		require.NoError(t, p.Check(t.Context(), time.Second), "well again by itself")
	})
}

func TestBeforeTheFirstAnswerCheckWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p Pulse
		p.Begin()
		go func() {
			time.Sleep(time.Second)
			p.Worked()
		}()
		began := time.Now()
		require.NoError(t, p.Check(t.Context(), time.Second))
		assert.Equal(t, time.Second, time.Since(began))

		p.Begin()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		require.EqualError(t, p.Check(ctx, time.Minute), "nothing has worked for 3s")
	})
}

func TestWhoWaitsForTheFirstAnswerGetsItThoughTheLoopBeginsAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p Pulse
		p.Begin()
		checked := make(chan error, 1)
		go func() { checked <- p.Check(t.Context(), time.Second) }()
		synctest.Wait()
		p.Begin()
		p.Worked()
		require.NoError(t, <-checked)
	})
}

func TestALoopThatHasNotBegunIsNotWell(t *testing.T) {
	t.Parallel()
	var p Pulse
	var problem *Problem
	require.ErrorAs(t, p.Check(t.Context(), 0), &problem)
}

func TestALogGetsOneLineInTenSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var q Quiet
		muted, ok := q.Loud()
		assert.Zero(t, muted)
		assert.True(t, ok)
		for range 20 {
			time.Sleep(400 * time.Millisecond)
			_, ok := q.Loud()
			assert.False(t, ok)
		}
		time.Sleep(2 * time.Second)
		muted, ok = q.Loud()
		assert.True(t, ok)
		assert.Equal(t, 20, muted)
	})
}
