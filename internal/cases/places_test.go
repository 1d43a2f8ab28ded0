//go:build unix

package cases

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/lease"
	"github.com/leaseq/leaseq/reliable"
)

// The handler takes a little while, and heeds its context.
var _ = crashHandler("a while", func(*crashWorker) reliable.Handler {
	return reliable.HandlerFunc(func(ctx context.Context, job *reliable.Job) error {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(10*time.Millisecond + rand.N(90*time.Millisecond)):
			return nil
		}
	})
})

// occupancy is how many jobs are in processing, and how many are due, at one moment of Redis.
func (s *crashSite) occupancy(t *testing.T) (processing, due int) {
	t.Helper()
	got, err := s.rdb.Eval(t.Context(), `
		local t = redis.call('TIME')
		local now = t[1] .. string.sub('000000' .. t[2], -6, -4)
		return {redis.call('ZCARD', KEYS[1]), redis.call('ZCOUNT', KEYS[2], '-inf', now)}`,
		[]string{s.keys.Key("processing"), s.keys.Key("due")}).Int64Slice()
	require.NoError(t, err)
	return int(got[0]), int(got[1])
}

// Eight processes with 20 slots each work on a queue whose concurrency is five, and are killed in turns. There are never
// six jobs in processing, and, while jobs are due, fewer than five for a moment only: what frees a place wakes a waiter.
func TestAQueuesConcurrencyHoldsOverAllProcessesThoughTheyAreKilled(t *testing.T) {
	t.Parallel()
	const most, workers = 5, 8
	s := newCrashSite(t, crashConfig{
		Handler: "a while", Lease: time.Second, MaxRetries: 20, MaxExpiries: 1000, Concurrency: 20, Fallback: lease.DefaultFallback,
	})
	_, err := s.store.Pin(t.Context(), &lease.Policy{Concurrency: new(most)})
	require.NoError(t, err)
	length := shape(5*time.Second, 60*time.Second)
	running := make([]*process, workers)
	for i := range running {
		running[i] = s.worker(t, nil)
	}
	s.enqueue(numberedItems("j", 200*int(length/time.Second))...) // now: to start a process can take a busy machine seconds
	require.Eventually(t, func() bool { n, _ := s.occupancy(t); return n == most }, 20*time.Second, time.Millisecond)
	end, kill := time.Now().Add(length), time.Now().Add(time.Second)
	below, longest, looks, kills := time.Time{}, time.Duration(0), 0, 0
	for now := time.Now(); now.Before(end); now = time.Now() {
		n, due := s.occupancy(t)
		require.LessOrEqual(t, n, most)
		looks++
		switch {
		case n == most || due == 0:
			below = time.Time{}
		case below.IsZero():
			below = now
		default:
			longest = max(longest, time.Since(below))
		}
		if now.After(kill) {
			i := kills % workers
			running[i].Kill()
			running[i] = s.worker(t, nil)
			kill, kills = time.Now().Add(500*time.Millisecond), kills+1
		}
	}
	_, due := s.occupancy(t)
	require.Positive(t, due, "work was due all the time")
	assert.Less(t, longest, time.Second, "below the limit")
	t.Logf("%d kills, %d looks; fewer than %d for %v at the longest; %d acked", kills, looks, most, longest, s.count(t, "acked"))
	for _, p := range running {
		p.Kill()
	}
}
