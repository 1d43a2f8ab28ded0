package lease

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/script"
)

func TestTheSamePolicyAgainChangesNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		p := &Policy{
			Lease: 20*time.Second + 1, MaxRetries: ptr(0), MaxExpiries: ptr(3), BackoffBase: time.Second, BackoffCap: time.Minute,
			ExpiryBackoff: time.Millisecond, ExpiryCap: time.Hour, PayloadLimit: 99,
		}
		changed, err := b.Publish(t.Context(), p)
		require.NoError(t, err)
		assert.True(t, changed)
		stored := b.rdb.HGetAll(t.Context(), b.key("policy")).Val()
		version := stored["version"]
		assert.Len(t, version, 16, "a time in µs, in full")
		delete(stored, "version")
		for field, text := range stored {
			if strings.HasPrefix(field, "seen_") {
				assert.Regexp(t, `^\d{13}\ttest/1\tlease_ms 20001 `, text)
				delete(stored, field)
			}
		}
		assert.Equal(t, map[string]string{
			"deployed": "1",
			"lease_ms": "20001", "max_retries": "0", "max_expiries": "3", "backoff_base_ms": "1000", "backoff_cap_ms": "60000",
			"expiry_backoff_base_ms": "1", "expiry_backoff_cap_ms": "3600000", "payload_limit": "99",
		}, stored)

		changed, err = b.Publish(t.Context(), p)
		require.NoError(t, err)
		assert.False(t, changed)
		assert.Equal(t, version, b.rdb.HGet(t.Context(), b.key("policy"), "version").Val())

		changed, err = b.Publish(t.Context(), &Policy{MaxRetries: ptr(1)})
		require.NoError(t, err)
		assert.True(t, changed)
		stored = b.rdb.HGetAll(t.Context(), b.key("policy")).Val()
		assert.Greater(t, stored["version"], version)
		assert.Equal(t, []string{"1", "20001"}, []string{stored["max_retries"], stored["lease_ms"]}, "what is unset is kept")
	})
}

func TestAnEmptyPolicyPublishesNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		for _, p := range []*Policy{nil, {}} {
			changed, err := b.Publish(t.Context(), p)
			require.NoError(t, err)
			assert.False(t, changed)
		}
		assert.Empty(t, b.dump(t))
	})
}

func TestAPolicyThatCannotBeIsRefusedWithAllItsMistakes(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	_, err := b.Publish(t.Context(), &Policy{
		Lease: -1, MaxRetries: ptr(-1), MaxExpiries: ptr(-2), BackoffBase: -1, BackoffCap: -1, ExpiryBackoff: -1, ExpiryCap: -1, PayloadLimit: -1,
	})
	for _, name := range []string{"lease", "max_retries", "max_expiries", "backoff_base", "backoff_cap", "expiry_backoff_base", "expiry_backoff_cap", "payload_limit"} {
		assert.ErrorContains(t, err, name)
	}
	assert.Empty(t, b.dump(t))
}

func TestOfTwoPoliciesTheNewerVersionWins(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		publish := func(version any, lease int) (stored string, changed int64) {
			req := &script.Request{Script: policyScript, Args: []any{version, "", "", "lease_ms", lease}}
			b.runner.Send(t.Context(), req)
			require.NoError(t, req.Err)
			return req.Reply[1].(string), req.Reply[2].(int64)
		}
		for _, step := range []struct {
			version, lease int
			stored         string
			changed        int64
			holds          string
		}{
			{5, 1000, "5", 1, "1000"}, {4, 2000, "5", 0, "1000"}, {5, 2000, "5", 0, "1000"}, {7, 2000, "7", 1, "2000"}, {9, 2000, "9", 0, "2000"},
		} {
			stored, changed := publish(step.version, step.lease)
			assert.Equal(t, step.stored, stored)
			assert.Equal(t, step.changed, changed)
			assert.Equal(t, step.holds, b.rdb.HGet(t.Context(), b.key("policy"), "lease_ms").Val())
		}
		ahead := "9007199254740001" // a clock that once was ahead
		publish(ahead, 3000)
		stored, changed := publish("", 4000)
		assert.Equal(t, "9007199254740002", stored)
		assert.EqualValues(t, 1, changed)
	})
}

func TestEveryScriptFollowsThePolicyThatHoldsWhenItRuns(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.put(t, "a")
		for _, length := range []time.Duration{20 * time.Second, 10 * time.Second, time.Minute} {
			b.publish(t, Policy{Lease: length})
			l := b.take(t, 1)[0]
			assert.Equal(t, length, l.Length)
			extended, err := b.Extend(t.Context(), 0, []Held{held(l)})
			require.NoError(t, err)
			assert.Equal(t, length, extended.Length)
			expired, err := b.Expire(t.Context(), 1, true)
			require.NoError(t, err)
			assert.Equal(t, length, expired.Lease)
			b.settle(t, verdict(Release, l))
		}
		other := b.another(t, nil) // another process, with no options of its own
		assert.Equal(t, time.Minute, takeFrom(t, other, 1)[0].Length)
		stored, err := strconv.Atoi(b.rdb.HGet(t.Context(), b.key("policy"), "lease_ms").Val())
		require.NoError(t, err)
		assert.Equal(t, 60000, stored)
	})
}

func TestRestorePublishesOnlyWhereNothingIsPublished(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		changed, err := b.Restore(t.Context(), &Policy{Lease: time.Minute})
		require.NoError(t, err)
		assert.True(t, changed)
		before := b.limitsNow(t)
		changed, err = b.Restore(t.Context(), &Policy{Lease: time.Hour})
		require.NoError(t, err)
		assert.False(t, changed)
		assert.Equal(t, before, b.limitsNow(t))
		b.publish(t, Policy{Lease: time.Second})
		assert.Equal(t, "1000", b.rdb.HGet(t.Context(), b.key("policy"), "lease_ms").Val(), "a new policy wins over a restored one")
	})
}

// An answer that says OK and nothing that is understood is not taken for a policy that was published.
func TestAnAnswerOfAnotherShapeToAPolicyIsAnError(t *testing.T) {
	t.Parallel()
	b, proxy := behindProxy(t, nil)
	for _, answer := range []string{
		"*3\r\n$2\r\nOK\r\n*1\r\n:1\r\n$-1\r\n", "*3\r\n$2\r\nNO\r\n$1\r\n1\r\n:1\r\n", "*2\r\n$2\r\nOK\r\n:1\r\n", "*0\r\n", ":1\r\n",
	} {
		intercept(proxy, policyScript, func(int64) netfault.Action { return netfault.Answer(answer) })
		_, err := b.Publish(t.Context(), &Policy{Lease: time.Second})
		var odd *script.ReplyError
		require.ErrorAs(t, err, &odd, "%q", answer)
	}
	proxy.Decide(nil)
	changed, err := b.Publish(t.Context(), &Policy{Lease: time.Second})
	require.NoError(t, err)
	assert.True(t, changed, "nothing had been published")
}
