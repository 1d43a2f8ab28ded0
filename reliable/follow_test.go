package reliable_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

// A book is a log that can be read while it is written.
type book struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (b *book) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.Write(p)
}

func (b *book) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.String()
}

// What an operator pins while a consumer runs, it follows; its own options come back when that is unpinned.
func TestARunningConsumerFollowsAPinnedPolicy(t *testing.T) {
	t.Parallel()
	q := newQueue(t, &reliable.QueueOptions{Backoff: reliable.Backoff{Base: time.Hour, Cap: time.Hour}})
	causes, failures := make(chan error, 100), make(chan int, 100)
	stop := runConsumer(t, q, reliable.HandlerFunc(func(ctx context.Context, job *reliable.Job) error {
		if job.Kind == "hangs" {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return nil
		}
		failures <- job.Failures
		return errors.New("failed")
	}), &reliable.ConsumerOptions{JobTimeout: time.Hour})
	put(t, q, job("fails"))
	assert.Equal(t, 0, receive(t, failures))
	_, err := q.SetPolicy(t.Context(), reliable.Policy{JobTimeout: 50 * time.Millisecond, BackoffBase: time.Millisecond, BackoffCap: time.Millisecond, MaxRetries: intp(1)})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		put(t, q, job("fails"))
		receive(t, failures)
		select {
		case n := <-failures:
			return n == 1
		case <-time.After(500 * time.Millisecond):
			return false
		}
	}, 20*time.Second, time.Millisecond, "the back-off has become short")
	put(t, q, job("hangs"))
	require.ErrorIs(t, receive(t, causes), reliable.ErrJobTimeout)
	await(t, q, "a second failure is the end", func(s reliable.Stats) bool { return s.Dead > 0 })
	require.NoError(t, stop())
}

// The pin holds from the first job on.
func TestAConsumerStartsWithWhatIsPinned(t *testing.T) {
	t.Parallel()
	q := newQueue(t, nil)
	_, err := q.SetPolicy(t.Context(), reliable.Policy{JobTimeout: time.Millisecond, Lease: 3 * time.Second})
	require.NoError(t, err)
	causes := make(chan error, 1)
	stop := runConsumer(t, q, reliable.HandlerFunc(func(ctx context.Context, job *reliable.Job) error {
		assert.LessOrEqual(t, time.Until(job.Deadline()), 3*time.Second)
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return nil
	}), nil)
	put(t, q, job("k"))
	require.ErrorIs(t, receive(t, causes), reliable.ErrJobTimeout)
	require.NoError(t, stop())
	state, err := q.Policy(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 3*time.Second, state.Lease, "what the consumer published did not take it away")
	changed, err := q.UnsetPolicy(t.Context(), "lease")
	require.NoError(t, err)
	assert.True(t, changed)
	state, err = q.Policy(t.Context())
	require.NoError(t, err)
	assert.Equal(t, reliable.DefaultLease, state.Lease)
	assert.Equal(t, time.Millisecond, state.JobTimeout)
}

func TestALeaseAboveTheLimitIsRefusedByHand(t *testing.T) {
	t.Parallel()
	q := newQueue(t, &reliable.QueueOptions{MaxLease: time.Minute})
	put(t, q, job("k"))
	_, err := q.Claim(t.Context(), 1, &reliable.ClaimOptions{Lease: time.Minute + 1})
	require.Equal(t, &reliable.LongLeaseError{Asked: time.Minute + 1, Most: time.Minute}, err)
	batch, err := q.Claim(t.Context(), 1, &reliable.ClaimOptions{Lease: time.Minute})
	require.NoError(t, err)
	require.Len(t, batch.Jobs, 1, "what was refused claimed nothing")
	require.Equal(t, &reliable.LongLeaseError{Asked: time.Hour, Most: time.Minute}, batch.Jobs[0].Extend(t.Context(), time.Hour))
	require.NoError(t, batch.Jobs[0].Extend(t.Context(), time.Minute))
	require.NoError(t, batch.Jobs[0].Ack(t.Context()))
}

func TestTwoServicesWithDifferentOptionsAreTold(t *testing.T) {
	t.Parallel()
	name, rdb := redistest.Queue(t), redistest.Client(t)
	handler := reliable.HandlerFunc(func(context.Context, *reliable.Job) error { return nil })
	var log book
	told := slog.New(slog.NewTextHandler(&log, nil))
	stopOne := runConsumer(t, queueOn(t, rdb, name, &reliable.QueueOptions{MaxRetries: intp(3)}), handler, &reliable.ConsumerOptions{Holder: "mail/1", Logger: told})
	q := queueOn(t, rdb, name, nil)
	require.Eventually(t, func() bool {
		state, err := q.Policy(t.Context())
		return err == nil && len(state.Deployments) == 1
	}, 20*time.Second, time.Millisecond)
	stopTwo := runConsumer(t, queueOn(t, rdb, name, &reliable.QueueOptions{MaxRetries: intp(5)}), handler, &reliable.ConsumerOptions{Holder: "billing/1"})
	require.Eventually(t, func() bool { return bytes.Contains([]byte(log.String()), []byte("different policies")) }, 20*time.Second, 10*time.Millisecond)
	assert.Contains(t, log.String(), "max_retries is ")
	assert.Contains(t, log.String(), "3 of mail/1")
	assert.Contains(t, log.String(), "5 of billing/1")
	require.NoError(t, stopOne())
	require.NoError(t, stopTwo())
}

// MaxRetries and MaxExpiries at 0 and 1: of the queue as it is published, of the job itself, and pinned.
func TestRetriesAndExpiriesAtZeroAndOneAreFollowedByAll(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{0, 1} {
		for from, setUp := range map[string]func(t *testing.T) (*reliable.Queue, reliable.Item){
			"published": func(t *testing.T) (*reliable.Queue, reliable.Item) {
				return newQueue(t, &reliable.QueueOptions{MaxRetries: intp(limit), MaxExpiries: intp(limit)}), job("k")
			},
			"of the job": func(t *testing.T) (*reliable.Queue, reliable.Item) {
				return newQueue(t, nil), reliable.Item{Kind: "k", MaxRetries: intp(limit), MaxExpiries: intp(limit)}
			},
			"pinned": func(t *testing.T) (*reliable.Queue, reliable.Item) {
				q := newQueue(t, nil)
				_, err := q.SetPolicy(t.Context(), reliable.Policy{MaxRetries: intp(limit), MaxExpiries: intp(limit)})
				require.NoError(t, err)
				return q, job("k")
			},
		} {
			q, item := setUp(t)
			store, err := lease.NewStore(redistest.Client(t), q.Name(), nil)
			require.NoError(t, err)
			for _, end := range []func(job *reliable.Job){
				func(job *reliable.Job) {
					require.NoError(t, job.Nack(t.Context(), reliable.RetryAfter(0, errors.New("failed"))))
				},
				func(job *reliable.Job) { runOutNow(t, q, store, job) },
			} {
				starts := 0
				id := put(t, q, item)[0]
				for {
					batch, err := q.Claim(t.Context(), 1, nil)
					require.NoError(t, err)
					if len(batch.Jobs) == 0 {
						break
					}
					starts++
					end(batch.Jobs[0])
				}
				assert.Equal(t, limit+1, starts, "%d %s", limit, from)
				info, err := q.Get(t.Context(), id)
				require.NoError(t, err)
				assert.Equal(t, reliable.Dead, info.Place)
			}
			require.NoError(t, store.Close(t.Context()))
		}
	}
}

// runOutNow has a job's lease end as a sweeper ends one that has run out.
func runOutNow(t *testing.T, q *reliable.Queue, store *lease.Store, job *reliable.Job) {
	t.Helper()
	part, err := keys.New(keys.DefaultPrefix, q.Name(), 0)
	require.NoError(t, err)
	require.NoError(t, redistest.Client(t).ZAddXX(t.Context(), part.Key("processing"), redis.Z{Score: 1, Member: job.ID}).Err())
	got, err := store.Expire(t.Context(), 1, true)
	require.NoError(t, err)
	require.Equal(t, 1, got.ToDue+got.ToDead)
}
