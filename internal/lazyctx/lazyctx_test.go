package lazyctx

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

type key struct{}

var (
	errWhy  = errors.New("why")
	errLate = errors.New("late")
)

func begin(root context.Context) *Context {
	c := new(Context)
	c.Begin(root)
	return c
}

func until(parent *Context, at time.Time, reason error) *Context {
	c := new(Context)
	c.BeginUntil(parent, at, reason)
	return c
}

func root() context.Context { return context.WithValue(context.Background(), key{}, "v") }

// Each end is looked at in both ways: after somebody has waited for it, and without.
func ways(t *testing.T, test func(t *testing.T, ask func(*Context))) {
	t.Run("asked before", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, func(c *Context) { c.Done() }) })
	})
	t.Run("not asked", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, func(*Context) {}) })
	})
}

func done(c context.Context) bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

func TestACancelledContextTellsItsCause(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, ask func(*Context)) {
		c := begin(root())
		ask(c)
		require.NoError(t, c.Err())
		require.NoError(t, c.Cause())
		c.Cancel(errWhy)
		c.Cancel(errLate)
		require.Equal(t, context.Canceled, c.Err())
		require.Equal(t, errWhy, c.Cause())
		require.Equal(t, errWhy, context.Cause(c), "the standard library's function knows it")
		require.True(t, done(c))
		require.Equal(t, "v", c.Value(key{}))
	})
}

func TestADeadlineEndsAContextWithItsReason(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, ask func(*Context)) {
		parent := begin(root())
		at := time.Now().Add(time.Second)
		c := until(parent, at, errLate)
		ask(c)
		told, ok := c.Deadline()
		require.True(t, ok)
		require.Equal(t, at, told)
		time.Sleep(time.Second - time.Nanosecond)
		require.NoError(t, c.Err())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Equal(t, context.DeadlineExceeded, c.Err())
		require.Equal(t, errLate, c.Cause())
		require.True(t, done(c))
		require.Equal(t, errLate, context.Cause(c))
		require.NoError(t, parent.Err())
		c.Cancel(errWhy)
		require.Equal(t, errLate, context.Cause(c))
	})
}

func TestAParentsEndIsItsChildrens(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, ask func(*Context)) {
		parent := begin(root())
		c := until(parent, time.Now().Add(time.Second), errLate)
		ask(c)
		parent.Cancel(errWhy)
		require.Equal(t, context.Canceled, c.Err())
		require.Equal(t, errWhy, context.Cause(c))
		time.Sleep(2 * time.Second)
		require.Equal(t, errWhy, c.Cause(), "the first end counts")
	})
}

func TestWhatIsDerivedFromAContextEndsWithIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		parent := begin(root())
		c := until(parent, time.Now().Add(time.Second), errLate)
		child, cancel := context.WithCancel(c)
		defer cancel()
		called := make(chan struct{})
		context.AfterFunc(c, func() { close(called) })
		time.Sleep(time.Second)
		synctest.Wait()
		require.True(t, done(child))
		require.Equal(t, context.DeadlineExceeded, child.Err())
		require.Equal(t, errLate, context.Cause(child))
		<-called
	})
}

func TestTheRootsEndIsNotTheContexts(t *testing.T) {
	t.Parallel()
	parent, cancel := context.WithCancelCause(root())
	c := begin(parent)
	cancel(errWhy)
	require.NoError(t, c.Err())
	require.NoError(t, context.Cause(c))
	require.False(t, done(c))
	require.Equal(t, "v", c.Value(key{}))
	require.Nil(t, c.Value("other"))
}

func TestAContextThatNobodyWaitsForIsAllThatIsAllocated(t *testing.T) {
	from := root()
	at := time.Now().Add(time.Hour)
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		parent := begin(from)
		c := until(parent, at, errLate)
		if c.Err() != nil || c.Value(key{}) != "v" {
			t.Fail()
		}
		c.Cancel(context.Canceled)
		parent.Cancel(context.Canceled)
	}), 2.0)
}
