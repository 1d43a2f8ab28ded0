package lease

import (
	"context"

	"github.com/leaseq/leaseq/internal/script"
)

// Published reads the policy that the queue has published; published is false, and the policy empty, where none is. It
// is one read of one key.
func (s *Store) Published(ctx context.Context) (policy Policy, published bool, err error) {
	fields, err := s.rdb.HGetAll(ctx, s.keys.Key("policy")).Result()
	if err != nil {
		return Policy{}, false, script.Typed(err)
	}
	return readPolicy(fields), len(fields) > 0, nil
}

// readPolicy reads the fields of a policy. What was taken away is unset.
func readPolicy(fields map[string]string) (p Policy) {
	for i := range limits {
		if n, ok := readStored(fields[limits[i].field]); ok && n != NoLimit {
			limits[i].set(&p, n)
		}
	}
	return p
}
