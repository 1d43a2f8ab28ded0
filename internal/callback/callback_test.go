package callback

import (
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRunReturnsAfterTheFunction(t *testing.T) {
	t.Parallel()
	called := 0
	Run("OnSweep", func() { called++ })
	require.Equal(t, 1, called)
}

func TestAPanicGoesOnAsItIs(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	require.PanicsWithValue(t, broken, func() { Run("OnSweep", func() { panic(broken) }) })
}

func TestAGoexitBecomesAPanicThatNamesTheFunction(t *testing.T) {
	t.Parallel()
	text := make(chan any, 1)
	go func() {
		defer func() { text <- recover() }()
		Run("OnSweep of queue orders", runtime.Goexit)
		text <- "Run has returned"
	}()
	require.Equal(t, "OnSweep of queue orders has called runtime.Goexit (as FailNow of a test does) on a goroutine that must go on: it must return", <-text)
}
