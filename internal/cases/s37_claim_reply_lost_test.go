package cases

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

// The reply of every tenth claim is dropped after the claim has run. Nobody sweeps, so that only the next claim of the
// same session can give back what was leased and never seen: if one job were leased to nobody, the case would not end.
func TestS37_ClaimsWhoseRepliesAreLostLeaveNoJobWithNobodyAndCountNothing(t *testing.T) {
	t.Parallel()
	for _, repeater := range repeaters {
		t.Run(repeater.Name, func(t *testing.T) {
			t.Parallel()
			d := newDetour(t)
			repeater.Hook(d.rdb)
			every10thClaimIsLost(t, d)
		})
	}
}

func every10thClaimIsLost(t *testing.T, d *detour) {
	n := shape(300, 1000)
	o := &reliable.QueueOptions{Lease: time.Second, MaxRetries: limitOf(4), MaxExpiries: limitOf(4)}
	l := newLane(t, o)
	starts := newTally(t, l.name)
	l.enqueue(numberedItems("j", n)...)

	claims := 0
	d.Decide(func(cmd []string) netfault.Action {
		if call, ok := scriptIn(cmd); !ok || !call.is("claim") {
			return netfault.Pass
		}
		if claims++; claims%10 == 0 {
			return netfault.DropReply
		}
		return netfault.Pass
	})

	acks := newCountdown(n)
	var strange sync.Map // job ID to why
	var lost atomic.Int64
	handler := reliable.HandlerFunc(func(ctx context.Context, job *reliable.Job) error {
		starts.start(job.ID)
		token, err := l.rdb.HGet(ctx, l.keys.Key("leases"), job.ID).Result()
		if err != nil {
			strange.Store(job.ID, err.Error())
		} else if fence, _, _ := strings.Cut(token, ":"); fence != strconv.FormatInt(job.Fence(), 10) {
			strange.Store(job.ID, "leased under "+token)
		}
		if job.Attempt != 1 {
			strange.Store(job.ID, "attempt "+strconv.Itoa(job.Attempt))
		}
		return nil
	})
	stop := consumeWith(t, newQueueOn(t, d.rdb, l.name, o), handler, &reliable.ConsumerOptions{
		Concurrency: 8, NoSweep: true, WakeFallback: 50 * time.Millisecond,
		Hooks: &reliable.Hooks{
			OnDone: func(context.Context, reliable.Event) { acks.done() },
			OnLost: func(context.Context, reliable.Event) { lost.Add(1) },
		},
	})
	awaitFrom(t, acks.all, "all acks: what nobody holds cannot come back")
	stop()

	strange.Range(func(id, why any) bool {
		return assert.Failf(t, "a job was given under a lease that Redis does not know", "%v: %v", id, why)
	})
	counts := starts.counts(t)
	assert.Len(t, counts, n)
	for id, times := range counts {
		assert.Equal(t, 1, times, "starts of %s", id)
	}
	assert.Zero(t, lost.Load())
	assert.GreaterOrEqual(t, d.Dropped(), int64(n/100), "claims whose reply was dropped")
	stats := l.stats()
	assert.EqualValues(t, n, stats.Counters["acked"])
	assert.Zero(t, stats.Counters["expired"])
	assert.Zero(t, stats.Counters["refused"])
	assert.Positive(t, stats.Counters["released"], "no dropped claim had leased anything: the case shows nothing")
	assert.Equal(t, stats.Counters["acked"]+stats.Counters["released"], stats.Counters["claimed"])
	assert.Zero(t, stats.Processing)
	t.Logf("%d replies dropped, %d leases given back unseen", d.Dropped(), stats.Counters["released"])
}

// One claim by hand: what it leased unseen is back and given anew in the same breath, half as many at first, in order.
func TestS37_TheNextClaimOfTheSessionGivesBackWhatTheLostOneLeased(t *testing.T) {
	t.Parallel()
	l := newLane(t, &reliable.QueueOptions{Lease: time.Minute})
	d := newDetour(t)
	l.enqueue(numberedItems("j", 8)...)
	store := newStore(t, d.rdb, l.name)

	first, err := store.Claim(t.Context(), 1, nil)
	require.NoError(t, err)
	require.Len(t, first.Jobs, 1)

	var leasedByLost atomic.Int64
	claims := 0
	d.Decide(func(cmd []string) netfault.Action {
		call, ok := scriptIn(cmd)
		if !ok || !call.is("claim") {
			return netfault.Pass
		}
		if claims++; claims == 1 {
			return netfault.DropReply
		}
		leasedByLost.Store(l.stats().Processing - 1)
		return netfault.Pass
	})
	second, err := store.Claim(t.Context(), 4, nil)
	require.NoError(t, err)
	assert.EqualValues(t, 4, leasedByLost.Load(), "leased by the claim whose reply was lost, before the next one")
	assert.Equal(t, 2, claims)
	require.Len(t, second.Jobs, 2, "after an unknown outcome half as many are asked for")
	for _, job := range second.Jobs {
		assert.Equal(t, 1, job.Attempt())
	}
	assert.EqualValues(t, 3, l.stats().Processing, "the first claim's job and the second's two")
	assert.EqualValues(t, 4, l.stats().Counters["released"])
	settle(t, store, append(first.Jobs, second.Jobs...)...)
}

// The client repeats the claim by itself, so that it is answered `again`; then the caller leaves. What was leased goes
// back all the same, though no further claim is ever made and nobody sweeps.
func TestS37_WhatTheClientRepeatedIsGivenBackThoughTheCallerLeaves(t *testing.T) {
	t.Parallel()
	l := newLane(t, &reliable.QueueOptions{Lease: time.Minute})
	d := newDetour(t)
	l.enqueue(numberedItems("j", 4)...)
	store := newStore(t, d.rdb, l.name)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	d.rdb.AddHook(&repeats{lost: leave})
	d.dropEachOnce("claim")

	_, err := store.Claim(ctx, 4, nil)
	var unknown *lease.UnknownError
	require.ErrorAs(t, err, &unknown)
	require.ErrorIs(t, unknown.Resolve(t.Context()), lease.ErrNeverRan, "nobody ever saw a job of it")
	d.Decide(nil)
	assert.Zero(t, l.stats().Processing, "leased to nobody")
	assert.EqualValues(t, 4, l.stats().Due)
}

// settle acks jobs that were claimed from a Store.
func settle(t testing.TB, store *lease.Store, jobs ...lease.Lease) {
	t.Helper()
	verdicts := make([]lease.Verdict, len(jobs))
	for i := range jobs {
		verdicts[i] = lease.Verdict{Op: lease.Ack, ID: jobs[i].ID, Token: jobs[i].Token}
	}
	done, err := store.Settle(t.Context(), verdicts)
	require.NoError(t, err)
	for i, one := range done {
		require.NoError(t, one.Err, jobs[i].ID)
	}
}
