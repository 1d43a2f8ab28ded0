package redistest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/internal/keys"
)

// A found key carries a queue's tag.
type found struct {
	key       string
	prefix    string
	partition int    // -1 where what follows the queue's name is no tag of ours
	name      string // what follows the tag and its colon
}

// tagBegin returns what stands between a prefix and the end of the queue's name in every key: package keys alone knows.
func tagBegin(queue string) (string, error) {
	const prefix = "p"
	p, err := keys.New(prefix, queue, 0)
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(strings.TrimPrefix(p.Key("due"), prefix), "}:due"), nil
}

// find returns every key with the queue's tag, of all partitions, sorted. An empty prefix means any.
func find(ctx context.Context, rdb redis.UniversalClient, prefix, queue string) ([]found, error) {
	begin, err := tagBegin(queue)
	if err != nil {
		return nil, err
	}
	pattern := "*" + escapeGlob(begin) + "[}#]*"
	if prefix != "" {
		pattern = escapeGlob(prefix) + pattern[1:]
	}
	all, err := scan(ctx, rdb, pattern)
	if err != nil {
		return nil, err
	}
	out := make([]found, 0, len(all))
	for _, key := range all {
		before, rest, _ := strings.Cut(key, begin)
		f := found{key: key, prefix: before, partition: -1, name: rest}
		if tag, name, whole := strings.Cut(rest, "}:"); whole {
			if p, ok := partitionOf(tag); ok {
				f.partition, f.name = p, name
			}
		}
		out = append(out, f)
	}
	return out, nil
}

// partitionOf reads what stands between the queue's name and the end of the tag: nothing, or #p.
func partitionOf(tag string) (int, bool) {
	if tag == "" {
		return 0, true
	}
	p, err := strconv.Atoi(strings.TrimPrefix(tag, "#"))
	return p, err == nil && p > 0 && tag == "#"+strconv.Itoa(p)
}

// escapeGlob has a pattern of SCAN match this text and nothing else.
func escapeGlob(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if strings.IndexByte(`*?[]^-\`, text[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// scan returns the keys that match a pattern, sorted, from all masters of a Cluster.
func scan(ctx context.Context, rdb redis.UniversalClient, pattern string) ([]string, error) {
	var mu sync.Mutex
	var all []string
	node := func(ctx context.Context, rdb redis.Cmdable) error {
		for cursor := uint64(0); ; {
			page, next, err := rdb.Scan(ctx, cursor, pattern, 1000).Result()
			if err != nil {
				return fmt.Errorf("SCAN MATCH %s: %w", pattern, err)
			}
			mu.Lock()
			all = append(all, page...)
			mu.Unlock()
			if cursor = next; cursor == 0 {
				return nil
			}
		}
	}
	var err error
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		err = cluster.ForEachMaster(ctx, func(ctx context.Context, rdb *redis.Client) error { return node(ctx, rdb) })
	} else {
		err = node(ctx, rdb)
	}
	slices.Sort(all)
	return slices.Compact(all), err
}
