package reaper_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/reaper"
)

// nobody is a client of a server that is not there: what does no I/O does not notice.
func nobody(t *testing.T) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	return rdb
}

func TestNewTakesNilOptionsAndDoesNoIO(t *testing.T) {
	t.Parallel()
	r, err := reaper.New(nobody(t), nil)
	require.NoError(t, err)
	require.NotNil(t, r)
}

func TestNewRefusesABatchAboveTheMaximumOfOneCall(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{-1, 1001} {
		_, err := reaper.New(nobody(t), &reaper.Options{Batch: batch})
		require.ErrorContains(t, err, "want 1 to 1000")
	}
	_, err := reaper.New(nobody(t), &reaper.Options{Batch: 1000})
	require.NoError(t, err)
}

func TestNewReportsEveryProblemAtOnce(t *testing.T) {
	t.Parallel()
	_, err := reaper.New(nil, &reaper.Options{
		Prefix: "a{b", Queues: []string{"orders", "no blanks", "orders"}, RefreshEvery: time.Second, Batch: 5000,
	})
	for _, part := range []string{"client is nil", `prefix "a{b"`, `"no blanks"`, `"orders" is named twice`, "RefreshEvery", "Batch 5000"} {
		assert.ErrorContains(t, err, part)
	}
}

func TestNewRefusesAnEmptyListOfQueuesSinceNothingWouldBeDone(t *testing.T) {
	t.Parallel()
	_, err := reaper.New(nobody(t), &reaper.Options{Queues: []string{}})
	require.ErrorContains(t, err, "leave it nil")
}

func TestNewRefusesANegativeRefresh(t *testing.T) {
	t.Parallel()
	_, err := reaper.New(nobody(t), &reaper.Options{RefreshEvery: -time.Second})
	require.ErrorContains(t, err, "RefreshEvery -1s")
}

func TestNewKeepsACopyOfTheQueueNames(t *testing.T) {
	t.Parallel()
	names := []string{"orders"}
	r, err := reaper.New(nobody(t), &reaper.Options{Queues: names})
	require.NoError(t, err)
	names[0] = "changed"
	got, err := r.Sweep(t.Context(), nil)
	require.Error(t, err, "nobody answers")
	require.Contains(t, got, "orders")
}
