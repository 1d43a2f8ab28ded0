package idempotency_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/idempotency"
	"github.com/leaseq/leaseq/internal/redistest"
)

// The environment of a child: where it stops, to be killed, and what it works on.
const (
	childPoint = "LEASEQ_IDEMPOTENCY_CHILD"
	childAddr  = "LEASEQ_IDEMPOTENCY_ADDR"
	childQueue = "LEASEQ_IDEMPOTENCY_QUEUE"
)

// The points at which a holder is killed.
const (
	beforeBegin  = "before begin"
	afterBegin   = "after begin"
	afterEffect  = "after the effect"
	afterCommit  = "after commit"
	childRunning = "here"
)

// child begins an effect, an INCR beside the record, and stands still at its point.
func child(point string) int {
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: os.Getenv(childAddr)})
	name := os.Getenv(childQueue)
	stop := func(at string) {
		if at == point {
			fmt.Println(childRunning)
			select {}
		}
	}
	g, err := idempotency.New(rdb, name, short())
	if err != nil {
		fmt.Println(err)
		return 1
	}
	stop(beforeBegin)
	a, err := g.Begin(ctx, "k", nil)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	stop(afterBegin)
	if err := rdb.Incr(ctx, "effect:"+name).Err(); err != nil {
		fmt.Println(err)
		return 1
	}
	stop(afterEffect)
	if err := a.Permit.Commit(ctx, []byte("by the child")); err != nil {
		fmt.Println(err)
		return 1
	}
	stop(afterCommit)
	return 1
}

// A holder is killed by SIGKILL at each point. What follows is fresh, in doubt or done, as the point says; only where the
// effect had happened and was not marked can it happen twice, and then somebody is told.
func TestRow24_AHolderThatIsKilledBeforeTheKeyIsMarkedLeavesItInDoubt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		point         string
		inDoubt, done bool
		effects       string
	}{
		{beforeBegin, false, false, "1"}, {afterBegin, true, false, "1"}, {afterEffect, true, false, "2"}, {afterCommit, false, true, "1"},
	} {
		t.Run(c.point, func(t *testing.T) {
			t.Parallel()
			rdb, name := redistest.Client(t), redistest.Queue(t)
			t.Cleanup(func() { require.NoError(t, rdb.Del(context.Background(), "effect:"+name).Err()) })
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), childPoint+"="+c.point, childAddr+"="+redistest.Addr(t), childQueue+"="+name)
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			t.Cleanup(func() { _ = cmd.Process.Kill() }) // that of a process which has ended is refused
			said := bufio.NewScanner(out)
			require.True(t, said.Scan())
			require.Equal(t, childRunning, said.Text())
			require.NoError(t, cmd.Process.Kill())
			_ = cmd.Wait() // it was killed

			g := guardOn(t, rdb, name, short())
			var a *idempotency.Answer
			require.Eventually(t, func() bool {
				a, err = g.Begin(t.Context(), "k", nil)
				return err == nil || !errors.As(err, new(*idempotency.InFlightError))
			}, 10*time.Second, 10*time.Millisecond)
			require.NoError(t, err)
			assert.Equal(t, c.inDoubt, a.InDoubt)
			assert.Equal(t, c.done, a.Done)
			if !a.Done {
				require.NoError(t, rdb.Incr(t.Context(), "effect:"+name).Err())
				require.NoError(t, a.Permit.Commit(t.Context(), []byte("by the next")))
			}
			effects, err := rdb.Get(t.Context(), "effect:"+name).Result()
			require.NoError(t, err)
			assert.Equal(t, c.effects, effects)
			assert.True(t, begin(t, g, "k").Done)
		})
	}
}
