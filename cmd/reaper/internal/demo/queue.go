package demo

import (
	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/reliable"
)

// openQueue opens the demonstration's queue, with the same limits in every process.
func openQueue(rdb *redis.Client, name string) (*reliable.Queue, error) {
	retries := maxRetries
	return reliable.New(rdb, name, &reliable.QueueOptions{
		Prefix: keyPrefix, Lease: leaseLength, MaxRetries: &retries,
		Backoff: reliable.Backoff{Base: backoffBase, Cap: backoffCap},
	})
}
