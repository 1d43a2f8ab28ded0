package lease

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
)

// FuzzStoredTexts: whatever stands in the texts that scripts read (counts, errors, sessions, policy, sweep, fence), by
// somebody's hand, no call moves a job out of a place without another one to put it into, or loses its record.
func FuzzStoredTexts(f *testing.F) {
	f.Add("1 2 3 - - -", "3 1796001153160 0 0 0", "1000", "0", "1796001153160518", "1796001153160\t1\tme\twhy\n\nstack")
	f.Add("3 x 1 - 7 -", "9223372036854775807 nan ", "nan", "inf", "no number", "\n\n\n")
	f.Add("99999999999999999999999 0 0 nan inf -", "", "1e300", "-1", "-9", "\t\t\t\t")
	f.Add("", "x", "", "abc", "1e400", "")
	f.Add("0 0 0 0 0 0", "1 1 1 1 1 1", "0", "0x10", "0x10", "\x00\xff\xfe")
	rdb, queues := redistest.Mini(f), 0
	f.Fuzz(func(t *testing.T, counts, session, policy, sweep, fence, errors string) {
		queues++
		s, err := NewStore(rdb, "stored/"+strconv.Itoa(queues), nil)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		defer func() {
			_ = s.Close(ctx) // its sessions may be garbage
			require.NoError(t, rdb.Del(ctx, s.keys.All()...).Err())
		}()
		ids := []string{"held", "dead", "due", "due2"}
		for _, id := range ids {
			_, err := s.Enqueue(ctx, []Item{{ID: id, Record: []byte("record of " + id), Delay: 0}})
			require.NoError(t, err)
			if id == "due" || id == "due2" {
				continue
			}
			got, err := s.Claim(ctx, 1, nil)
			require.NoError(t, err)
			require.Len(t, got.Jobs, 1)
			if id == "dead" {
				_, err = s.Settle(ctx, []Verdict{{Op: Bury, ID: id, Token: got.Jobs[0].Token, Reason: "why"}})
				require.NoError(t, err)
			}
		}
		held := rdb.HGet(ctx, s.keys.Key("leases"), "held").Val()
		spoil(ctx, t, s, ids, []string{counts, session, policy, sweep, fence, errors})
		for i, call := range storedCalls(ctx, s, held) {
			_ = call() // may well be refused
			whole(ctx, t, s, ids, fmt.Sprintf("after call %d", i))
		}
	})
}

// spoil writes what the fuzzer made.
func spoil(ctx context.Context, t *testing.T, s *Store, ids, texts []string) {
	t.Helper()
	_, err := s.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, id := range ids {
			pipe.HSet(ctx, s.keys.Key("counts"), id, texts[0])
			pipe.HSet(ctx, s.keys.Key("errors"), id, texts[5])
		}
		pipe.HSet(ctx, s.keys.Key("sessions"), "other", texts[1])
		for _, field := range []string{"lease_ms", "max_retries", "max_expiries", "expiry_backoff_base_ms", "expiry_backoff_cap_ms", "payload_limit", "version"} {
			pipe.HSet(ctx, s.keys.Key("policy"), field, texts[2])
		}
		pipe.HSet(ctx, s.keys.Key("sweep"), "swept", texts[3], "grace", texts[3], "row", texts[3])
		pipe.Set(ctx, s.keys.Key("fence"), texts[4], 0)
		return nil
	})
	require.NoError(t, err)
}

func storedCalls(ctx context.Context, s *Store, held string) []func() error {
	return []func() error{
		func() error { _, err := s.Inspect(ctx, []string{"held", "dead", "due"}); return err },
		func() error { _, err := s.Stats(ctx); return err },
		func() error { _, err := s.Publish(ctx, &Policy{Lease: time.Second}); return err },
		func() error {
			_, err := s.Settle(ctx, []Verdict{{Op: Nack, ID: "held", Token: held, Reason: "why"}})
			return err
		},
		func() error { _, err := s.Claim(ctx, 2, nil); return err },
		func() error { _, err := s.Expire(ctx, 10, false); return err },
		func() error { _, err := s.Expire(ctx, 10, true); return err },
		func() error { _, err := s.Redrive(ctx, []string{"dead"}); return err },
		func() error { _, err := s.Enqueue(ctx, []Item{{ID: "due", Record: []byte("another")}}); return err },
		func() error { _, _, err := s.TrimSessions(ctx, "0"); return err },
		func() error { _, err := s.Claim(ctx, 10, &ClaimOptions{Lease: time.Hour}); return err },
	}
}

// whole finds every job in one place, with its record.
func whole(ctx context.Context, t *testing.T, s *Store, ids []string, when string) {
	t.Helper()
	for _, id := range ids {
		places := 0
		for _, place := range []string{"due", "processing", "dead", "done"} {
			if s.rdb.ZScore(ctx, s.keys.Key(place), id).Err() == nil {
				places++
			}
		}
		require.Equal(t, 1, places, "%s: places of %s", when, id)
		require.Equal(t, "record of "+id, s.rdb.HGet(ctx, s.keys.Key("jobs"), id).Val(), when)
	}
}
