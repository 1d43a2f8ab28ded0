package redistest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/internal/keys"
)

// types says what type each fixed key has. A test sees that it names the same keys as package keys.
var types = map[string]string{
	"due": "zset", "processing": "zset", "dead": "zset", "done": "zset",
	"jobs": "hash", "leases": "hash", "counts": "hash", "errors": "hash", "results": "hash",
	"fence": "string", "sessions": "hash", "holders": "hash",
	"sweep": "hash", "wake": "list", "rate": "string", "policy": "hash", "stats": "hash",
}

// A snapshot is what one partition holds at one moment.
type snapshot struct {
	places   map[string]map[string]float64 // due, processing, dead and done: ID to score
	fields   map[string][]string           // jobs, counts, errors, results and holders
	leases   map[string]string
	sessions map[string]string
	sweep    map[string]string
	stats    map[string]string
	fence    string // empty where the key is missing
	wake     int64
	types    map[string]string
	ttls     map[string]time.Duration // -1: none; -2: no such key
	wrong    []string                 // reads that were refused
}

// take reads one partition in one MULTI.
func take(ctx context.Context, rdb redis.UniversalClient, p *keys.Partition) (*snapshot, error) {
	places := map[string]*redis.ZSliceCmd{}
	fields := map[string]*redis.StringSliceCmd{}
	hashes := map[string]*redis.MapStringStringCmd{}
	kinds := map[string]*redis.StatusCmd{}
	ttls := map[string]*redis.DurationCmd{}
	var fence *redis.StringCmd
	var wake *redis.IntCmd
	cmds, err := rdb.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, name := range keys.Names {
			kinds[name] = pipe.Type(ctx, p.Key(name))
			ttls[name] = pipe.PTTL(ctx, p.Key(name))
		}
		for _, name := range []string{"due", "processing", "dead", "done"} {
			places[name] = pipe.ZRangeWithScores(ctx, p.Key(name), 0, -1)
		}
		for _, name := range []string{"jobs", "counts", "errors", "results", "holders"} {
			fields[name] = pipe.HKeys(ctx, p.Key(name))
		}
		for _, name := range []string{"leases", "sessions", "sweep", "stats"} {
			hashes[name] = pipe.HGetAll(ctx, p.Key(name))
		}
		fence = pipe.Get(ctx, p.Key("fence"))
		wake = pipe.LLen(ctx, p.Key("wake"))
		return nil
	})
	s := &snapshot{
		places: map[string]map[string]float64{}, fields: map[string][]string{},
		types: map[string]string{}, ttls: map[string]time.Duration{},
	}
	var refused redis.Error
	for _, cmd := range cmds {
		err := cmd.Err()
		if err == nil || errors.Is(err, redis.Nil) {
			continue
		}
		if !errors.As(err, &refused) || !strings.HasPrefix(err.Error(), "WRONGTYPE") {
			return nil, fmt.Errorf("%s: %w", cmd.Name(), err)
		}
		s.wrong = append(s.wrong, fmt.Sprintf("%v: %v", cmd.Args(), err))
	}
	if err != nil && !errors.Is(err, redis.Nil) && len(s.wrong) == 0 {
		return nil, err
	}
	for name, cmd := range places {
		s.places[name] = map[string]float64{}
		for _, z := range cmd.Val() {
			s.places[name][z.Member.(string)] = z.Score
		}
	}
	for name, cmd := range fields {
		s.fields[name] = cmd.Val()
	}
	for name, cmd := range kinds {
		s.types[name] = cmd.Val()
	}
	for name, cmd := range ttls {
		s.ttls[name] = cmd.Val()
	}
	s.leases, s.sessions = hashes["leases"].Val(), hashes["sessions"].Val()
	s.sweep, s.stats = hashes["sweep"].Val(), hashes["stats"].Val()
	s.fence, s.wake = fence.Val(), wake.Val()
	return s, nil
}

// ids returns the keys of a map in order.
func ids[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
