package reliable_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

// paths are the ways to enqueue: one at a time, and many in one call. Each returns an error per item.
var paths = map[string]func(t *testing.T, q *reliable.Queue, items []reliable.Item) []error{
	"single": func(t *testing.T, q *reliable.Queue, items []reliable.Item) []error {
		out := make([]error, len(items))
		for i := range items {
			made, err := q.Enqueue(t.Context(), items[i])
			require.Equal(t, err, made.Err)
			out[i] = err
		}
		return out
	},
	"batch": func(t *testing.T, q *reliable.Queue, items []reliable.Item) []error {
		results, err := q.EnqueueMany(t.Context(), items)
		require.NoError(t, err)
		out := make([]error, len(items))
		for i := range results {
			out[i] = results[i].Err
		}
		return out
	},
}

// limited is a producer of a queue in whose policy one field stands as it is given.
func limited(t *testing.T, field string, value any) (*reliable.Queue, *keys.Partition) {
	name, rdb := redistest.Queue(t), redistest.Client(t)
	part, err := keys.New(keys.DefaultPrefix, name, 0)
	require.NoError(t, err)
	if field != "" {
		require.NoError(t, rdb.HSet(t.Context(), part.Key("policy"), field, value).Err())
	}
	return queueOn(t, rdb, name, nil), part
}

// Each limit, at 0, 1, 5 and 6, and what is asked for at 0, 1, one less, exactly as much, and one more.
func TestEachLimitRefusesWhatIsBeyondItAndNothingElse(t *testing.T) {
	t.Parallel()
	for field, one := range map[string]struct {
		item func(n int) reliable.Item
		want func(n, limit int) error
	}{
		"payload_limit": {
			func(n int) reliable.Item { return reliable.Item{Kind: "k", Payload: make([]byte, n)} },
			func(n, limit int) error {
				return &reliable.TooLargeError{What: "payload", Size: n, Limit: limit}
			},
		},
		"header_limit": {
			func(n int) reliable.Item {
				if n == 0 {
					return reliable.Item{Kind: "k"}
				}
				return reliable.Item{Kind: "k", Headers: map[string]string{"h": strings.Repeat("v", n-1)}}
			},
			func(n, limit int) error {
				return &reliable.TooLargeError{What: "headers", Size: n, Limit: limit}
			},
		},
		"max_delay_ms": {
			func(n int) reliable.Item {
				return reliable.Item{Kind: "k", Delay: time.Duration(n) * time.Millisecond}
			},
			func(n, limit int) error {
				return &reliable.DelayTooLongError{Asked: time.Duration(n) * time.Millisecond, Limit: time.Duration(limit) * time.Millisecond}
			},
		},
	} {
		for _, limit := range []int{0, 1, 5, 6} {
			for path, enqueue := range paths {
				t.Run(fmt.Sprintf("%s=%d/%s", field, limit, path), func(t *testing.T) {
					t.Parallel()
					q, _ := limited(t, field, limit)
					var items []reliable.Item
					var want []error
					made := 0
					for _, n := range []int{limit + 1, 0, 1, max(limit-1, 0), limit, limit + 1, 0} {
						item := one.item(n)
						item.ID = fmt.Sprintf("%d-%d", len(items), n)
						refused := error(nil)
						if n > limit {
							refused = one.want(n, limit)
							if long, ok := errors.AsType[*reliable.DelayTooLongError](refused); ok {
								long.ID = item.ID
							}
						} else {
							made++
						}
						items, want = append(items, item), append(want, refused)
					}
					assert.Equal(t, want, enqueue(t, q, items))
					s, err := q.Stats(t.Context())
					require.NoError(t, err)
					assert.EqualValues(t, made, s.Due)
					assert.EqualValues(t, made, s.Records)
					assert.EqualValues(t, made, s.Counters["enqueued"])
				})
			}
		}
	}
}

func TestTheLengthCapCountsDueAndProcessing(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{0, 1, 2, 5} {
		for path, enqueue := range paths {
			t.Run(fmt.Sprintf("%d/%s", limit, path), func(t *testing.T) {
				t.Parallel()
				q, _ := limited(t, "max_length", limit)
				full := &reliable.QueueFullError{Limit: limit}
				items, want := jobs("k", limit+2), make([]error, limit+2)
				for i := range want {
					if i >= limit {
						want[i] = full
					}
				}
				assert.Equal(t, want, enqueue(t, q, items), "limit-1, limit, limit+1 jobs")
				require.ErrorIs(t, full, reliable.ErrQueueFull)
				if limit == 0 {
					return
				}
				store, err := lease.NewStore(redistest.Client(t), q.Name(), nil)
				require.NoError(t, err)
				defer store.Close(t.Context())
				batch, err := store.Claim(t.Context(), 1, nil)
				require.NoError(t, err)
				require.Len(t, batch.Jobs, 1)
				assert.Equal(t, []error{full}, enqueue(t, q, jobs("k", 1)), "one is in processing")
				_, err = store.Settle(t.Context(), []lease.Verdict{{Op: lease.Bury, ID: batch.Jobs[0].ID, Token: batch.Jobs[0].Token}})
				require.NoError(t, err)
				assert.Equal(t, []error{nil, full}, enqueue(t, q, jobs("k", 2)), "one is dead, which does not count")
				redriven, err := q.Redrive(t.Context(), batch.Jobs[0].ID)
				require.NoError(t, err)
				assert.Equal(t, []error{nil}, redriven, "a redrive ignores the cap")
				assert.Equal(t, []error{full}, enqueue(t, q, jobs("k", 1)))
			})
		}
	}
}

func TestARescheduleAndAnEditKeepTheLimitsAndOthersOfTheCallAreDone(t *testing.T) {
	t.Parallel()
	q, part := limited(t, "", nil)
	rdb := redistest.Client(t)
	ids := put(t, q, jobs("k", 2)...)
	for _, limit := range []time.Duration{0, time.Millisecond, time.Hour} {
		require.NoError(t, rdb.HSet(t.Context(), part.Key("policy"), "max_delay_ms", limit.Milliseconds()).Err())
		for _, d := range []time.Duration{0, limit, max(limit-time.Millisecond, 0)} {
			got, err := q.Reschedule(t.Context(), d, ids...)
			require.NoError(t, err)
			assert.Equal(t, []error{nil, nil}, got, "%v of %v", d, limit)
		}
		over := limit + time.Millisecond
		got, err := q.Reschedule(t.Context(), over, ids[0], "nobody", ids[1])
		require.NoError(t, err)
		assert.Equal(t, []error{
			&reliable.DelayTooLongError{ID: ids[0], Asked: over, Limit: limit}, reliable.ErrGone, &reliable.DelayTooLongError{ID: ids[1], Asked: over, Limit: limit},
		}, got)
	}
	infos, err := q.Inspect(t.Context(), ids...)
	require.NoError(t, err)
	for _, info := range infos {
		assert.LessOrEqual(t, info.In, time.Hour, "where the last that was allowed put it")
		assert.Greater(t, info.In, time.Hour-time.Minute)
	}
	require.NoError(t, rdb.HSet(t.Context(), part.Key("policy"), "payload_limit", 3, "header_limit", 3).Err())
	require.NoError(t, q.Edit(t.Context(), ids[0], reliable.Edit{Payload: []byte("abc"), Headers: map[string]string{"a": "bc"}}))
	assert.Equal(t, &reliable.TooLargeError{What: "payload", Size: 4, Limit: 3}, q.Edit(t.Context(), ids[0], reliable.Edit{Payload: []byte("abcd")}))
	assert.Equal(t, &reliable.TooLargeError{What: "headers", Size: 4, Limit: 3}, q.Edit(t.Context(), ids[0], reliable.Edit{Headers: map[string]string{"a": "bcd"}}))
}

// A time that is asked for counts as the delay until then.
func TestATimeTooFarAheadIsRefusedAsADelayIs(t *testing.T) {
	t.Parallel()
	for path, enqueue := range paths {
		q, _ := limited(t, "", nil)
		week := reliable.DefaultMaxDelay
		got := enqueue(t, q, []reliable.Item{
			{Kind: "k", ID: "at", At: time.Now().Add(week)},
			{Kind: "k", ID: "exactly", Delay: week},
			{Kind: "k", ID: "more", Delay: week + 1},
			{Kind: "k", ID: "later", At: time.Now().Add(week + time.Hour)},
			{Kind: "k", ID: "past", At: time.Unix(1, 0)},
		})
		assert.Equal(t, []error{nil, nil, &reliable.DelayTooLongError{ID: "more", Asked: week + 1, Limit: week}}, got[:3], path)
		long, ok := errors.AsType[*reliable.DelayTooLongError](got[3])
		require.True(t, ok, "%s: %v", path, got[3])
		assert.InDelta(t, float64(week+time.Hour), float64(long.Asked), float64(time.Minute))
		assert.NoError(t, got[4])
	}
}

// What the newest deployment does not set is the default again, whatever an earlier one had set.
func TestTheNewestDeploymentsOptionsHoldAsAWhole(t *testing.T) {
	t.Parallel()
	name, rdb := redistest.Queue(t), redistest.Client(t)
	publish := func(o *reliable.QueueOptions) {
		_, err := queueOn(t, rdb, name, o).Claim(t.Context(), 1, nil)
		require.NoError(t, err)
	}
	publish(&reliable.QueueOptions{
		MaxLength: intp(0), HeaderLimit: intp(0), MaxDelay: time.Second, PayloadLimit: 12, MaxRetries: intp(0), MaxExpiries: intp(0),
		JobTimeout: time.Second, MaxLease: time.Minute, Concurrency: 7, Rate: 5, RatePer: time.Minute, ExpiryBackoff: reliable.Backoff{Base: time.Second},
	})
	q := queueOn(t, rdb, name, nil)
	_, err := q.Enqueue(t.Context(), job("k"))
	require.ErrorIs(t, err, reliable.ErrQueueFull)
	publish(nil)
	_, err = q.Enqueue(t.Context(), reliable.Item{Kind: "k", Payload: []byte("12"), Headers: map[string]string{"a": "b"}, Delay: time.Hour})
	require.NoError(t, err)
	store, err := lease.NewStore(rdb, name, nil)
	require.NoError(t, err)
	defer store.Close(t.Context())
	got, published, err := store.Published(t.Context())
	require.NoError(t, err)
	require.True(t, published)
	week := reliable.DefaultMaxDelay
	assert.Equal(t, lease.Policy{
		Lease: 15 * time.Second, MaxRetries: intp(20), MaxExpiries: intp(5), BackoffBase: time.Second, BackoffCap: 5 * time.Minute,
		PayloadLimit: reliable.DefaultPayloadLimit, MaxDelay: &week,
	}, got)
}

func TestLimitsThatCannotBeAreRefusedAllAtOnce(t *testing.T) {
	t.Parallel()
	_, err := reliable.New(redistest.Client(t), "limits", &reliable.QueueOptions{
		MaxDelay: -1, MaxLength: intp(-1), HeaderLimit: intp(reliable.MaxHeaders + 1), JobTimeout: 1, MaxLease: time.Second,
		Concurrency: -1, Rate: 1_000_001, RatePer: 1, DoneAge: -1, DoneKeep: intp(-1),
	})
	for _, part := range []string{
		"MaxDelay is -1ns: want 1ms to 876000h0m0s", "MaxLength is -1: want 0 to 1000000000", "HeaderLimit is 4097: want 0 to 4096 bytes",
		"JobTimeout is 1ns: want 1ms to 8760h0m0s", "MaxLease is 1s: want 15s to 24h0m0s",
		"Concurrency is -1: want 1 to 1000000000, or 0 for no limit",
		"Rate is 1000001: want 1 to 1000000, or 0 for no limit", "RatePer is 1ns: want 1ms to 24h0m0s",
		"DoneAge is -1ns: want 1ms to 876000h0m0s, or 0 to keep nothing", "DoneKeep is -1: want 0 to 1000000000",
	} {
		assert.ErrorContains(t, err, part)
	}
	_, err = reliable.New(redistest.Client(t), "limits", &reliable.QueueOptions{DoneKeep: intp(5)})
	assert.ErrorContains(t, err, "DoneKeep is 5 without a DoneAge: want both, or neither")
}
