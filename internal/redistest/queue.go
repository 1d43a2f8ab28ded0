package redistest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/internal/keys"
)

// cleanupBound bounds what is done with a queue when its test ends.
const cleanupBound = time.Minute

// Queue returns the name of a queue that no other test uses. When the test ends, [CheckQueue] judges what it left on
// the shared server, under every prefix, and then its keys go, its line in the registry too.
//
// Cleanups run in the reverse order: take the queue before whatever works on it, and end that in a cleanup, so that it
// has ended when the check comes. A queue that a test breaks on purpose is taken from [BrokenQueue]. A queue on another
// server than the shared one has to be checked by the test.
func Queue(t testing.TB) string {
	t.Helper()
	return newQueue(t, true)
}

// BrokenQueue is [Queue] without the check: for tests that break the keys by hand and do not repair them all.
func BrokenQueue(t testing.TB) string {
	t.Helper()
	return newQueue(t, false)
}

func newQueue(t testing.TB, checked bool) string {
	queue := queueName(t.Name())
	t.Cleanup(func() {
		b := shared.started()
		if b == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), cleanupBound)
		defer cancel()
		rdb := redis.NewClient(b.copied())
		defer rdb.Close()
		all, err := find(ctx, rdb, "", queue)
		if err != nil {
			t.Errorf("redistest: queue %s: %v", queue, err)
			return
		}
		for _, prefix := range prefixes(all) {
			if checked {
				CheckQueue(t, rdb, prefix, queue)
			}
		}
		if err := remove(ctx, rdb, queue, all); err != nil {
			t.Errorf("redistest: removing queue %s: %v", queue, err)
		}
	})
	return queue
}

// queueName makes a valid name out of a test's, with an end that makes it unique.
func queueName(test string) string {
	end := fmt.Sprintf("/%016x", rand.Uint64())
	name := strings.Map(func(r rune) rune {
		if r < 0x80 && keys.ValidateName("", string(r)) == nil {
			return r
		}
		return '-'
	}, test)
	return name[:min(len(name), keys.MaxName-len(end))] + end
}

// prefixes returns the different prefixes of sorted keys.
func prefixes(all []found) []string {
	var out []string
	for _, f := range all {
		if len(out) == 0 || out[len(out)-1] != f.prefix {
			out = append(out, f.prefix)
		}
	}
	return out
}

// remove deletes keys of a queue and its line in the registries.
func remove(ctx context.Context, rdb redis.UniversalClient, queue string, all []found) error {
	_, err := rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, f := range all {
			pipe.Unlink(ctx, f.key)
		}
		for _, prefix := range append(prefixes(all), keys.DefaultPrefix) {
			pipe.SRem(ctx, keys.Registry(prefix), queue)
		}
		return nil
	})
	return err
}
