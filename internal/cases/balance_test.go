package cases

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// A balance is what the books of a queue say, read in one MULTI.
type balance struct {
	due, processing, dead []string
	records, leases       []string
	acked                 int64
}

// takeBalance reads the books of the lane's queue.
func (l *lane) takeBalance(ctx context.Context) (*balance, error) {
	b := &balance{}
	var due, processing, dead, records, leases *redis.StringSliceCmd
	var acked *redis.StringCmd
	_, err := l.rdb.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		due = pipe.ZRange(ctx, l.keys.Key("due"), 0, -1)
		processing = pipe.ZRange(ctx, l.keys.Key("processing"), 0, -1)
		dead = pipe.ZRange(ctx, l.keys.Key("dead"), 0, -1)
		records = pipe.HKeys(ctx, l.keys.Key("jobs"))
		leases = pipe.HKeys(ctx, l.keys.Key("leases"))
		acked = pipe.HGet(ctx, l.keys.Key("stats"), "acked")
		return nil
	})
	if err != nil && err != redis.Nil {
		return nil, err
	}
	b.due, b.processing, b.dead = due.Val(), processing.Val(), dead.Val()
	b.records, b.leases = records.Val(), leases.Val()
	b.acked, _ = strconv.ParseInt(acked.Val(), 10, 64)
	return b, nil
}

// check is nil if the books balance at n jobs: the places hold different IDs, as many as are not acked, each with a
// record, and only what is in processing has a lease.
func (b *balance) check(n int) error {
	where := map[string]string{}
	for place, ids := range map[string][]string{"due": b.due, "processing": b.processing, "dead": b.dead} {
		for _, id := range ids {
			if other, twice := where[id]; twice {
				return fmt.Errorf("%s is in %s and in %s", id, other, place)
			}
			where[id] = place
		}
	}
	if got := int64(len(where)) + b.acked; got != int64(n) {
		return fmt.Errorf("due %d + processing %d + dead %d + acked %d = %d jobs, want %d",
			len(b.due), len(b.processing), len(b.dead), b.acked, got, n)
	}
	if !slices.Equal(slices.Sorted(maps.Keys(where)), slices.Sorted(slices.Values(b.records))) {
		return fmt.Errorf("%d records, of other jobs than the %d in due, processing and dead", len(b.records), len(where))
	}
	if !slices.Equal(slices.Sorted(slices.Values(b.processing)), slices.Sorted(slices.Values(b.leases))) {
		return fmt.Errorf("leases on %d jobs, others than the %d in processing", len(b.leases), len(b.processing))
	}
	return nil
}
