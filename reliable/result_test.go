package reliable_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/reliable"
)

// keeping are options of a queue that keeps finished jobs.
func keeping() *reliable.QueueOptions {
	return &reliable.QueueOptions{DoneAge: time.Hour, Backoff: reliable.Backoff{Base: time.Millisecond, Cap: 2 * time.Millisecond}}
}

func claimOne(t *testing.T, q *reliable.Queue) *reliable.Job {
	t.Helper()
	batch, err := q.Claim(t.Context(), 1, nil)
	require.NoError(t, err)
	require.Len(t, batch.Jobs, 1)
	return batch.Jobs[0]
}

func TestAFinishedJobCanBeReadUntilItsTimeIsOver(t *testing.T) {
	t.Parallel()
	q := newQueue(t, keeping())
	put(t, q, reliable.Item{ID: "a", Kind: "k", Payload: []byte("payload")})
	_, err := q.Result(t.Context(), "a")
	assert.Equal(t, &reliable.UnfinishedError{ID: "a", Place: reliable.Due}, err)
	assert.EqualError(t, err, "job a is in due, and not done: it has no result")
	j := claimOne(t, q)
	require.NoError(t, j.SetResult([]byte("first thought")))
	result := []byte("result")
	require.NoError(t, j.SetResult(result))
	result[0] = 'R' // it is a copy that is kept
	require.NoError(t, j.Ack(t.Context()))
	assert.ErrorIs(t, j.SetResult([]byte("late")), reliable.ErrSettled)

	got, err := q.Result(t.Context(), "a")
	require.NoError(t, err)
	assert.Equal(t, "result", string(got))
	info := get(t, q, "a")
	assert.Equal(t, []any{reliable.Done, "result", "", 0, nil}, []any{info.Place, string(info.Result), info.Kind, info.PayloadSize, info.Undecoded})
	_, err = q.Enqueue(t.Context(), reliable.Item{ID: "a", Kind: "k"})
	assert.Equal(t, &reliable.DuplicateError{ID: "a", Place: reliable.Done}, err)
	page, err := q.List(t.Context(), reliable.Done, 10, nil)
	require.NoError(t, err)
	require.Len(t, page.Jobs, 1)
	assert.Equal(t, []any{"a", []byte(nil)}, []any{page.Jobs[0].ID, page.Jobs[0].Result})

	purged, err := q.Purge(t.Context(), reliable.Done, "a")
	require.NoError(t, err)
	assert.Equal(t, []error{nil}, purged)
	_, err = q.Result(t.Context(), "a")
	assert.ErrorIs(t, err, reliable.ErrGone)
	put(t, q, reliable.Item{ID: "a", Kind: "k"})
}

func TestOnlyTheRunThatIsAckedHasAResult(t *testing.T) {
	t.Parallel()
	q := newQueue(t, keeping())
	stop := runConsumer(t, q, reliable.HandlerFunc(func(_ context.Context, j *reliable.Job) error {
		switch {
		case j.Attempt == 1:
			require.NoError(t, j.SetResult([]byte("of a run that fails")))
			return errors.New("once more")
		case j.ID == "with":
			return j.SetResult([]byte("second"))
		}
		return nil
	}), nil)
	put(t, q, reliable.Item{ID: "with", Kind: "k"}, reliable.Item{ID: "without", Kind: "k"})
	await(t, q, "both are done", func(s reliable.Stats) bool { return s.Done == 2 })
	require.NoError(t, stop())
	with, err := q.Result(t.Context(), "with")
	require.NoError(t, err)
	without, err := q.Result(t.Context(), "without")
	require.NoError(t, err)
	assert.Equal(t, []string{"second", ""}, []string{string(with), string(without)})
}

func TestAResultRidesOnTheAckOfAnEffect(t *testing.T) {
	t.Parallel()
	q := newQueue(t, keeping())
	put(t, q, reliable.Item{ID: "a", Kind: "k"})
	j := claimOne(t, q)
	require.NoError(t, j.SetResult([]byte("result")))
	require.NoError(t, j.OnceAndAck(t.Context(), "mail", func(context.Context) error { return nil }))
	got, err := q.Result(t.Context(), "a")
	require.NoError(t, err)
	assert.Equal(t, "result", string(got))
}

func TestALargeResultIsRefusedAndTheJobGoesOn(t *testing.T) {
	t.Parallel()
	q := newQueue(t, keeping())
	put(t, q, reliable.Item{ID: "a", Kind: "k"})
	j := claimOne(t, q)
	whole := bytes.Repeat([]byte{0xff}, reliable.MaxResult)
	require.NoError(t, j.SetResult(whole))
	var large *reliable.TooLargeError
	require.ErrorAs(t, j.SetResult(make([]byte, reliable.MaxResult+1)), &large)
	assert.Equal(t, reliable.TooLargeError{What: "result", Size: reliable.MaxResult + 1, Limit: reliable.MaxResult}, *large)
	require.NoError(t, j.Ack(t.Context()))
	got, err := q.Result(t.Context(), "a")
	require.NoError(t, err)
	assert.Equal(t, whole, got, "that of before")
}

func TestManyLargeResultsGoInBoundedCalls(t *testing.T) {
	t.Parallel()
	const n = 150 // more than one call takes
	q := newQueue(t, keeping())
	items := jobs("k", n)
	put(t, q, items...)
	all := make(chan struct{})
	together := make(chan struct{}, n)
	stop := runConsumer(t, q, reliable.HandlerFunc(func(_ context.Context, j *reliable.Job) error {
		if together <- struct{}{}; len(together) == n {
			close(all)
		}
		<-all
		return j.SetResult(make([]byte, reliable.MaxResult))
	}), &reliable.ConsumerOptions{Concurrency: n})
	await(t, q, "all are done", func(s reliable.Stats) bool { return s.Done == n })
	require.NoError(t, stop())
}

func TestWithoutDoneAgeAResultIsDropped(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	put(t, q, reliable.Item{ID: "a", Kind: "k"})
	j := claimOne(t, q)
	require.NoError(t, j.SetResult([]byte("result")))
	require.NoError(t, j.Ack(t.Context()))
	_, err := q.Result(t.Context(), "a")
	assert.ErrorIs(t, err, reliable.ErrGone)
	put(t, q, reliable.Item{ID: "a", Kind: "k"})
}

func TestRetentionThatIsPinnedHoldsAtOnceForConsumersThatRun(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	stop := runConsumer(t, q, reliable.HandlerFunc(func(_ context.Context, j *reliable.Job) error {
		return j.SetResult([]byte(j.ID))
	}), nil)
	put(t, q, reliable.Item{ID: "before", Kind: "k"})
	await(t, q, "acked", func(s reliable.Stats) bool { return s.Counters["acked"] == 1 })
	_, err := q.SetPolicy(t.Context(), reliable.Policy{DoneAge: time.Hour})
	require.NoError(t, err)
	put(t, q, reliable.Item{ID: "after", Kind: "k"})
	await(t, q, "acked and kept", func(s reliable.Stats) bool { return s.Counters["acked"] == 2 && s.Done == 1 })
	require.NoError(t, stop())
	got, err := q.Result(t.Context(), "after")
	require.NoError(t, err)
	assert.Equal(t, "after", string(got))
}
