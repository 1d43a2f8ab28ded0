package lease

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// limitsNow is all that stands in the policy, but for who was heard of.
func (b *bench) limitsNow(t *testing.T) map[string]string {
	t.Helper()
	all := b.rdb.HGetAll(t.Context(), b.key("policy")).Val()
	for field := range all {
		if strings.HasPrefix(field, "seen_") {
			delete(all, field)
		}
	}
	return all
}

func (b *bench) pin(t *testing.T, p Policy) bool {
	t.Helper()
	changed, err := b.Pin(t.Context(), &p)
	require.NoError(t, err)
	return changed
}

func (b *bench) unpin(t *testing.T, names ...string) bool {
	t.Helper()
	changed, err := b.Unpin(t.Context(), names...)
	require.NoError(t, err)
	return changed
}

func (b *bench) state(t *testing.T) PolicyState {
	t.Helper()
	state, err := b.PolicyState(t.Context())
	require.NoError(t, err)
	return state
}

func (s *PolicyState) limit(name string) LimitState {
	for _, l := range s.Limits {
		if l.Name == name {
			return l
		}
	}
	return LimitState{}
}

func TestWhatIsPinnedHoldsAgainstDeploymentsUntilItIsUnpinned(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.publish(t, Policy{Lease: 15 * time.Second, MaxRetries: ptr(20)})
		assert.True(t, b.pin(t, Policy{MaxRetries: ptr(0), MaxLength: ptr(1)}))
		assert.False(t, b.pin(t, Policy{MaxRetries: ptr(0)}), "it is so already")
		b.publish(t, Policy{Lease: 30 * time.Second, MaxRetries: ptr(7), MaxLength: ptr(9)})
		state := b.state(t)
		assert.Equal(t, Policy{Lease: 30 * time.Second, MaxRetries: ptr(0), MaxLength: ptr(1)}, state.Policy, "of the rest the newest holds")
		assert.Equal(t, LimitState{Name: "max_retries", Value: "0", Pinned: true, Deployed: "7"}, state.limit("max_retries"))
		assert.Equal(t, LimitState{Name: "lease", Value: "30s"}, state.limit("lease"))
		assert.Equal(t, LimitState{Name: "max_delay", Value: "168h", Builtin: true}, state.limit("max_delay"))
		assert.Equal(t, LimitState{Name: "job_timeout", Value: "none", Builtin: true}, state.limit("job_timeout"))

		b.putItems(t, Item{ID: "a", Record: []byte("r")}) // the scripts follow it
		results, err := b.Enqueue(t.Context(), []Item{{ID: "b", Record: []byte("r")}})
		require.NoError(t, err)
		assert.Equal(t, []error{&QueueFullError{Limit: 1}}, results)
		assert.Equal(t, Settled{Place: Dead}, b.settle(t, verdict(Nack, b.take(t, 1)[0]))[0])

		assert.True(t, b.unpin(t, "max_retries"))
		assert.False(t, b.unpin(t, "max_retries", "lease"))
		assert.Equal(t, Policy{Lease: 30 * time.Second, MaxRetries: ptr(7), MaxLength: ptr(1)}, b.state(t).Policy)
		assert.True(t, b.unpin(t))
		assert.Equal(t, Policy{Lease: 30 * time.Second, MaxRetries: ptr(7), MaxLength: ptr(9)}, b.state(t).Policy)
		for field := range b.limitsNow(t) {
			assert.NotContains(t, field, "_pinned")
			assert.NotContains(t, field, "deployed_")
		}
		assert.False(t, b.unpin(t))
	})
}

func TestWhatWasNeverPublishedIsGoneWhenItIsUnpinned(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		assert.True(t, b.pin(t, Policy{MaxDelay: ptr(time.Duration(0)), MaxExpiries: ptr(0)}))
		results, err := b.Enqueue(t.Context(), []Item{{ID: "a", Record: []byte("r"), Delay: 1}, {ID: "b", Record: []byte("r")}})
		require.NoError(t, err)
		assert.Equal(t, []error{&DelayTooLongError{ID: "a", Asked: 1}, nil}, results)
		assert.Equal(t, 1, b.expireAll(t, b.take(t, 1)...).ToDead)
		assert.True(t, b.unpin(t, "max_delay", "max_expiries"))
		assert.Equal(t, Policy{}, b.state(t).Policy)
		b.putItems(t, Item{ID: "a", Record: []byte("r"), Delay: 7 * 24 * time.Hour})
	})
}

// After a FLUSHALL an operator may be faster than a deployment's reminder.
func TestAPinOnAnEmptyQueueDoesNotKeepADeploymentFromRestoring(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.pin(t, Policy{MaxRetries: ptr(3)})
		changed, err := b.Restore(t.Context(), &Policy{Lease: time.Minute, MaxRetries: ptr(20)})
		require.NoError(t, err)
		assert.True(t, changed)
		changed, err = b.Restore(t.Context(), &Policy{Lease: time.Hour, MaxRetries: ptr(1)})
		require.NoError(t, err)
		assert.False(t, changed)
		assert.Equal(t, Policy{Lease: time.Minute, MaxRetries: ptr(3)}, b.state(t).Policy)
		b.unpin(t)
		assert.Equal(t, Policy{Lease: time.Minute, MaxRetries: ptr(20)}, b.state(t).Policy)
	})
}

func TestPinsThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	_, err := b.Pin(t.Context(), nil)
	assert.ErrorContains(t, err, "want at least one limit")
	_, err = b.Pin(t.Context(), &Policy{Lease: time.Millisecond, MaxRetries: ptr(-1), HeaderLimit: ptr(5000), BackoffBase: time.Hour, BackoffCap: time.Second})
	for _, part := range []string{
		"lease is 1ms: want a duration as 30s, 20ms to 24h", "max_retries is -1: want 0 or more",
		"header_limit is 5000: want bytes, 0 to 4096, or none", "backoff_base is 1h, longer than backoff_cap, 1s",
	} {
		assert.ErrorContains(t, err, part)
	}
	_, err = b.Pin(t.Context(), &Policy{MaxRetries: ptr(NoLimit)})
	assert.ErrorContains(t, err, "max_retries cannot be taken away")
	_, err = b.Unpin(t.Context(), "retries")
	assert.ErrorContains(t, err, `"retries" is no limit of a queue: want one of lease, max_lease`)
	assert.Empty(t, b.dump(t))
}

func TestLimitsAreReadFromTexts(t *testing.T) {
	t.Parallel()
	var p Policy
	for name, value := range map[string]string{
		"lease": "30s", "max_retries": "0", "payload_limit": "1024", "max_delay": "0s", "max_length": "none", "job_timeout": "1h30m", "header_limit": "0",
	} {
		require.NoError(t, p.Set(name, value), name)
	}
	assert.Equal(t, Policy{
		Lease: 30 * time.Second, MaxRetries: ptr(0), PayloadLimit: 1024, MaxDelay: ptr(time.Duration(0)), MaxLength: ptr(NoLimit),
		JobTimeout: 90 * time.Minute, HeaderLimit: ptr(0),
	}, p)
	for _, bad := range [][3]string{
		{"lease", "30", "want a duration as 30s, 20ms to 24h"}, {"max_retries", "none", "want a whole number, 0 to 1000000"},
		{"max_retries", "-1", "want a whole number"}, {"payload_limit", "0", "want bytes, 1 to 268435456, or none"},
		{"max_delay", "none", "want a duration as 30s, 0s to 876000h"}, {"leases", "1s", "want one of lease"},
	} {
		assert.ErrorContains(t, p.Set(bad[0], bad[1]), bad[2])
	}
}

func TestTwoDeploymentsThatPublishDifferentPoliciesAreSeen(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		other, err := NewStore(b.rdb, b.queue, &StoreOptions{Holder: "billing 2"})
		require.NoError(t, err)
		defer other.Close(t.Context())
		one, two := &Policy{Lease: 15 * time.Second, MaxRetries: ptr(3)}, &Policy{Lease: 30 * time.Second, MaxRetries: ptr(3), MaxLength: ptr(5)}
		_, err = b.Publish(t.Context(), one)
		require.NoError(t, err)
		state := b.state(t)
		assert.Len(t, state.Live(), 1)
		assert.Empty(t, state.Mismatch())
		_, err = other.Publish(t.Context(), two)
		require.NoError(t, err)
		_, err = b.Restore(t.Context(), one) // the reminder: it lives, and changes nothing
		require.NoError(t, err)
		state = b.state(t)
		assert.Equal(t, 30*time.Second, state.Lease, "the newest that started holds")
		require.Len(t, state.Live(), 2)
		for _, part := range []string{"lease is ", "15s of test/1", "30s of billing 2", "max_length is ", "5 of billing 2", "unset of test/1"} {
			assert.Contains(t, state.Mismatch(), part)
		}
		assert.NotContains(t, state.Mismatch(), "max_retries")

		b.age(t, "billing 2", 4*time.Minute)
		state = b.state(t)
		assert.Len(t, state.Deployments, 2)
		assert.Empty(t, state.Mismatch(), "it was not heard of for a while")
		b.age(t, "billing 2", 11*time.Minute)
		_, err = b.Restore(t.Context(), one)
		require.NoError(t, err)
		assert.Len(t, b.state(t).Deployments, 1, "it is forgotten")
	})
}

// age sets back when a holder was heard of last.
func (b *bench) age(t *testing.T, holder string, by time.Duration) {
	for field, text := range b.rdb.HGetAll(t.Context(), b.key("policy")).Val() {
		if parts := strings.SplitN(text, "\t", 3); len(parts) == 3 && parts[1] == holder {
			parts[0] = limitText(b.now(t).Add(-by).UnixMilli())
			require.NoError(t, b.rdb.HSet(t.Context(), b.key("policy"), field, strings.Join(parts, "\t")).Err())
		}
	}
}
