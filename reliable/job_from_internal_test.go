package reliable

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestJobFromFindsTheJobInItsContextAndInDerivedOnes(t *testing.T) {
	t.Parallel()
	job := &Job{ID: "close:10086"}
	ctx := context.WithoutCancel((*jobContext)(job)) // as a Keeper derives from it
	type key struct{}
	derived, cancel := context.WithTimeout(context.WithValue(ctx, key{}, "another key"), time.Hour)
	defer cancel()
	for _, c := range []context.Context{ctx, derived, context.WithoutCancel(derived)} {
		got, ok := JobFrom(c)
		require.True(t, ok)
		require.Same(t, job, got)
	}
	inner := &Job{ID: "inner"}
	got, ok := JobFrom(context.WithValue(ctx, jobKey{}, inner))
	require.True(t, ok)
	require.Same(t, inner, got)
}

func TestOtherContextsHaveNoJob(t *testing.T) {
	t.Parallel()
	for _, ctx := range []context.Context{t.Context(), context.Background(), context.WithValue(t.Context(), jobKey{}, "no job")} {
		got, ok := JobFrom(ctx)
		require.False(t, ok)
		require.Nil(t, got)
	}
}

func TestTheContextOfAJobIsNeverDoneByItself(t *testing.T) {
	t.Parallel()
	ctx := (*jobContext)(&Job{ID: "close:10086", Payload: []byte("secret")})
	require.Nil(t, ctx.Done())
	require.NoError(t, ctx.Err())
	_, has := ctx.Deadline()
	require.False(t, has)
	require.Nil(t, ctx.Value("other"))
	require.Equal(t, "reliable.Job close:10086.WithoutCancel", fmt.Sprint(context.WithoutCancel(ctx)))
}

// Not parallel: AllocsPerRun counts the whole process.
func TestAJobInAContextCostsNoAllocation(t *testing.T) {
	job := &Job{}
	var ctx context.Context
	require.Zero(t, testing.AllocsPerRun(100, func() { ctx = (*jobContext)(job) }))
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = JobFrom(ctx) }))
}
