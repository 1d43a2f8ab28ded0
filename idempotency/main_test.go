package idempotency_test

import (
	"context"
	"os"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/idempotency"
	"github.com/leaseq/leaseq/internal/redistest"
)

func TestMain(m *testing.M) {
	if point := os.Getenv(childPoint); point != "" {
		os.Exit(child(point))
	}
	redistest.Main(m)
}

// newGuard makes a guard on the shared server, closed when the test ends.
func newGuard(t testing.TB, o *idempotency.Options) *idempotency.Guard {
	t.Helper()
	return guardOn(t, redistest.Client(t), redistest.Queue(t), o)
}

func guardOn(t testing.TB, rdb redis.UniversalClient, name string, o *idempotency.Options) *idempotency.Guard {
	t.Helper()
	g, err := idempotency.New(rdb, name, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, g.Close(ctx))
	})
	return g
}

// short is a guard whose holders are soon over.
func short() *idempotency.Options {
	return &idempotency.Options{Lease: 300 * time.Millisecond, Retention: time.Minute}
}

// begin must answer.
func begin(t testing.TB, g *idempotency.Guard, key string) *idempotency.Answer {
	t.Helper()
	a, err := g.Begin(t.Context(), key, nil)
	require.NoError(t, err)
	return a
}

// dump is what a queue's keys hold, the sessions aside.
func dump(t testing.TB, rdb *redis.Client, pattern string) string {
	t.Helper()
	keys, err := rdb.Keys(t.Context(), pattern).Result()
	require.NoError(t, err)
	sort.Strings(keys)
	var out strings.Builder
	for _, key := range keys {
		if strings.HasSuffix(key, ":sessions") || strings.HasSuffix(key, ":holders") || strings.HasSuffix(key, ":fence") {
			continue
		}
		text, err := rdb.Dump(t.Context(), key).Result()
		require.NoError(t, err)
		out.WriteString(key + "=" + text + "\n")
	}
	return out.String()
}
