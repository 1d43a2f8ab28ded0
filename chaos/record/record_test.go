package record_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/chaos/record"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

func open(t *testing.T, queue string) (rec *record.Recorder, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "history.jsonl")
	rec, err := record.Open(path, &record.Options{Queue: queue, Process: "p", Slots: 2, Lease: time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { _ = rec.Close() })
	return rec, path
}

// events ends a recording and reads it. Standstills of a busy machine are left out.
func events(t *testing.T, rec *record.Recorder, path string) []record.Event {
	t.Helper()
	require.NoError(t, rec.Close())
	var out []record.Event
	torn, err := record.File(path).Each(func(e *record.Event) error {
		if e.Kind != record.Paused {
			out = append(out, *e)
		}
		return nil
	})
	require.NoError(t, err)
	require.False(t, torn)
	return out
}

func kindsOf(list []record.Event) (out []string) {
	for _, e := range list {
		text := string(e.Kind)
		if e.Out != "" {
			text += " " + e.Out
		}
		out = append(out, text)
	}
	return out
}

func TestTheFirstLineSaysWhoWritesWhat(t *testing.T) {
	t.Parallel()
	rec, path := open(t, "orders")
	list := events(t, rec, path)
	require.Equal(t, []string{"open", "close"}, kindsOf(list))
	first := list[0]
	require.Equal(t, record.Version, first.Version)
	require.Equal(t, "p", first.Process)
	require.Equal(t, "orders", first.Queue)
	require.EqualValues(t, 60_000, first.Lease)
	require.Equal(t, 2, first.Slots)
	require.InDelta(t, time.Now().UnixMicro(), first.Wall, 60e6)
}

func TestOpenRefusesWhatIsNotRight(t *testing.T) {
	t.Parallel()
	_, path := open(t, "orders")
	_, err := record.Open(path, &record.Options{Queue: "orders"})
	require.ErrorIs(t, err, os.ErrExist)
	_, err = record.Open(path, nil)
	require.ErrorContains(t, err, "Queue is empty")
	_, err = record.Open(path, &record.Options{Queue: "orders", Slots: -1, Lease: -1})
	require.ErrorContains(t, err, "Slots is -1")
	require.ErrorContains(t, err, "Lease is -1ns")
}

func TestNothingIsWrittenAfterClose(t *testing.T) {
	t.Parallel()
	rec, path := open(t, "orders")
	require.NoError(t, rec.Close())
	rec.Begin(record.OpCancel, "a").Done(nil)
	require.NoError(t, rec.Close())
	require.Equal(t, []string{"open", "close"}, kindsOf(events(t, rec, path)))
}

func TestLinesOfManyGoroutinesStayWhole(t *testing.T) {
	t.Parallel()
	rec, path := open(t, "orders")
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 50 {
				rec.Begin(record.OpCancel, fmt.Sprintf("%d-%d \"\n\x7f", g, i)).Done(nil)
			}
		})
	}
	all.Wait()
	calls := map[int64]string{}
	for _, e := range events(t, rec, path) {
		if e.Kind == record.Called {
			require.Empty(t, calls[e.Call])
			calls[e.Call] = e.ID
		}
	}
	require.Len(t, calls, 400)
}

func TestWhatAnAnswerMeans(t *testing.T) {
	t.Parallel()
	rec, path := open(t, "orders")
	var want []string
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, "ok"},
		{fmt.Errorf("x: %w", &reliable.DuplicateError{ID: "a", Place: reliable.Dead}), "duplicate"},
		{&reliable.LostError{ID: "a", Place: reliable.Due}, "refused"},
		{reliable.ErrGone, "refused"},
		{reliable.ErrNeverRan, "refused"},
		{fmt.Errorf("x: %w", reliable.ErrOutOfMemory), "refused"},
		{reliable.ErrMisconf, "refused"},
		{reliable.ErrAuth, "refused"},
		{&reliable.TooLargeError{What: "payload"}, "refused"},
		{reliable.ErrNeverKnown, "unknown"},
		{reliable.ErrClosed, "unknown"},
		{context.Canceled, "unknown"},
		{errors.New("anything else"), "unknown"},
	} {
		rec.Begin(record.OpEnqueue, "a").Done(c.err)
		want = append(want, "answer "+c.want)
	}
	var got []string
	for _, kind := range kindsOf(events(t, rec, path)) {
		if strings.HasPrefix(kind, "answer") {
			got = append(got, kind)
		}
	}
	require.Equal(t, want, got)
}

func TestAConsumerIsRecorded(t *testing.T) {
	t.Parallel()
	queue := redistest.Queue(t)
	q, err := reliable.New(redistest.Client(t), queue, &reliable.QueueOptions{Lease: 10 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, q.Close(context.Background())) })
	rec, path := open(t, queue)
	done := make(chan struct{}, 10)
	theirs := &reliable.Hooks{OnDone: func(context.Context, reliable.Event) { done <- struct{}{} }}
	h := reliable.HandlerFunc(func(ctx context.Context, job *reliable.Job) error {
		if job.Attempt == 1 {
			return reliable.RetryAfter(20*time.Millisecond, errors.New("no"))
		}
		return nil
	})
	c, err := reliable.NewConsumer(q, h, &reliable.ConsumerOptions{
		Concurrency: 2, Middleware: []reliable.Middleware{rec.Middleware()}, Hooks: rec.Hooks(theirs),
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	one, _, err := rec.Enqueue(t.Context(), q, reliable.Item{Kind: "x", Delay: 30 * time.Millisecond})
	require.NoError(t, err)
	<-done
	cancel()
	require.NoError(t, <-ended)
	list := events(t, rec, path)
	require.Equal(t, []string{
		"open", "call", "answer ok", "start", "end error", "settle retried", "start", "end nil", "settle acked", "close",
	}, kindsOf(list))
	require.EqualValues(t, 30_000, list[1].Delay)
	first, second := list[3], list[6]
	require.Equal(t, one.ID, first.ID)
	require.Equal(t, 1, first.Attempt)
	require.Equal(t, 2, second.Attempt)
	require.Equal(t, 1, second.Failures)
	require.Greater(t, second.Fence, first.Fence)
	require.GreaterOrEqual(t, first.Fence, first.Due*1000)
	require.Equal(t, first.Enqueued, second.Enqueued)
	require.Greater(t, first.Deadline, first.At)
	require.Equal(t, first.Fence, list[4].Fence)
	require.InDelta(t, 20_000, list[5].Delay, 20_000)
	last := int64(0)
	for _, e := range list {
		require.GreaterOrEqual(t, e.At, last)
		last = e.At
	}
}

func TestAJobSettledByHandIsRecorded(t *testing.T) {
	t.Parallel()
	queue := redistest.Queue(t)
	q, err := reliable.New(redistest.Client(t), queue, &reliable.QueueOptions{Lease: 10 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, q.Close(context.Background())) })
	rec, path := open(t, queue)
	_, _, err = rec.Enqueue(t.Context(), q, reliable.Item{Kind: "x"})
	require.NoError(t, err)
	batch, err := q.Claim(t.Context(), 1, nil)
	require.NoError(t, err)
	require.Len(t, batch.Jobs, 1)
	job := batch.Jobs[0]
	rec.Claimed(job)
	for range 2 {
		rec.Settling(job)
		rec.Settled(job, record.OutAcked, job.Ack(t.Context()))
	}
	require.Equal(t, []string{
		"open", "call", "answer ok", "start", "settle sending", "settle acked", "settle sending", "close",
	}, kindsOf(events(t, rec, path)))
}
