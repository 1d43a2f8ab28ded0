package lease

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOnBeatThatCallsGoexitIsAPanic(t *testing.T) {
	t.Parallel()
	k, err := NewKeeper(nil, &KeeperOptions{OnBeat: func(Beat) { runtime.Goexit() }})
	require.NoError(t, err)
	caught := make(chan any, 1)
	go func() {
		defer func() { caught <- recover() }()
		k.report(Beat{})
	}()
	require.Contains(t, <-caught, "OnBeat has called runtime.Goexit")
}
