package reliable_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

// Else leases would have the built-in length for a minute, which is how long a dead holder's jobs would then wait.
func TestAPolicyThatASuddenLossTookIsBackWithTheNextClaims(t *testing.T) {
	t.Parallel()
	name, rdb := redistest.Queue(t), redistest.Client(t)
	q, err := reliable.New(rdb, name, &reliable.QueueOptions{Lease: 7 * time.Second})
	require.NoError(t, err)
	lengths := make(chan time.Duration, 100)
	c, err := reliable.NewConsumer(q, reliable.HandlerFunc(func(_ context.Context, job *reliable.Job) error {
		lengths <- time.Until(job.Deadline())
		return nil
	}), nil)
	require.NoError(t, err)
	over := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() { over <- c.Run(ctx) }()
	enqueue := func() time.Duration {
		_, err := q.Enqueue(t.Context(), reliable.Item{Kind: "k"})
		require.NoError(t, err)
		return receive(t, lengths)
	}
	require.LessOrEqual(t, enqueue(), 7*time.Second)
	part, err := keys.New(keys.DefaultPrefix, name, 0)
	require.NoError(t, err)
	require.NoError(t, rdb.Del(t.Context(), part.Key("policy")).Err())
	require.Greater(t, enqueue(), 7*time.Second, "the built-in length")
	require.Eventually(t, func() bool { return enqueue() <= 7*time.Second }, 10*time.Second, 10*time.Millisecond)
	require.Equal(t, "7000", rdb.HGet(t.Context(), part.Key("policy"), "lease_ms").Val())
	stop()
	require.NoError(t, receive(t, over))
	require.NoError(t, q.Close(context.Background()))
}
