package redistest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Dump returns what every key of a queue holds, idempotency records included, by the key's full name: for assertions
// that a call changes nothing. The text shows type and contents exactly, hashes, sets and sorted sets in the order of
// their members, and neither the server's encodings nor times to live. Each partition is read in one MULTI.
//
// except names keys to leave out, in the short form: "stats", "sessions", "guard:x". It fails the test if the server
// refuses a read.
func Dump(t testing.TB, rdb redis.UniversalClient, prefix, queue string, except ...string) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), cleanupBound)
	defer cancel()
	dump, err := dumpAll(ctx, rdb, prefix, queue, except)
	if err != nil {
		t.Fatalf("redistest: dump of queue %s: %v", queue, err)
	}
	return dump
}

// TryDump is Dump for a server that may refuse a read.
func TryDump(ctx context.Context, rdb redis.UniversalClient, prefix, queue string) (map[string]string, error) {
	return dumpAll(ctx, rdb, prefix, queue, nil)
}

func dumpAll(ctx context.Context, rdb redis.UniversalClient, prefix, queue string, except []string) (map[string]string, error) {
	all, err := find(ctx, rdb, prefix, queue)
	if err != nil {
		return nil, err
	}
	groups := map[int][]string{}
	for _, f := range all {
		if !slices.Contains(except, f.name) {
			groups[f.partition] = append(groups[f.partition], f.key)
		}
	}
	dump := map[string]string{}
	for _, group := range groups {
		if err := dumpKeys(ctx, rdb, group, dump); err != nil {
			return nil, err
		}
	}
	return dump, nil
}

// dumpKeys reads keys of one slot. Between the look at their types and the reads somebody may change them; then the
// types are looked at again.
func dumpKeys(ctx context.Context, rdb redis.UniversalClient, group []string, dump map[string]string) error {
	const tries = 5
	var err error
	for range tries {
		kinds := make([]*redis.StatusCmd, len(group))
		if _, err = rdb.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			for i, key := range group {
				kinds[i] = pipe.Type(ctx, key)
			}
			return nil
		}); err != nil {
			return err
		}
		again := make([]*redis.StatusCmd, len(group))
		texts := make([]func() string, len(group))
		_, err = rdb.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			for i, key := range group {
				again[i] = pipe.Type(ctx, key)
				texts[i] = contents(ctx, pipe, key, kinds[i].Val())
			}
			return nil
		})
		if errors.Is(err, redis.Nil) {
			err = nil // a string that has gone: its type tells
		}
		same := true
		for i := range group {
			same = same && again[i].Val() == kinds[i].Val()
		}
		if !same {
			err = fmt.Errorf("the keys change their types all the time: %v", group)
			continue
		}
		if err != nil {
			return err
		}
		for i, key := range group {
			if kind := kinds[i].Val(); kind != "none" {
				dump[key] = kind + "\n" + texts[i]()
			}
		}
		return nil
	}
	return err
}

// contents queues the read of one key, and returns what gives its text once the pipeline has run.
func contents(ctx context.Context, pipe redis.Pipeliner, key, kind string) func() string {
	switch kind {
	case "hash":
		cmd := pipe.HGetAll(ctx, key)
		return func() string {
			var rows []string
			for _, field := range ids(cmd.Val()) {
				rows = append(rows, strconv.Quote(field)+" = "+strconv.Quote(cmd.Val()[field]))
			}
			return strings.Join(rows, "\n")
		}
	case "zset":
		cmd := pipe.ZRangeWithScores(ctx, key, 0, -1)
		return func() string {
			var rows []string
			for _, z := range cmd.Val() {
				rows = append(rows, strconv.Quote(z.Member.(string))+" at "+strconv.FormatFloat(z.Score, 'f', -1, 64))
			}
			slices.Sort(rows)
			return strings.Join(rows, "\n")
		}
	case "set":
		cmd := pipe.SMembers(ctx, key)
		return func() string { return quoted(slices.Sorted(slices.Values(cmd.Val()))) }
	case "list":
		cmd := pipe.LRange(ctx, key, 0, -1)
		return func() string { return quoted(cmd.Val()) }
	case "string":
		cmd := pipe.Get(ctx, key)
		return func() string { return strconv.Quote(cmd.Val()) }
	}
	// Streams and what modules bring are no keys of a queue: it is enough to see that they change.
	cmd := pipe.Dump(ctx, key)
	return func() string { return strconv.Quote(cmd.Val()) }
}

func quoted(values []string) string {
	rows := make([]string, len(values))
	for i, value := range values {
		rows[i] = strconv.Quote(value)
	}
	return strings.Join(rows, "\n")
}
