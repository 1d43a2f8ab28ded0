package idempotency_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/idempotency"
	"github.com/leaseq/leaseq/internal/redistest"
)

// jobs stands for a queue whose jobs are leased: the guard looks at nothing but the tokens.
type jobs struct {
	rdb    *redis.Client
	prefix string
	guard  *idempotency.Guard
}

func newJobs(t *testing.T) *jobs {
	t.Helper()
	name := redistest.Queue(t)
	rdb := redistest.Client(t)
	t.Cleanup(func() { // there are no jobs to these leases
		require.NoError(t, rdb.Del(context.Background(), "leaseq:v1:{"+name+"}:leases").Err())
	})
	return &jobs{rdb: rdb, prefix: "leaseq:v1:{" + name + "}:", guard: guardOn(t, rdb, name, nil)}
}

func (j *jobs) lease(t *testing.T, id, token string) {
	t.Helper()
	require.NoError(t, j.rdb.HSet(t.Context(), j.prefix+"leases", id, token).Err())
}

func (j *jobs) begin(t *testing.T, id, token, incarnation, effect string) (*idempotency.Answer, error) {
	t.Helper()
	return j.guard.Begin(t.Context(), effect, &idempotency.BeginOptions{Held: &idempotency.Held{
		ID: id, Token: token, Deadline: time.Now().Add(time.Minute), Once: true, Incarnation: incarnation,
	}})
}

func TestTheEffectsOfAJobAreOneRecordWithOneOwner(t *testing.T) {
	t.Parallel()
	j := newJobs(t)
	j.lease(t, "a", "100:s:1")
	mail, err := j.begin(t, "a", "100:s:1", "7", "mail")
	require.NoError(t, err)
	coupon, err := j.begin(t, "a", "100:s:1", "7", "coupon")
	require.NoError(t, err)
	require.NoError(t, mail.Permit.Commit(t.Context(), []byte("sent")))

	// The lease ran out, and the next holder comes: it does not wait, since its lease is the proof that the old one is over.
	j.lease(t, "a", "200:s:1")
	next, err := j.begin(t, "a", "200:s:1", "7", "coupon")
	require.NoError(t, err)
	assert.True(t, next.InDoubt)
	done, err := j.begin(t, "a", "200:s:1", "7", "mail")
	require.NoError(t, err)
	assert.True(t, done.Done)
	assert.Equal(t, "sent", string(done.Result))
	require.ErrorIs(t, coupon.Permit.Commit(t.Context(), nil), idempotency.ErrNotOwner)
	_, err = j.begin(t, "a", "100:s:1", "7", "third")
	require.ErrorIs(t, err, idempotency.ErrNotOwner, "a holder that lost its lease begins nothing")
	require.NoError(t, next.Permit.Commit(t.Context(), nil))

	keys, err := j.rdb.Keys(t.Context(), j.prefix+"once:*").Result()
	require.NoError(t, err)
	assert.Equal(t, []string{j.prefix + "once:a"}, keys)
}

func TestAnotherJobOfTheSameIDBeginsItsEffectsAnew(t *testing.T) {
	t.Parallel()
	j := newJobs(t)
	j.lease(t, "a", "100:s:1")
	a, err := j.begin(t, "a", "100:s:1", "7", "mail")
	require.NoError(t, err)
	require.NoError(t, a.Permit.Commit(t.Context(), []byte("sent")))
	j.lease(t, "a", "200:s:1")
	again, err := j.begin(t, "a", "200:s:1", "8", "mail")
	require.NoError(t, err)
	assert.False(t, again.Done || again.InDoubt)
}

func TestOfACancelledJobNoEffectBegins(t *testing.T) {
	t.Parallel()
	j := newJobs(t)
	j.lease(t, "a", "!100:s:1")
	_, err := j.begin(t, "a", "100:s:1", "7", "mail")
	require.ErrorIs(t, err, idempotency.ErrCancelled)
}

func TestAJobsEffectsAreBoundedAndNamed(t *testing.T) {
	t.Parallel()
	j := newJobs(t)
	j.lease(t, "a", "100:s:1")
	for i := range 64 {
		_, err := j.begin(t, "a", "100:s:1", "7", fmt.Sprintf("effect-%d", i))
		require.NoError(t, err)
	}
	var many *idempotency.TooManyError
	_, err := j.begin(t, "a", "100:s:1", "7", "one-more")
	require.ErrorAs(t, err, &many)
	assert.Equal(t, idempotency.TooManyError{Key: "a", Limit: 64}, *many)
	_, err = j.begin(t, "a", "100:s:1", "7", "a b")
	require.ErrorContains(t, err, `effect "a b"`)
	_, err = j.begin(t, "a", "100:s:1", "", "mail")
	require.ErrorContains(t, err, "the incarnation is empty")
}

// A key that is shared between jobs: whoever holds it keeps others off until its lease is over, and the record rides on it.
func TestAGuardsKeyRidesOnAJobsLease(t *testing.T) {
	t.Parallel()
	j := newJobs(t)
	j.lease(t, "a", "100:s:1")
	j.lease(t, "b", "101:s:2")
	held := func(id, token string) (*idempotency.Answer, error) {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		return j.guard.Begin(t.Context(), "shared", &idempotency.BeginOptions{Context: ctx, Held: &idempotency.Held{
			ID: id, Token: token, Deadline: time.Now().Add(time.Minute),
		}})
	}
	a, err := held("a", "100:s:1")
	require.NoError(t, err)
	_, err = held("b", "101:s:2")
	require.ErrorAs(t, err, new(*idempotency.InFlightError))

	ride := a.Permit.Ride()
	assert.Equal(t, j.prefix+"guard:shared", ride.Key)
	assert.Equal(t, "until", ride.Expiry)
	assert.Equal(t, 24*time.Hour, ride.TTL)
	owner, err := j.rdb.HGet(t.Context(), ride.Key, "owner").Result()
	require.NoError(t, err)
	assert.Equal(t, ride.Owner, owner)
	commit, err := a.Permit.RideCommit([]byte("a\nresult"))
	require.NoError(t, err)
	require.NoError(t, j.rdb.HSet(t.Context(), commit.Key, commit.Fields).Err()) // what the ack's script does
	a.Permit.Rode()
	require.Error(t, a.Permit.Context().Err())
	b, err := held("b", "101:s:2")
	require.NoError(t, err)
	assert.True(t, b.Done)
	assert.Equal(t, "a\nresult", string(b.Result))
	away := a.Permit.RideAway()
	assert.Equal(t, []string{"until", "0"}, away.Fields)
}
