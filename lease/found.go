package lease

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/script"
)

// A Found key is one that carries the tag of a queue.
type Found struct {
	Key       string
	Partition int    // -1: the tag is not one of ours
	Name      string // without prefix and tag, as "due" or "guard:…"
}

// Fixed reports whether it is one of the keys that every partition has.
func (f *Found) Fixed() bool { return f.Partition >= 0 && slices.Contains(keys.Names, f.Name) }

// Record reports whether it is an idempotency record.
func (f *Found) Record() bool { return f.Partition >= 0 && keys.IsRecord(f.Name) }

// scanPage is about how many keys of the server one step of Find looks at.
const scanPage = 1000

// Find looks through all keys of the server, in a Cluster of each primary, for those with the tag of one queue, and
// hands them to each, a page at a time and one page after the other, until each returns an error. No step is long, but
// there is one for about every 1,000 keys that the server holds. A key that comes or goes meanwhile may be missed, and
// one may come twice.
func Find(ctx context.Context, rdb redis.UniversalClient, prefix, queue string, each func(page []Found) error) error {
	if _, err := keys.New(prefix, queue, 0); err != nil {
		return err
	}
	var mu sync.Mutex
	node := func(ctx context.Context, rdb redis.Cmdable) error {
		for cursor := uint64(0); ; {
			page, next, err := rdb.Scan(ctx, cursor, keys.Pattern(prefix, queue), scanPage).Result()
			if err != nil {
				return fmt.Errorf("look for the keys of queue %s: %w", queue, script.Typed(err))
			}
			found := make([]Found, len(page))
			for i, key := range page {
				partition, name, ok := keys.Split(prefix, queue, key)
				if !ok {
					partition, name = -1, key
				}
				found[i] = Found{Key: key, Partition: partition, Name: name}
			}
			if len(found) > 0 {
				mu.Lock()
				err = each(found)
				mu.Unlock()
			}
			if cursor = next; err != nil || cursor == 0 {
				return err
			}
		}
	}
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, rdb *redis.Client) error { return node(ctx, rdb) })
	}
	return node(ctx, rdb)
}

// DeleteRecords deletes those of the found keys that are idempotency records, and returns how many there were. The
// client may repeat it: a record that is made anew meanwhile may go too.
func DeleteRecords(ctx context.Context, rdb redis.UniversalClient, found []Found) (int64, error) {
	slots := map[int][]string{} // all keys of a partition are in one
	for i := range found {
		if found[i].Record() {
			slots[found[i].Partition] = append(slots[found[i].Partition], found[i].Key)
		}
	}
	var deleted int64
	for _, all := range slots {
		for page := range slices.Chunk(all, DefaultBatch) {
			n, err := rdb.Unlink(ctx, page...).Result()
			if err != nil {
				return deleted, fmt.Errorf("delete idempotency records: %w", script.Typed(err))
			}
			deleted += n
		}
	}
	return deleted, nil
}
