package keys_test

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
)

func TestAKeyIsSplitIntoWhatItWasMadeOf(t *testing.T) {
	t.Parallel()
	for _, partition := range []int{0, 1, 12} {
		p, err := keys.New("app:x", "a/b.c:d_1", partition)
		require.NoError(t, err)
		for i, key := range p.All() {
			got, name, ok := keys.Split("app:x", "a/b.c:d_1", key)
			require.True(t, ok, key)
			require.Equal(t, partition, got)
			require.Equal(t, keys.Names[i], name)
		}
	}
	_, name, ok := keys.Split("leaseq", "orders", "leaseq:v1:{orders}:guard:a}:b{#1")
	require.True(t, ok)
	require.Equal(t, "guard:a}:b{#1", name)
}

func TestAKeyOfAnotherQueueIsNotSplit(t *testing.T) {
	t.Parallel()
	for _, key := range []string{
		"", "leaseq:v1:queues", "leaseq:v1:{orders", "leaseq:v1:{orders}", "leaseq:v1:{orders}due", "leaseq:v1:{orders2}:due",
		"leaseq:v1:{order}:due", "leaseq:v2:{orders}:due", "other:v1:{orders}:due", "leaseq:v1:{orders#}:due",
		"leaseq:v1:{orders#0}:due", "leaseq:v1:{orders#01}:due", "leaseq:v1:{orders#-1}:due", "leaseq:v1:{orders#x}:due",
		"leaseq:v1:{orders1}:due", "leaseq:v1:{orders#+1}:due",
	} {
		_, _, ok := keys.Split("leaseq", "orders", key)
		require.False(t, ok, key)
	}
}

func TestThePatternMatchesTheKeysOfOneQueueOnly(t *testing.T) {
	t.Parallel()
	matches := func(pattern, key string) bool {
		// Redis' * matches a slash too, that of this package does not.
		ok, err := path.Match(strings.ReplaceAll(pattern, "/", "|"), strings.ReplaceAll(key, "/", "|"))
		require.NoError(t, err)
		return ok
	}
	queues := []string{"orders", "orders2", "order", "a.orders", "orders:x", "orders/x", "-", "a-z"}
	for _, queue := range queues {
		for _, other := range queues {
			for partition := range 3 {
				p, err := keys.New("leaseq", other, partition)
				require.NoError(t, err)
				for _, key := range append(p.All(), strings.TrimSuffix(p.Key("due"), "due")+"once:{x}") {
					require.Equal(t, queue == other, matches(keys.Pattern("leaseq", queue), key), "%s, %s", queue, key)
				}
			}
		}
	}
}

func TestIdempotencyRecordsAreToldFromTheFixedKeys(t *testing.T) {
	t.Parallel()
	require.True(t, keys.IsRecord("guard:mail"))
	require.True(t, keys.IsRecord("once:"))
	for _, name := range append(slices.Clone(keys.Names), "", "guard", "xguard:a") {
		require.False(t, keys.IsRecord(name), name)
	}
}
