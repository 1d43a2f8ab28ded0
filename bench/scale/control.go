package main

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/internal/keys"
)

// What is measured beside the calls, to know what to compare them with.
const (
	opPut    = "HSET + ZADD"
	opRemove = "HDEL + ZREM"
	opCount  = "count" // a script that only counts, for about as long as a call of 256: what it takes is the machine's business alone
	opLoad   = "load"
)

var controls = []string{opPut, opRemove}

// The bare commands that no queue of this kind can do without, as many jobs at a time, on the same keys.
var (
	putScript = redis.NewScript(`local n = 2 * tonumber(ARGV[1])
redis.call('HSET', KEYS[1], unpack(ARGV, 2, 1 + n))
redis.call('ZADD', KEYS[2], unpack(ARGV, 2 + n, 1 + 2 * n))`)
	removeScript = redis.NewScript(`redis.call('ZREM', KEYS[2], unpack(ARGV))
redis.call('HDEL', KEYS[1], unpack(ARGV))`)
	countScript = redis.NewScript(`local sum = 0
for i = 1, 1000000 do sum = sum + i end
return sum`)
)

// A place is the two keys that grow.
type place struct {
	hash, zset string
	value      string // as long as what the hash holds
	from       time.Duration
}

func placeOf(name, hash, value string, from time.Duration) (place, error) {
	partition, err := keys.New(keys.DefaultPrefix, queueName, 0)
	if err != nil {
		return place{}, err
	}
	return place{hash: partition.Key(hash), zset: partition.Key(name), value: value, from: from}, nil
}

// duePlace has the due times of the last hour, and the records.
func (c *crowd) duePlace() (place, error) { return placeOf("due", "jobs", string(c.record), -spread) }

// processingPlace has expiries from an hour from now on, and tokens.
func (c *crowd) processingPlace() (place, error) {
	return placeOf("processing", "leases", strings.Repeat("t", 60), longLease)
}

// control puts n members in by bare commands, takes them out again, and counts.
func (c *crowd) control(ctx context.Context, m *meter, p place, n int) error {
	now := time.Now()
	put, remove := []any{n}, make([]any, n)
	var scores []any
	for i := range remove {
		id := c.newID()
		remove[i] = id
		put = append(put, id, p.value)
		scores = append(scores, strconv.FormatInt(now.Add(p.from+rand.N(spread)).UnixMilli(), 10), id)
	}
	put = append(put, scores...)
	for _, one := range []struct {
		op     string
		script *redis.Script
		args   []any
	}{{opPut, putScript, put}, {opRemove, removeScript, remove}} {
		err := m.call(ctx, one.op, n, func() error {
			return ignoreNil(one.script.EvalSha(ctx, c.rdb, []string{p.hash, p.zset}, one.args...).Err())
		})
		if err != nil {
			return err
		}
	}
	return m.call(ctx, opCount, 1, func() error { return countScript.EvalSha(ctx, c.rdb, nil).Err() })
}

func ignoreNil(err error) error {
	if err == redis.Nil {
		return nil
	}
	return err
}

// loadControls puts the scripts into the server.
func (s *server) loadControls(ctx context.Context) error {
	for _, one := range []*redis.Script{putScript, removeScript, countScript} {
		if err := one.Load(ctx, s.admin).Err(); err != nil {
			return err
		}
	}
	return nil
}
