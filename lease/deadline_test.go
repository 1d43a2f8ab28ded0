package lease

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/script"
)

// However long an answer takes, a lease is no longer for that: it began when the try that was answered was sent.
func TestDeadlinesCountFromBeforeTheTryThatWasAnswered(t *testing.T) {
	t.Parallel()
	b, proxy := behindProxy(t, nil)
	b.put(t, "a")
	var mu sync.Mutex
	var began, arrived time.Time
	watch := func(sc *script.Script) {
		began = time.Now()
		intercept(proxy, sc, func(n int64) netfault.Action {
			mu.Lock()
			defer mu.Unlock()
			if arrived = time.Now(); n == 1 {
				return netfault.DropRequest
			}
			return netfault.Pass
		})
	}
	check := func(deadline time.Time, name string) {
		mu.Lock()
		defer mu.Unlock()
		sent := deadline.Add(-DefaultLease)
		assert.True(t, sent.After(began), name)
		assert.True(t, sent.Before(arrived), "%s: counted from %v after it had arrived", name, sent.Sub(arrived))
	}
	proxy.Delay(20 * time.Millisecond) // the answers' way back
	watch(claimScript)
	l := b.take(t, 1)[0]
	check(l.Deadline, "claim")
	watch(extendScript)
	extended, err := b.Extend(t.Context(), 0, []Held{held(l)})
	require.NoError(t, err)
	check(extended.Deadline, "extend")
}
