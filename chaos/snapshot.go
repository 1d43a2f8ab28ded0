package chaos

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/internal/keys"
)

// A Snapshot is what a queue holds at one moment, as it stands in Redis.
type Snapshot struct {
	Queue string `json:"queue"`
	At    int64  `json:"at_us"` // the server's clock, µs, just before it was read

	// The places: ID → score, ms.
	Due        map[string]int64 `json:"due"`
	Processing map[string]int64 `json:"processing"`
	Dead       map[string]int64 `json:"dead"`
	Done       map[string]int64 `json:"done"`

	Records []string          `json:"records"` // IDs that have a record
	Results []string          `json:"results"` // IDs that have a result
	Leases  map[string]string `json:"leases"`  // ID → token
	Counts  map[string]string `json:"counts"`  // ID → counters, as stored
	Fence   int64             `json:"fence"`   // the highest given; 0: none
	Stats   map[string]int64  `json:"stats"`
}

// ErrMoving says that somebody worked on the queue while it was read, three times in a row: end what does first.
var ErrMoving = errors.New("the queue changed while it was read: stop what works on it first")

// page is how many members one call reads.
const page = 1000

// TakeSnapshot reads a queue (its partition 0, the only one today) that nobody works on, in pages. It knows the keys of
// docs/protocol.md and nothing of the code that writes them. prefix "" is the default.
func TakeSnapshot(ctx context.Context, rdb redis.UniversalClient, prefix, queue string) (*Snapshot, error) {
	if prefix == "" {
		prefix = keys.DefaultPrefix
	}
	p, err := keys.New(prefix, queue, 0)
	if err != nil {
		return nil, err
	}
	t := &taking{rdb: rdb, p: p}
	for range 3 {
		before, err := t.mark(ctx)
		if err != nil {
			return nil, fmt.Errorf("snapshot of %s: %w", queue, err)
		}
		s, err := t.read(ctx, queue)
		if err != nil {
			return nil, fmt.Errorf("snapshot of %s: %w", queue, err)
		}
		after, err := t.mark(ctx)
		if err != nil {
			return nil, fmt.Errorf("snapshot of %s: %w", queue, err)
		}
		if before == after {
			return s, nil
		}
	}
	return nil, fmt.Errorf("snapshot of %s: %w", queue, ErrMoving)
}

type taking struct {
	rdb redis.UniversalClient
	p   *keys.Partition
}

// mark is a text that differs where a job has moved, but for one released or extended at just the wrong moment.
func (t *taking) mark(ctx context.Context) (string, error) {
	var stats *redis.MapStringStringCmd
	_, err := t.rdb.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		stats = pipe.HGetAll(ctx, t.p.Key("stats"))
		return nil
	})
	return fmt.Sprint(stats.Val()), err // maps are printed in the order of their keys
}

func (t *taking) read(ctx context.Context, queue string) (*Snapshot, error) {
	now, err := t.rdb.Time(ctx).Result()
	if err != nil {
		return nil, err
	}
	s := &Snapshot{Queue: queue, At: now.UnixMicro(), Leases: map[string]string{}, Counts: map[string]string{}, Stats: map[string]int64{}}
	for name, place := range map[string]*map[string]int64{"due": &s.Due, "processing": &s.Processing, "dead": &s.Dead, "done": &s.Done} {
		if *place, err = t.place(ctx, name); err != nil {
			return nil, err
		}
	}
	for name, list := range map[string]*[]string{"jobs": &s.Records, "results": &s.Results} {
		if *list, err = t.fields(ctx, name); err != nil {
			return nil, err
		}
	}
	for name, hash := range map[string]map[string]string{"leases": s.Leases, "counts": s.Counts} {
		err := t.hash(ctx, name, func(field, value string) { hash[field] = value })
		if err != nil {
			return nil, err
		}
	}
	var odd error
	err = t.hash(ctx, "stats", func(field, value string) {
		n, err := strconv.ParseInt(value, 10, 64)
		odd = errors.Join(odd, err)
		s.Stats[field] = n
	})
	if err := errors.Join(err, odd); err != nil {
		return nil, err
	}
	s.Fence, err = t.rdb.Get(ctx, t.p.Key("fence")).Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("fence: %w", err)
	}
	return s, nil
}

func (t *taking) place(ctx context.Context, name string) (map[string]int64, error) {
	out := map[string]int64{}
	var cursor uint64
	for {
		pairs, next, err := t.rdb.ZScan(ctx, t.p.Key(name), cursor, "", page).Result()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for i := 0; i+1 < len(pairs); i += 2 {
			score, err := strconv.ParseFloat(pairs[i+1], 64)
			if err != nil {
				return nil, fmt.Errorf("%s of %q: %w", name, pairs[i], err)
			}
			out[pairs[i]] = int64(score)
		}
		if cursor = next; cursor == 0 {
			return out, nil
		}
	}
}

func (t *taking) hash(ctx context.Context, name string, each func(field, value string)) error {
	var cursor uint64
	for {
		pairs, next, err := t.rdb.HScan(ctx, t.p.Key(name), cursor, "", page).Result()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for i := 0; i+1 < len(pairs); i += 2 {
			each(pairs[i], pairs[i+1])
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// fields reads the names of a hash whose values are not wanted. HKEYS is one answer of at most 256 bytes a name.
func (t *taking) fields(ctx context.Context, name string) ([]string, error) {
	out, err := t.rdb.HKeys(ctx, t.p.Key(name)).Result()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return out, nil
}
