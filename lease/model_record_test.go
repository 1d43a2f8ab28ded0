package lease

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leaseq/leaseq/internal/model"
)

// guards are the records that no job owns alone.
var guards = []string{"g", "h"}

// recordNames are those of all records that the world may make.
func recordNames() []string {
	all := []string{"guard:g", "guard:h"}
	for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
		all = append(all, "once:"+id)
	}
	return all
}

// recordKey is the whole key of a record.
func (b *bench) recordKey(name string) string {
	if key, ok := strings.CutPrefix(name, "guard:"); ok {
		return b.keys.Guard(key)
	}
	return b.keys.Once(strings.TrimPrefix(name, "once:"))
}

// drawRecord is the name of a record that a call about a job may be given.
func (w *world) drawRecord(id string) string {
	if draw(w, rapid.IntRange(0, 3), "guard") == 0 {
		return "guard:" + draw(w, rapid.SampledFrom(guards), "which")
	}
	return "once:" + id
}

// beginRecord makes a record, mostly one that a lease that was given out owns.
func (w *world) beginRecord() {
	l := w.lease()
	name := w.drawRecord(l.ID)
	fields := map[string]string{"owner": l.Token, "e": "s"}
	w.Begin(name, fields)
	key := w.b.recordKey(name)
	_, err := w.b.rdb.TxPipelined(w.ctx, func(pipe redis.Pipeliner) error {
		pipe.Del(w.ctx, key)
		pipe.HSet(w.ctx, key, fields)
		pipe.PExpire(w.ctx, key, time.Hour)
		return nil
	})
	require.NoError(w.t, err)
}

// drawAttached attaches a record to every second item.
func (w *world) drawAttached(l Lease) (*Attached, *model.Attached) {
	if draw(w, rapid.Bool(), "without a record") {
		return nil, nil
	}
	name := w.drawRecord(l.ID)
	owner := l.Token
	if r := w.Records[name]; r != nil && draw(w, rapid.Bool(), "as its owner") {
		owner = r.Fields["owner"]
	}
	a := &Attached{Key: w.b.recordKey(name), Owner: owner, TTL: draw(w, rapid.SampledFrom([]time.Duration{0, time.Minute}), "ttl")}
	same := &model.Attached{Name: name, Owner: owner, Own: name == "once:"+l.ID, Set: map[string]string{}}
	for _, field := range draw(w, rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"e", "until", "owner"}), 0, 3, rapid.ID), "fields") {
		same.Set[field] = draw(w, rapid.SampledFrom([]string{"x", "0", "d", "1:nobody:1"}), "value")
	}
	for _, field := range slices.Sorted(maps.Keys(same.Set)) {
		a.Fields = append(a.Fields, field, same.Set[field])
	}
	return a, same
}

// drawRecords are the records that are to be deleted with jobs: none, or one for each.
func (w *world) drawRecords(ids []string) (whole, names []string) {
	if draw(w, rapid.Bool(), "without records") {
		return nil, nil
	}
	for _, id := range ids {
		key, name := "", ""
		if draw(w, rapid.Bool(), "with its record") {
			name = w.drawRecord(id)
			key = w.b.recordKey(name)
		}
		whole, names = append(whole, key), append(names, name)
	}
	return whole, names
}

// learn tells the model what expiries an extend has given, to the records too.
func (w *world) learn() {
	w.Learn(func(id string) (int64, bool) {
		at, err := w.b.rdb.ZScore(w.ctx, w.b.key("processing"), id).Result()
		return int64(at), err == nil
	})
}

// kept reads all records.
func (b *bench) allKept(ctx context.Context, t require.TestingT) map[string]map[string]string {
	all := map[string]*redis.MapStringStringCmd{}
	_, err := b.rdb.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, name := range recordNames() {
			all[name] = pipe.HGetAll(ctx, b.recordKey(name))
		}
		return nil
	})
	require.NoError(t, err)
	out := map[string]map[string]string{}
	for name, cmd := range all {
		if len(cmd.Val()) > 0 {
			out[name] = cmd.Val()
		}
	}
	return out
}
