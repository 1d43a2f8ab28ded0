package reliable_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/internal/wire"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

// kill has a job die by hand of a holder.
func kill(t *testing.T, q *reliable.Queue, item reliable.Item, reason error) {
	t.Helper()
	item.At = time.UnixMilli(1)
	put(t, q, item)
	batch, err := q.Claim(t.Context(), 1, nil)
	require.NoError(t, err)
	require.Len(t, batch.Jobs, 1)
	require.Equal(t, item.ID, batch.Jobs[0].ID)
	require.NoError(t, batch.Jobs[0].Bury(t.Context(), reason))
}

func get(t *testing.T, q *reliable.Queue, id string) reliable.Info {
	t.Helper()
	info, err := q.Get(t.Context(), id)
	require.NoError(t, err)
	return info
}

func TestGetTellsEverythingOfOneJob(t *testing.T) {
	t.Parallel()
	q := newQueue(t, &reliable.QueueOptions{Lease: time.Minute})
	item := reliable.Item{ID: "a", Kind: "k", Payload: []byte("p"), Headers: map[string]string{"h": "v"}, MaxRetries: intp(3)}
	put(t, q, item)
	batch, err := q.Claim(t.Context(), 1, nil)
	require.NoError(t, err)
	require.NoError(t, batch.Jobs[0].Nack(t.Context(), reliable.RetryAfter(0, errors.New("first"))))
	batch, err = q.Claim(t.Context(), 1, nil)
	require.NoError(t, err)

	info := get(t, q, "a")
	assert.Equal(t, []any{reliable.Processing, "k", "p", item.Headers, 1, 0, 0, 2, 3}, []any{
		info.Place, info.Kind, string(info.Payload), info.Headers, info.Failures, info.Expiries, info.Redrives, info.Attempt, *info.MaxRetries,
	})
	assert.InDelta(t, time.Minute, info.In, float64(20*time.Second), "what is left of the lease")
	assert.Equal(t, lease.DefaultHolder(), info.Holder)
	assert.WithinDuration(t, time.Now(), info.EnqueuedAt, time.Minute)
	last, ok := info.LastError()
	assert.True(t, ok)
	assert.Equal(t, []any{"first", 1, lease.DefaultHolder()}, []any{last.Reason, last.Attempt, last.Holder})
	assert.Empty(t, info.Class, "it is not dead")
	require.NoError(t, batch.Jobs[0].Ack(t.Context()))
	_, err = q.Get(t.Context(), "a")
	assert.ErrorIs(t, err, reliable.ErrGone)
}

func TestJobsInDueAreRescheduledPromotedAndBuriedByID(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	put(t, q, reliable.Item{ID: "a", Kind: "k", Delay: time.Hour}, reliable.Item{ID: "b", Kind: "k", Delay: time.Hour})
	results, err := q.Reschedule(t.Context(), 3*time.Hour, "a", "nobody")
	require.NoError(t, err)
	assert.Equal(t, []error{nil, reliable.ErrGone}, results)
	assert.InDelta(t, 3*time.Hour, get(t, q, "a").In, float64(time.Minute))
	for _, d := range []time.Duration{-1, 101 * 365 * 24 * time.Hour} {
		_, err = q.Reschedule(t.Context(), d, "a")
		assert.ErrorContains(t, err, "want 0 to 100 years")
	}
	results, err = q.Promote(t.Context(), "a")
	require.NoError(t, errors.Join(append(results, err)...))
	batch, err := q.Claim(t.Context(), 2, nil)
	require.NoError(t, err)
	require.Len(t, batch.Jobs, 1)
	results, err = q.Bury(t.Context(), "asked for\nby\tmail", "b", "a")
	require.NoError(t, err)
	assert.Equal(t, []error{nil, &reliable.LostError{ID: "a", Place: reliable.Processing}}, results)
	info := get(t, q, "b")
	last, _ := info.LastError()
	assert.Equal(t, []any{reliable.Dead, reliable.BuriedByHand, "asked for by mail", 0}, []any{info.Place, info.Class, last.Reason, info.Failures})
	require.NoError(t, batch.Jobs[0].Ack(t.Context()))
}

func TestAnEditKeepsAllButWhatItIsFor(t *testing.T) {
	t.Parallel()
	q := newQueue(t, &reliable.QueueOptions{PayloadLimit: 100})
	item := reliable.Item{ID: "a", Kind: "k", Payload: []byte("old"), Headers: map[string]string{"h": "v"}, MaxRetries: intp(3)}
	kill(t, q, item, errors.New("why"))
	before := get(t, q, "a")
	require.NoError(t, q.Edit(t.Context(), "a", reliable.Edit{Payload: []byte("new")}))
	after := get(t, q, "a")
	after.Payload, after.PayloadSize, after.In = before.Payload, before.PayloadSize, before.In
	assert.Equal(t, before, after)
	require.NoError(t, q.Edit(t.Context(), "a", reliable.Edit{Headers: map[string]string{"x": "y"}}))
	assert.Equal(t, []any{"new", map[string]string{"x": "y"}}, []any{string(get(t, q, "a").Payload), get(t, q, "a").Headers})
	require.NoError(t, q.Edit(t.Context(), "a", reliable.Edit{Payload: []byte{}, Headers: map[string]string{}}))
	assert.Empty(t, get(t, q, "a").Payload)
	assert.Empty(t, get(t, q, "a").Headers)

	require.NoError(t, q.EditAndRedrive(t.Context(), "a", reliable.Edit{Payload: []byte("last")}))
	info := get(t, q, "a")
	assert.Equal(t, []any{reliable.Due, "last", 0, 1, 3, 1}, []any{
		info.Place, string(info.Payload), info.Failures, info.Redrives, *info.MaxRetries, len(info.Errors),
	})
	assert.Equal(t, before.EnqueuedAt, info.EnqueuedAt)
	assert.Equal(t, &reliable.LostError{ID: "a", Place: reliable.Due}, q.EditAndRedrive(t.Context(), "a", reliable.Edit{}))
	assert.Equal(t, reliable.ErrGone, q.Edit(t.Context(), "nobody", reliable.Edit{}))
	assert.ErrorAs(t, q.Edit(t.Context(), "a", reliable.Edit{Payload: make([]byte, 101)}), new(*reliable.TooLargeError))
	assert.Error(t, q.Edit(t.Context(), "a", reliable.Edit{Headers: map[string]string{"": "x"}}))
	batch, err := q.Claim(t.Context(), 1, nil)
	require.NoError(t, err)
	assert.Equal(t, &reliable.LostError{ID: "a", Place: reliable.Processing}, q.Edit(t.Context(), "a", reliable.Edit{}))
	require.NoError(t, batch.Jobs[0].Ack(t.Context()))
}

// storeOf is the layer below, for what a holder of another version or another client does.
func storeOf(t *testing.T, q *reliable.Queue) *lease.Store {
	t.Helper()
	store, err := lease.NewStore(redistest.Client(t), q.Name(), &lease.StoreOptions{Stub: wire.Stub()})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, store.Close(context.Background())) })
	return store
}

type onlyNumbers struct {
	N int `json:"n"`
}

func (onlyNumbers) Kind() string { return "numbers" }

func TestEveryDeadJobHasAClass(t *testing.T) {
	t.Parallel()
	q := newQueue(t, &reliable.QueueOptions{Lease: 300 * time.Millisecond, MaxRetries: intp(0), MaxExpiries: intp(0)})
	store, rdb := storeOf(t, q), redistest.Client(t)
	partition, err := keys.New(keys.DefaultPrefix, q.Name(), 0)
	require.NoError(t, err)
	mux := reliable.NewMux()
	require.NoError(t, reliable.Handle(mux, func(context.Context, *reliable.Job, onlyNumbers) error { return nil }, nil))
	for kind, result := range map[string]error{"discard": reliable.Discard(errors.New("no use")), "fail": errors.New("failed")} {
		require.NoError(t, mux.HandleFunc(kind, func(context.Context, *reliable.Job) error { return result }, nil))
	}
	put(t, q, reliable.Item{ID: "gone", Kind: "k"}, reliable.Item{ID: "odd", Kind: "k"}, reliable.Item{ID: "hand", Kind: "k", Delay: time.Hour})
	require.NoError(t, rdb.HDel(t.Context(), partition.Key("jobs"), "gone").Err())
	require.NoError(t, rdb.HSet(t.Context(), partition.Key("jobs"), "odd", "{}").Err())
	_, err = q.Bury(t.Context(), "by mail", "hand")
	require.NoError(t, err)
	stop := runConsumer(t, q, mux, nil)
	put(t, q, reliable.Item{ID: "bad", Kind: "numbers", Payload: []byte("[]")}, reliable.Item{ID: "discard", Kind: "discard"}, reliable.Item{ID: "fail", Kind: "fail"})
	await(t, q, "dead", func(s reliable.Stats) bool { return s.Dead == 6 })
	require.NoError(t, stop())

	put(t, q, reliable.Item{ID: "expired", Kind: "k"})
	_, err = store.Claim(t.Context(), 1, nil)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		got, err := store.Expire(t.Context(), 10, true)
		return err == nil && got.ToDead == 1
	}, 20*time.Second, 20*time.Millisecond)
	for _, one := range []struct {
		id      string
		verdict lease.Verdict
	}{
		{"no handler", lease.Verdict{Op: lease.Nack, Reason: "no handler", Class: reliable.NoHandler}},
		{"earlier nack", lease.Verdict{Op: lease.Nack, Reason: "lease expired twice"}},
		{"earlier bury", lease.Verdict{Op: lease.Bury, Reason: "no record"}},
	} {
		put(t, q, reliable.Item{ID: one.id, Kind: "k", MaxRetries: map[string]*int{"earlier bury": intp(9)}[one.id]})
		got, err := store.Claim(t.Context(), 1, nil)
		require.NoError(t, err)
		one.verdict.ID, one.verdict.Token = one.id, got.Jobs[0].Token
		_, err = store.Settle(t.Context(), []lease.Verdict{one.verdict})
		require.NoError(t, err)
	}
	classes := map[string]reliable.DeadClass{}
	page, err := q.List(t.Context(), reliable.Dead, 100, nil)
	require.NoError(t, err)
	for _, info := range page.Jobs {
		classes[info.ID] = info.Class
	}
	assert.Equal(t, map[string]reliable.DeadClass{
		"gone": reliable.NoRecord, "odd": reliable.Undecodable, "hand": reliable.BuriedByHand, "bad": reliable.BadPayload,
		"discard": reliable.Discarded, "fail": reliable.RetriesUsedUp, "expired": reliable.LeasesExpired, "no handler": reliable.NoHandler,
		"earlier nack": reliable.RetriesUsedUp, "earlier bury": reliable.Discarded,
	}, classes)
}

func TestAListingPagesAndFilters(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	large := strings.Repeat("x", 300_000)
	for i := range 20 {
		kill(t, q, reliable.Item{ID: fmt.Sprintf("j%02d", i), Kind: fmt.Sprint("k", i%2), Payload: []byte(large)}, fmt.Errorf("reason %d", i%4))
	}
	var all []string
	var o reliable.ListOptions
	var first reliable.Page
	for more := true; more; {
		page, err := q.List(t.Context(), reliable.Dead, 6, &o)
		require.NoError(t, err)
		for _, info := range page.Jobs {
			all = append(all, info.ID)
			assert.Nil(t, info.Payload)
			assert.Equal(t, len(large), info.PayloadSize)
		}
		if o.After.IsZero() {
			first = page
		}
		o.After, more = page.Next, page.More
	}
	assert.Len(t, all, 20)
	for want, o := range map[int]reliable.ListOptions{
		10: {Kind: "k1"}, 5: {Reason: "reason 3"}, 0: {Class: reliable.NoHandler}, 20: {Class: reliable.Discarded},
		14: {After: first.Next, Class: reliable.Discarded},
	} {
		page, err := q.List(t.Context(), reliable.Dead, 1000, &o)
		require.NoError(t, err)
		assert.Len(t, page.Jobs, want, "%+v", o)
		assert.False(t, page.More)
	}
	page, err := q.List(t.Context(), reliable.Dead, 1000, &reliable.ListOptions{To: first.Now.Add(-time.Hour)})
	require.NoError(t, err)
	assert.Empty(t, page.Jobs)
	next, err := reliable.ParsePosition(first.Next.String())
	require.NoError(t, err)
	assert.Equal(t, first.Next, next)
}

func TestWhatWasInspectedCanBeImportedToTheByte(t *testing.T) {
	t.Parallel()
	from, to := newQueue(t, nil), newQueue(t, nil)
	kill(t, from, reliable.Item{ID: "dead", Kind: "k", Payload: []byte{0, 0xff, '\n'}, Headers: map[string]string{"h": "\xfe"}}, errors.New("why"))
	put(t, from, reliable.Item{ID: "due", Kind: "k", Delay: time.Hour, MaxExpiries: intp(0)})
	infos, err := from.Inspect(t.Context(), "dead", "due", "nowhere")
	require.NoError(t, err)
	results, err := to.Import(t.Context(), infos)
	require.NoError(t, err)
	assert.Equal(t, []error{nil, nil}, results[:2])
	assert.Error(t, results[2])
	hashes := func(q *reliable.Queue) map[string]string {
		dump, short := redistest.Dump(t, redistest.Client(t), keys.DefaultPrefix, q.Name(), "stats", "sessions", "holders", "fence", "policy", "wake", "sweep"), map[string]string{}
		for name, value := range dump {
			short[name[strings.LastIndexByte(name, ':')+1:]] = value
		}
		return short
	}
	assert.Equal(t, hashes(from), hashes(to))
	results, err = to.Import(t.Context(), infos[:2])
	require.NoError(t, err)
	assert.Equal(t, []error{&reliable.DuplicateError{ID: "dead", Place: reliable.Dead}, &reliable.DuplicateError{ID: "due", Place: reliable.Due}}, results)
}
