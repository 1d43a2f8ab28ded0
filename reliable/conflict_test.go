package reliable_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

// states put a job with the ID x, payload "old" and an own limit into each state.
var states = []struct {
	name  string
	found reliable.Place // "" where the ID is free
	reach func(t *testing.T, q *reliable.Queue)
}{
	{"never used", "", func(*testing.T, *reliable.Queue) {}},
	{"due", reliable.Due, func(t *testing.T, q *reliable.Queue) { putOld(t, q) }},
	{"due after a failure", reliable.Due, func(t *testing.T, q *reliable.Queue) {
		require.NoError(t, claimOld(t, q).Nack(t.Context(), reliable.RetryAfter(time.Hour, errors.New("failed"))))
	}},
	{"processing", reliable.Processing, func(t *testing.T, q *reliable.Queue) { claimOld(t, q) }},
	{"dead", reliable.Dead, func(t *testing.T, q *reliable.Queue) {
		require.NoError(t, claimOld(t, q).Bury(t.Context(), errors.New("buried")))
	}},
	{"done", reliable.Done, func(t *testing.T, q *reliable.Queue) { // though nothing says for how long
		require.NoError(t, claimOld(t, q).Ack(t.Context()))
		part, err := keys.New(keys.DefaultPrefix, q.Name(), 0)
		require.NoError(t, err)
		rdb := redistest.Client(t)
		require.NoError(t, rdb.Do(t.Context(), "zadd", part.Key("done"), 1, "x").Err())
		require.NoError(t, rdb.HSet(t.Context(), part.Key("results"), "x", "result").Err())
		t.Cleanup(func() { require.NoError(t, rdb.Del(context.Background(), part.Key("done"), part.Key("results")).Err()) })
	}},
	{"done, with a result", reliable.Done, func(t *testing.T, q *reliable.Queue) {
		_, err := q.SetPolicy(t.Context(), reliable.Policy{DoneAge: time.Hour})
		require.NoError(t, err)
		j := claimOld(t, q)
		require.NoError(t, j.SetResult([]byte("old")))
		require.NoError(t, j.Ack(t.Context()))
	}},
	{"acked", "", func(t *testing.T, q *reliable.Queue) { require.NoError(t, claimOld(t, q).Ack(t.Context())) }},
	{"dead and purged", "", func(t *testing.T, q *reliable.Queue) {
		require.NoError(t, claimOld(t, q).Bury(t.Context(), errors.New("buried")))
		_, err := q.Purge(t.Context(), reliable.Dead, "x")
		require.NoError(t, err)
	}},
	{"cancelled", "", func(t *testing.T, q *reliable.Queue) {
		putOld(t, q)
		_, err := q.Cancel(t.Context(), "x")
		require.NoError(t, err)
	}},
}

func putOld(t *testing.T, q *reliable.Queue) {
	put(t, q, reliable.Item{Kind: "k", ID: "x", Payload: []byte("old"), MaxRetries: intp(9)})
}

func claimOld(t *testing.T, q *reliable.Queue) *reliable.Job {
	putOld(t, q)
	batch, err := q.Claim(t.Context(), 1, nil)
	require.NoError(t, err)
	require.Len(t, batch.Jobs, 1)
	return batch.Jobs[0]
}

// Each row of the table in docs/protocol.md, for each mode, one at a time and in a call with others.
func TestAnIDThatIsTakenIsTreatedAsTheTableSays(t *testing.T) {
	t.Parallel()
	for _, state := range states {
		for mode, name := range map[reliable.Conflict]string{reliable.Reject: "reject", reliable.Keep: "keep", reliable.Replace: "replace"} {
			for _, batch := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/%v", state.name, name, batch), func(t *testing.T) {
					t.Parallel()
					q := newQueue(t, nil)
					state.reach(t, q)
					var before reliable.Info
					if state.found != "" {
						before = infoOf(t, q)
					}
					item := reliable.Item{Kind: "k", ID: "x", Payload: []byte("new"), Delay: time.Minute, MaxExpiries: intp(3), OnConflict: mode}
					got := enqueueX(t, q, item, batch)
					after := infoOf(t, q)
					if state.found == "" || mode == reliable.Replace && state.found != reliable.Processing {
						assert.Equal(t, reliable.Enqueued{ID: "x", Replaced: state.found != ""}, got)
						assert.Equal(t, reliable.Due, after.Place)
						assert.Equal(t, "new", string(after.Payload))
						assert.Greater(t, after.In, 30*time.Second)
						assert.Equal(t, []any{0, 0, 0, (*int)(nil), intp(3), 0}, []any{
							after.Failures, after.Expiries, after.Redrives, after.MaxRetries, after.MaxExpiries, len(after.Errors),
						}, "nothing of the old one is left")
						return
					}
					want := reliable.Enqueued{ID: "x", Found: state.found}
					if mode != reliable.Keep {
						want.Err = &reliable.DuplicateError{ID: "x", Place: state.found}
					}
					assert.Equal(t, want, got)
					before.In, after.In = 0, 0
					assert.Equal(t, before, after, "it is left as it is")
				})
			}
		}
	}
}

func infoOf(t *testing.T, q *reliable.Queue) reliable.Info {
	infos, err := q.Inspect(t.Context(), "x")
	require.NoError(t, err)
	return infos[0]
}

func enqueueX(t *testing.T, q *reliable.Queue, item reliable.Item, batch bool) reliable.Enqueued {
	if !batch {
		got, err := q.Enqueue(t.Context(), item)
		require.Equal(t, err, got.Err)
		return got
	}
	got, err := q.EnqueueMany(t.Context(), []reliable.Item{job("other"), item, job("other")})
	require.NoError(t, err)
	require.NoError(t, errors.Join(got[0].Err, got[2].Err))
	return got[1]
}

// A producer that hears of each change puts the work off: one job, with the last payload and the last due time.
func TestReplaceDebounces(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	var items []reliable.Item
	for i := range 5 {
		items = append(items, reliable.Item{
			Kind: "k", ID: "x", Payload: fmt.Append(nil, i), Delay: time.Duration(5-i) * time.Hour, OnConflict: reliable.Replace, MaxRetries: intp(i),
		})
	}
	got, err := q.EnqueueMany(t.Context(), items)
	require.NoError(t, err)
	assert.Equal(t, []reliable.Enqueued{
		{ID: "x"}, {ID: "x", Replaced: true}, {ID: "x", Replaced: true}, {ID: "x", Replaced: true}, {ID: "x", Replaced: true},
	}, got)
	items[4].Delay, items[4].Payload, items[4].MaxRetries = 0, []byte("last"), nil
	require.True(t, enqueueX(t, q, items[4], false).Replaced)
	s, err := q.Stats(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []int64{1, 1, 1, 5}, []int64{s.Due, s.Records, s.Counters["enqueued"], s.Counters["replaced"]})
	batch, err := q.Claim(t.Context(), 10, nil)
	require.NoError(t, err)
	require.Len(t, batch.Jobs, 1)
	assert.Equal(t, "last", string(batch.Jobs[0].Payload))
	assert.Nil(t, infoOf(t, q).MaxRetries)
	require.NoError(t, batch.Jobs[0].Ack(t.Context()))
}

// What a limit refuses replaces nothing, and what replaces needs no room.
func TestALimitRefusesAReplacementAndLeavesWhatIsThere(t *testing.T) {
	t.Parallel()
	q, part := limited(t, "max_length", 1)
	putOld(t, q)
	rdb := redistest.Client(t)
	require.NoError(t, rdb.HSet(t.Context(), part.Key("policy"), "payload_limit", 3).Err())
	item := reliable.Item{Kind: "k", ID: "x", Payload: []byte("longer"), OnConflict: reliable.Replace}
	assert.Equal(t, &reliable.TooLargeError{What: "payload", Size: 6, Limit: 3}, enqueueX(t, q, item, false).Err)
	assert.Equal(t, "old", string(infoOf(t, q).Payload))
	item.Payload = []byte("new")
	assert.Equal(t, reliable.Enqueued{ID: "x", Replaced: true}, enqueueX(t, q, item, false))
	assert.ErrorIs(t, func() error { _, err := q.Enqueue(t.Context(), reliable.Item{Kind: "k"}); return err }(), reliable.ErrQueueFull)
}

// Of two at once one creates; the payload is the winner's in full, and the due time of what is there stays.
func TestOfManyAtOnceOneCreates(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	other := queueOn(t, redistest.Client(t), q.Name(), nil)
	for i := range 200 {
		id, results := fmt.Sprint(i), make([]reliable.Enqueued, 2)
		var both sync.WaitGroup
		for n, queue := range []*reliable.Queue{q, other} {
			both.Go(func() {
				results[n], _ = queue.Enqueue(t.Context(), reliable.Item{
					Kind: "k", ID: id, Payload: fmt.Append(nil, n), Delay: time.Duration(n+1) * time.Hour, OnConflict: reliable.Conflict(i % 2),
				})
			})
		}
		both.Wait()
		winner := 0
		if results[0].Found != "" {
			winner = 1
		}
		assert.Equal(t, []reliable.Place{"", reliable.Due}, []reliable.Place{results[winner].Found, results[1-winner].Found})
		info, err := q.Get(t.Context(), id)
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprint(winner), string(info.Payload))
		assert.InDelta(t, float64(winner+1), info.In.Hours(), 0.1)
	}
}

// A keep whose reply is lost says, once it is known, that all is well.
func TestAKeepOfUnknownOutcomeResolvesToNoError(t *testing.T) {
	t.Parallel()
	rdb, proxy := behindProxy(t, 5*time.Second)
	q := queueOn(t, rdb, redistest.Queue(t), nil)
	direct := queueOn(t, redistest.Client(t), q.Name(), nil)
	putOld(t, direct)
	put(t, q, job("k")) // registered, and with a session
	proxy.BlackHole(true)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := q.Enqueue(ctx, reliable.Item{Kind: "k", ID: "x", OnConflict: reliable.Keep})
	proxy.BlackHole(false)
	var unknown *reliable.UnknownError
	require.ErrorAs(t, err, &unknown)
	if truth := unknown.Resolve(t.Context()); !errors.Is(truth, reliable.ErrNeverRan) {
		require.NoError(t, truth)
	}
	assert.Equal(t, "old", string(infoOf(t, direct).Payload))
}

// What the job before had done once is done anew: it is another job under the same ID.
func TestAReplacedJobsEffectsAreNotTheNewOnes(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	mails := 0
	run := func(payload string) {
		batch, err := q.Claim(t.Context(), 1, nil)
		require.NoError(t, err)
		require.Len(t, batch.Jobs, 1)
		require.Equal(t, payload, string(batch.Jobs[0].Payload))
		require.NoError(t, batch.Jobs[0].Once(t.Context(), "mail", func(context.Context) error { mails++; return nil }))
		require.NoError(t, batch.Jobs[0].Nack(t.Context(), reliable.RetryAfter(0, errors.New("after the mail"))))
	}
	putOld(t, q)
	run("old")
	run("old")
	require.Equal(t, 1, mails)
	require.True(t, enqueueX(t, q, reliable.Item{Kind: "k", ID: "x", Payload: []byte("new"), OnConflict: reliable.Replace}, false).Replaced)
	run("new")
	run("new")
	require.Equal(t, 2, mails)
}
