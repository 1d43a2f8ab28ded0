package reliable_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

// manyHeaders are as large as headers may be, with odd values.
func manyHeaders() map[string]string {
	headers := map[string]string{"trace": "00-4bf9", "empty": "", "binary": "\x00\xff\n\x1b[31m", "größe 大": "é"}
	size := 0
	for name, value := range headers {
		size += len(name) + len(value)
	}
	headers["fill"] = strings.Repeat("x", reliable.MaxHeaders-size-len("fill"))
	return headers
}

// storedRecord reads a job's record as it is in Redis.
func storedRecord(t *testing.T, q *reliable.Queue, id string) string {
	t.Helper()
	all := redistest.Dump(t, redistest.Client(t), keys.DefaultPrefix, q.Name())
	for key, text := range all {
		if strings.HasSuffix(key, ":jobs") {
			require.Contains(t, text, fmt.Sprintf("%q", id))
			return text
		}
	}
	require.FailNow(t, "there is no record")
	return ""
}

func TestHeadersAreTheSameAfterRetryExpiryDeathAndRedrive(t *testing.T) {
	t.Parallel()
	q := newQueue(t, &reliable.QueueOptions{
		Lease: time.Second, MaxRetries: intp(1), MaxExpiries: intp(5),
		Backoff: reliable.Backoff{Base: time.Millisecond, Cap: time.Millisecond},
	})
	want := manyHeaders()
	item := job("k")
	item.ID, item.Headers = "close:10086", maps.Clone(want)
	put(t, q, item)
	item.Headers["trace"] = "changed after the enqueue"
	record := storedRecord(t, q, item.ID)
	claim := func(what string) *reliable.Job {
		batch, err := q.Claim(t.Context(), 1, &reliable.ClaimOptions{Wait: 20 * time.Second})
		require.NoError(t, err, what)
		require.Len(t, batch.Jobs, 1, what)
		got := batch.Jobs[0]
		require.Equal(t, want, got.Headers, what)
		require.Equal(t, "payload of k", string(got.Payload), what)
		got.Headers["trace"], got.Headers["new"] = "changed by a holder", "one"
		return got
	}
	lost := claim("first start")
	// Nobody settles it: a sweeper of a consumer that works on nothing puts it back, after the grace of a first sweep.
	sweeping := runConsumer(t, q, reliable.HandlerFunc(func(_ context.Context, j *reliable.Job) error {
		return reliable.ReleaseAfter(50*time.Millisecond, errors.New("not for this test"))
	}), &reliable.ConsumerOptions{Concurrency: 1})
	await(t, q, "expired", func(s reliable.Stats) bool { return s.Counters["expired"] == 1 })
	require.NoError(t, sweeping())
	require.ErrorIs(t, lost.Ack(t.Context()), reliable.ErrLost)

	again := claim("after an expiry")
	require.Equal(t, 1, again.Expiries)
	require.NoError(t, again.Nack(t.Context(), errors.New("failed")))
	last := claim("after a failure")
	require.Equal(t, 1, last.Failures)
	require.NoError(t, last.Nack(t.Context(), errors.New("failed again")))

	infos, err := q.Inspect(t.Context(), item.ID)
	require.NoError(t, err)
	require.Equal(t, reliable.Dead, infos[0].Place)
	require.Equal(t, want, infos[0].Headers)
	listed, err := q.List(t.Context(), reliable.Dead, 10, nil)
	require.NoError(t, err)
	require.Equal(t, want, listed.Jobs[0].Headers)
	require.Equal(t, record, storedRecord(t, q, item.ID), "not a byte of the record has changed")

	refused, err := q.Redrive(t.Context(), item.ID)
	require.NoError(t, err)
	require.NoError(t, refused[0])
	redriven := claim("after a redrive")
	require.Equal(t, 1, redriven.Redrives)
	require.Equal(t, record, storedRecord(t, q, item.ID))
	require.NoError(t, redriven.Ack(t.Context()))
}

func TestAJobWithoutHeadersHasNone(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	empty := job("k")
	empty.Headers = map[string]string{}
	put(t, q, job("k"), empty)
	batch, err := q.Claim(t.Context(), 2, nil)
	require.NoError(t, err)
	for _, j := range batch.Jobs {
		require.Nil(t, j.Headers)
		require.NoError(t, j.Ack(t.Context()))
	}
}

func TestHeadersThatAreTooLargeOrBadlyNamedAreRefusedAndNothingIsStored(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	over := manyHeaders()
	over["fill"] += "x"
	_, err := reliable.Enqueue(t.Context(), q, CloseOrder{ID: "1"}, &reliable.EnqueueOptions{ID: "1", Headers: over})
	var tooLarge *reliable.TooLargeError
	require.ErrorAs(t, err, &tooLarge)
	require.Equal(t, reliable.TooLargeError{What: "headers", Size: reliable.MaxHeaders + 1, Limit: reliable.MaxHeaders}, *tooLarge)
	require.EqualError(t, err, "enqueue 1: headers of 4097 bytes: want at most 4096")

	good, bad, large := job("k"), job("k"), job("bad kind")
	bad.Headers, large.Headers = map[string]string{"a\nb": ""}, over
	results, err := q.EnqueueMany(t.Context(), []reliable.Item{bad, good, large})
	require.NoError(t, err)
	require.ErrorContains(t, results[0].Err, `header name "a\nb" holds the control character U+000A at byte 1`)
	require.NoError(t, results[1].Err, "a neighbour's mistake is none of its own")
	require.ErrorAs(t, results[2].Err, &tooLarge)
	require.ErrorContains(t, results[2].Err, "kind", "all that is wrong is told")
	s, err := q.Stats(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, s.Due)
	require.EqualValues(t, 1, s.Records)
}
