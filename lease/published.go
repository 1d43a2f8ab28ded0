package lease

import (
	"context"
	"strconv"
	"time"

	"github.com/leaseq/leaseq/internal/script"
)

// Published reads the policy that the queue has published; published is false, and the policy empty, where none is. It
// is one read of one key.
func (s *Store) Published(ctx context.Context) (policy Policy, published bool, err error) {
	fields, err := s.rdb.HGetAll(ctx, s.keys.Key("policy")).Result()
	if err != nil {
		return Policy{}, false, script.Typed(err)
	}
	number := func(name string) *int {
		n, err := strconv.Atoi(fields[name])
		if err != nil {
			return nil
		}
		return &n
	}
	duration := func(name string) time.Duration {
		ms, _ := strconv.ParseInt(fields[name], 10, 64)
		return millis(ms)
	}
	policy = Policy{
		Lease: duration("lease_ms"), MaxRetries: number("max_retries"), MaxExpiries: number("max_expiries"),
		BackoffBase: duration("backoff_base_ms"), BackoffCap: duration("backoff_cap_ms"),
		ExpiryBackoff: duration("expiry_backoff_base_ms"), ExpiryCap: duration("expiry_backoff_cap_ms"),
	}
	if limit := number("payload_limit"); limit != nil {
		policy.PayloadLimit = *limit
	}
	return policy, len(fields) > 0, nil
}
