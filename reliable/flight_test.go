package reliable

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
)

func TestASecondRoundTripIsForHalfOfTheSlots(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ concurrency, prefetch, worth int }{
		{1, 0, 1}, {2, 0, 1}, {3, 0, 2}, {50, 0, 25}, {1, 100, 51}, {1000, 0, lease.DefaultBatch / 2},
	} {
		r := idleRun(t, redistest.Client(t), &ConsumerOptions{Concurrency: test.concurrency, Prefetch: test.prefetch})
		assert.Equal(t, test.concurrency+test.prefetch, r.capacity())
		assert.Equal(t, test.worth, r.worthwhile(), "%+v", test)
		assert.Equal(t, 1, r.enough(), "with nothing under way anything is worth a round trip")
		r.flying = 1
		assert.Equal(t, test.worth, r.enough())
		r.flying = mostFlights
		assert.Equal(t, math.MaxInt, r.enough())
	}
}

func TestTwoRoundTripsShareTheFreeSlots(t *testing.T) {
	t.Parallel()
	r := idleRun(t, redistest.Client(t), &ConsumerOptions{Concurrency: 10})
	r.free, r.claimable = 10, true
	r.launch()
	require.Equal(t, []int{1, 10}, []int{r.flying, r.asked}, "all of them are asked for")
	r.free = 14 // four came back
	r.launch()
	require.Equal(t, []int{1, 10}, []int{r.flying, r.asked}, "four are not worth another one")
	r.free = 15
	r.launch()
	require.Equal(t, []int{2, 15}, []int{r.flying, r.asked})
	r.free = 25
	r.launch()
	require.Equal(t, []int{2, 15}, []int{r.flying, r.asked}, "there are never three")
	numbers := map[int]int{}
	for range 2 {
		f := <-r.landed
		r.land(f)
		require.NoError(t, f.claimErr)
		numbers[f.number] = f.asked
	}
	require.Equal(t, map[int]int{1: 10, 2: 5}, numbers)
	require.Equal(t, []int{0, 0}, []int{r.flying, r.asked})
}

// Answers can come in another order than the claims were sent in.
func TestWhatAnOlderClaimTellsDoesNotHideWhatANewerOneFound(t *testing.T) {
	t.Parallel()
	answer := func(number int, next time.Duration) flight {
		return flight{number: number, asked: 1, claimed: lease.Claimed{NextDue: next, At: time.Now()}}
	}
	r := idleRun(t, redistest.Client(t), &ConsumerOptions{Concurrency: 10})
	r.claimed = 2
	r.schedule(answer(2, -1))
	require.False(t, r.claimable)
	r.schedule(answer(1, 0))
	require.True(t, r.claimable, "that costs a claim in vain at the most")
	r.claimed, r.claimable = 4, false
	r.schedule(answer(4, time.Hour))
	require.False(t, r.claimable)
	r.schedule(answer(3, -1))
	require.True(t, r.claimable, "what it says of the next due time is out of date: another claim tells")
	require.True(t, r.due.Stop(), "the timer of the newer one stays")

	r.claimed = 6
	r.look()
	r.schedule(answer(6, -1))
	require.True(t, r.claimable, "the claim may have run before there was something to find")
	r.claimed = 7
	r.schedule(answer(7, -1))
	require.False(t, r.claimable)
}
