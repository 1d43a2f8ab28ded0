package reaper_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reaper"
)

func TestHealthNamesTheQueueThatCannotBeSweptUntilItCan(t *testing.T) {
	t.Parallel()
	good, bad, rdb := redistest.Queue(t), redistest.BrokenQueue(t), redistest.Client(t)
	r, err := reaper.New(rdb, &reaper.Options{Queues: []string{good, bad}})
	require.NoError(t, err)
	require.ErrorIs(t, r.Health(t.Context()), reaper.ErrNotRunning)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	var last error
	well := func() bool { last = r.Health(t.Context()); return last == nil }
	require.Eventually(t, well, 20*time.Second, 5*time.Millisecond, "%v", &last)

	part, err := keys.New(keys.DefaultPrefix, bad, 0)
	require.NoError(t, err)
	require.NoError(t, rdb.Set(t.Context(), part.Key("processing"), "text", 0).Err())
	require.NoError(t, rdb.Ping(t.Context()).Err(), "which says nothing about sweeps")
	require.Eventually(t, func() bool { return !well() }, 10*time.Second, 5*time.Millisecond)
	var failed *reaper.QueueError
	require.ErrorAs(t, r.Health(t.Context()), &failed)
	assert.Equal(t, bad, failed.Queue)
	assert.ErrorContains(t, failed, "WRONGTYPE")
	assert.NotContains(t, r.Health(t.Context()).Error(), good)

	require.NoError(t, rdb.Del(t.Context(), part.Key("processing")).Err())
	require.Eventually(t, well, 5*time.Second, 5*time.Millisecond, "by itself")
	cancel()
	require.NoError(t, <-ended)
	require.ErrorIs(t, r.Health(context.Background()), reaper.ErrNotRunning)
}

func TestHealthSaysThatTheRegistryCannotBeRead(t *testing.T) {
	t.Parallel()
	rdb, prefix := redistest.Client(t), "health."+time.Now().Format("150405.000000")
	registry := keys.Registry(prefix)
	require.NoError(t, rdb.Set(t.Context(), registry, "text", 0).Err())
	t.Cleanup(func() { require.NoError(t, rdb.Del(context.Background(), registry).Err()) })
	r, err := reaper.New(rdb, &reaper.Options{Prefix: prefix})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	require.Eventually(t, func() bool {
		err := r.Health(t.Context())
		return err != nil && !errors.Is(err, reaper.ErrNotRunning)
	}, 20*time.Second, time.Millisecond)
	assert.ErrorContains(t, r.Health(t.Context()), "registry of queues: failing for")
	require.NoError(t, rdb.Del(t.Context(), registry).Err())
	require.Eventually(t, func() bool { return r.Health(t.Context()) == nil }, 10*time.Second, 5*time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
}
