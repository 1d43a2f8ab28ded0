package main

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheFirstSignalEndsTheContextAndTheSecondTheProcess(t *testing.T) {
	t.Parallel()
	signals, exits := make(chan os.Signal), make(chan int, 1)
	ctx, stop := until(context.Background(), signals, func(code int) { exits <- code })
	defer stop()
	require.NoError(t, ctx.Err())
	signals <- syscall.SIGTERM
	select {
	case <-ctx.Done():
	case <-time.After(within):
		t.Fatal("the context goes on")
	}
	require.ErrorContains(t, context.Cause(ctx), "terminated")
	assert.Empty(t, exits)
	signals <- os.Interrupt
	assert.Equal(t, 130, <-exits)
	assert.Equal(t, 143, signalCode(syscall.SIGTERM))
}

func TestStopEndsTheWatchOfSignals(t *testing.T) {
	t.Parallel()
	ctx, stop := untilSignal(t.Context(), func(int) { t.Error("nobody sent a signal") })
	require.NoError(t, ctx.Err())
	stop()
	require.ErrorIs(t, ctx.Err(), context.Canceled)
}
