package idempotency_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/idempotency"
)

var errDownstream = errors.New("the downstream did not answer")

func TestDoRunsOnceAndReplaysTheResult(t *testing.T) {
	t.Parallel()
	g := newGuard(t, nil)
	type receipt struct{ Number int }
	runs := 0
	for range 3 {
		got, err := idempotency.Do(t.Context(), g, "k", func(context.Context) (receipt, error) {
			runs++
			return receipt{runs}, nil
		}, nil)
		require.NoError(t, err)
		assert.Equal(t, receipt{1}, got)
	}
	_, err := idempotency.Do(t.Context(), g, "k", func(context.Context) ([]string, error) { return nil, nil }, nil)
	require.ErrorContains(t, err, "the stored result of \"k\" is no []string")
}

func TestAnErrorLeavesTheKeyInDoubtUnlessTheEffectDidNotHappen(t *testing.T) {
	t.Parallel()
	g := newGuard(t, nil)
	fail := func(err error) func(context.Context) (int, error) {
		return func(context.Context) (int, error) { return 0, err }
	}
	_, err := idempotency.Do(t.Context(), g, "doubt", fail(errDownstream), nil)
	require.ErrorIs(t, err, errDownstream)
	assert.True(t, begin(t, g, "doubt").InDoubt)

	_, err = idempotency.Do(t.Context(), g, "fresh", fail(idempotency.NotDone(errDownstream)), nil)
	require.ErrorIs(t, err, errDownstream)
	require.ErrorIs(t, err, idempotency.ErrNotDone)
	assert.False(t, begin(t, g, "fresh").InDoubt)
	require.NoError(t, idempotency.NotDone(nil))
}

// That one run certainly did nothing tells nothing of the run before.
func TestADoubtIsNotTakenBackByARunThatDidNothing(t *testing.T) {
	t.Parallel()
	g := newGuard(t, nil)
	fail := func(err error) error {
		_, err = idempotency.Do(t.Context(), g, "k", func(context.Context) (int, error) { return 0, err }, nil)
		return err
	}
	require.ErrorIs(t, fail(errDownstream), errDownstream)
	require.ErrorIs(t, fail(idempotency.NotDone(errDownstream)), idempotency.ErrNotDone)
	a := begin(t, g, "k")
	require.True(t, a.InDoubt)
	require.NoError(t, a.Permit.Abandon(t.Context()))

	// Who has asked the downstream knows of all runs.
	ask := newGuard(t, &idempotency.Options{InDoubt: idempotency.Ask})
	_, err := idempotency.Do(t.Context(), ask, "k", func(context.Context) (int, error) { return 0, errDownstream }, nil)
	require.ErrorIs(t, err, errDownstream)
	_, err = idempotency.Do(t.Context(), ask, "k", func(context.Context) (int, error) { return 0, idempotency.NotDone(errDownstream) },
		&idempotency.DoOptions[int]{Ask: func(context.Context, time.Time) (int, bool, error) { return 0, false, nil }})
	require.ErrorIs(t, err, idempotency.ErrNotDone)
	require.False(t, begin(t, ask, "k").InDoubt)
}

func TestAPanicLeavesTheKeyInDoubt(t *testing.T) {
	t.Parallel()
	g := newGuard(t, nil)
	require.Panics(t, func() {
		_, _ = idempotency.Do(t.Context(), g, "k", func(context.Context) (int, error) { panic("oh") }, nil)
	})
	assert.True(t, begin(t, g, "k").InDoubt)
}

func TestWhereThePolicyIsAskTheDownstreamDecides(t *testing.T) {
	t.Parallel()
	g := newGuard(t, &idempotency.Options{InDoubt: idempotency.Ask})
	ran := func(context.Context) (string, error) { return "ran now", nil }
	doubt := func(key string) { require.NoError(t, begin(t, g, key).Permit.Abandon(t.Context())) }
	ask := func(happened bool, err error) *idempotency.DoOptions[string] {
		return &idempotency.DoOptions[string]{Ask: func(_ context.Context, since time.Time) (string, bool, error) {
			assert.WithinDuration(t, time.Now(), since, time.Minute)
			return "found", happened, err
		}}
	}
	for _, c := range []struct {
		key, want string
		o         *idempotency.DoOptions[string]
	}{{"happened", "found", ask(true, nil)}, {"did not", "ran now", ask(false, nil)}} {
		doubt(c.key)
		got, err := idempotency.Do(t.Context(), g, c.key, ran, c.o)
		require.NoError(t, err)
		assert.Equal(t, c.want, got)
		got, err = idempotency.Do(t.Context(), g, c.key, ran, nil)
		require.NoError(t, err)
		assert.Equal(t, c.want, got, "and is replayed")
	}
	doubt("k")
	_, err := idempotency.Do(t.Context(), g, "k", ran, ask(true, errDownstream))
	require.ErrorIs(t, err, errDownstream)
	var unclear *idempotency.InDoubtError
	_, err = idempotency.Do(t.Context(), g, "k", ran, nil)
	require.ErrorAs(t, err, &unclear)
	assert.Equal(t, "k", unclear.Key)
	assert.True(t, begin(t, g, "k").InDoubt, "it stays in doubt")
}

// The end of the caller's context reaches the effect, and what became of it is written down all the same.
func TestDoWritesDownWhatBecameOfAnEffectWhoseCallerLeft(t *testing.T) {
	t.Parallel()
	g := newGuard(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	got, err := idempotency.Do(ctx, g, "k", func(run context.Context) (string, error) {
		cancel()
		<-run.Done()
		return "done all the same", nil
	}, nil)
	require.NoError(t, err)
	assert.Equal(t, "done all the same", got)
	assert.True(t, begin(t, g, "k").Done)
}
