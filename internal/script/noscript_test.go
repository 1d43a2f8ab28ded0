package script

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
)

func TestForgottenScriptsAreSentWholeInSingleCallsAndPipelines(t *testing.T) {
	t.Parallel()
	d := ownDesk(t, redistest.Server(t, nil), "", "")
	ctx := t.Context()
	for want := 1; want <= 3; want++ {
		require.NoError(t, d.direct.ScriptFlush(ctx).Err())
		c := count("single")
		require.NoError(t, d.Do(ctx, c))
		require.NoError(t, c.Err)
		require.NoError(t, d.direct.ScriptFlush(ctx).Err())
		two := []*Call{count("pipeline"), grab(3)}
		require.NoError(t, d.Do(ctx, two...))
		require.NoError(t, two[0].Err)
		require.NoError(t, two[1].Err)
		assert.Equal(t, want, d.stat(t, "single"))
		assert.Equal(t, want, d.stat(t, "pipeline"))
		assert.Equal(t, 3*want, d.stat(t, "grabbed"))
	}
	require.NoError(t, d.Close(ctx))
}

func TestNoCallFailsOrRunsTwiceWhileScriptsAreFlushedInALoop(t *testing.T) {
	t.Parallel()
	d := ownDesk(t, redistest.Server(t, nil), "", "")
	stop := make(chan struct{})
	var flushing, callers sync.WaitGroup
	flushing.Go(func() {
		for tick := time.NewTicker(time.Millisecond); ; {
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
				assert.NoError(t, d.direct.ScriptFlush(context.Background()).Err())
			}
		}
	})
	const each = 80
	for range 4 {
		callers.Go(func() {
			for range each {
				calls := []*Call{count("x"), count("x")}
				assert.NoError(t, d.Do(context.Background(), calls...))
				assert.NoError(t, calls[0].Err)
				assert.NoError(t, calls[1].Err)
				single := count("x")
				assert.NoError(t, d.Do(context.Background(), single))
				assert.NoError(t, single.Err)
			}
		})
	}
	callers.Wait()
	close(stop)
	flushing.Wait()
	assert.Equal(t, 4*each*3, d.stat(t, "x"))
	require.NoError(t, d.Close(t.Context()))
}
