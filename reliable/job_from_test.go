package reliable_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/reliable"
)

func TestJobFromFindsTheJobInHandlersMiddlewareAndHooks(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	mux := reliable.NewMux()
	found := make(chan string, 10)
	note := func(where string, ctx context.Context) {
		if job, ok := reliable.JobFrom(ctx); ok {
			found <- where + " " + job.ID + " " + job.Headers["trace"]
			return
		}
		found <- where + " without a job"
	}
	require.NoError(t, mux.HandleFunc("k", func(ctx context.Context, job *reliable.Job) error {
		same, ok := reliable.JobFrom(ctx)
		require.True(t, ok)
		require.Same(t, job, same)
		derived, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		note("handler", derived)
		note("job.Context", job.Context())
		return nil
	}, &reliable.HandleOptions{Timeout: time.Minute}))
	runConsumer(t, q, mux, &reliable.ConsumerOptions{
		Middleware: []reliable.Middleware{around(func(ctx context.Context, _ *reliable.Job, next func() error) error {
			note("middleware", ctx)
			return next()
		})},
		Hooks: &reliable.Hooks{
			OnStart: func(ctx context.Context, _ reliable.Event) { note("OnStart", ctx) },
			OnDone:  func(ctx context.Context, _ reliable.Event) { note("OnDone", ctx) },
		},
	})
	item := job("k")
	item.ID, item.Headers = "7", map[string]string{"trace": "t1"}
	put(t, q, item)
	for _, where := range []string{"OnStart", "middleware", "handler", "job.Context", "OnDone"} {
		require.Equal(t, where+" 7 t1", receive(t, found))
	}
}

func TestJobFromFindsAJobThatWasClaimedByHand(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	put(t, q, jobs("k", 2)...)
	batch, err := q.Claim(t.Context(), 2, nil)
	require.NoError(t, err)
	require.Len(t, batch.Jobs, 2)
	for _, job := range batch.Jobs {
		got, ok := reliable.JobFrom(job.Context())
		require.True(t, ok)
		require.Same(t, job, got)
		require.NoError(t, job.Ack(t.Context()))
		got, ok = reliable.JobFrom(job.Context())
		require.True(t, ok, "the context has ended, and still knows its job")
		require.Same(t, job, got)
	}
	_, ok := reliable.JobFrom(t.Context())
	require.False(t, ok)
}

type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

func TestALogHandlerCanAskForTheJobOfALine(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	var out lockedBuffer
	log := slog.New(jobLog{slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})})
	stop := runConsumer(t, q, reliable.HandlerFunc(func(ctx context.Context, _ *reliable.Job) error {
		log.InfoContext(ctx, "from the handler")
		return nil
	}), &reliable.ConsumerOptions{Logger: log})
	ids := put(t, q, job("k"))
	await(t, q, "acked", func(s reliable.Stats) bool { return s.Counters["acked"] == 1 })
	require.NoError(t, stop())
	seen := map[string]string{}
	decoder := json.NewDecoder(bytes.NewReader([]byte(out.String())))
	for decoder.More() {
		var line struct{ Msg, Job string }
		require.NoError(t, decoder.Decode(&line))
		seen[line.Msg] = line.Job
	}
	for _, text := range []string{"job start", "from the handler", "job done"} {
		require.Equal(t, ids[0], seen[text], text)
	}
}
