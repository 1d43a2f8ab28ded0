package reliable

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
)

func TestARunningConsumerRestoresTheNameAndThePolicyOfItsQueue(t *testing.T) {
	t.Parallel()
	name, rdb := redistest.Queue(t), redistest.Client(t)
	q, err := New(rdb, name, &QueueOptions{Lease: 7 * time.Second})
	require.NoError(t, err)
	c, err := NewConsumer(q, NewMux(), nil)
	require.NoError(t, err)
	r, err := newRun(c)
	require.NoError(t, err)
	store := r.store
	part, err := keys.New(keys.DefaultPrefix, name, 0)
	require.NoError(t, err)
	leaseMS := func() string {
		ms, err := rdb.HGet(t.Context(), part.Key("policy"), "lease_ms").Result()
		require.NoError(t, err)
		return ms
	}

	require.NoError(t, r.remindOnce(t.Context()), "after a FLUSHALL, say")
	require.Equal(t, "7000", leaseMS())
	known, err := rdb.SIsMember(t.Context(), keys.Registry(keys.DefaultPrefix), name).Result()
	require.NoError(t, err)
	require.True(t, known)

	_, err = store.Publish(t.Context(), &lease.Policy{Lease: 9 * time.Second})
	require.NoError(t, err)
	require.NoError(t, r.remindOnce(t.Context()))
	require.Equal(t, "9000", leaseMS(), "a newer policy stays")
	require.NoError(t, store.Close(t.Context()))
	require.NoError(t, q.Close(t.Context()))
}

func TestAProducerRegistersItsQueueAgainAfterAWhile(t *testing.T) {
	t.Parallel()
	name, rdb := redistest.Queue(t), redistest.Client(t)
	q, err := New(rdb, name, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, q.Close(context.Background())) })
	item := Item{Kind: "k"}
	_, err = q.Enqueue(t.Context(), item)
	require.NoError(t, err)
	known := func() bool { return rdb.SIsMember(t.Context(), keys.Registry(keys.DefaultPrefix), name).Val() }
	require.True(t, known())
	require.NoError(t, rdb.SRem(t.Context(), keys.Registry(keys.DefaultPrefix), name).Err())
	_, err = q.Enqueue(t.Context(), item)
	require.NoError(t, err)
	require.False(t, known(), "not at each enqueue")
	q.registry.at.Add(-int64(remindEvery) - 1)
	_, err = q.Enqueue(t.Context(), item)
	require.NoError(t, err)
	require.Eventually(t, known, 20*time.Second, time.Millisecond)
}
