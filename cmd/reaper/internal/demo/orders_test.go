package demo

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEverySampleJobHasWorkOfItsOwnLength(t *testing.T) {
	t.Parallel()
	all, err := readOrders()
	require.NoError(t, err)
	require.Len(t, all, 120)
	for i := range all {
		o := &all[i]
		pace := o.pace()
		assert.Equal(t, pace, o.pace(), "every run is the same work")
		assert.Positive(t, pace.inside, "there is time between the side effect and its commit")
		assert.Positive(t, pace.after, "there is time between the commit and the ack")
		assert.Contains(t, []string{"close", "pay", "grant", "send"}, o.effect())
		whole := pace.whole()
		if o.Behaviour == behavesSlowly {
			assert.True(t, whole >= time.Second && whole < 2*time.Second, "%s: %v", o.ID, whole)
		} else if o.Behaviour == failsOnce || o.Behaviour == poisonous {
			assert.Equal(t, 40*time.Millisecond, whole, o.ID)
		} else {
			assert.True(t, whole >= 120*time.Millisecond && whole < 280*time.Millisecond, "%s: %v", o.ID, whole)
		}
	}
	assert.EqualValues(t, all[0].DelayMs, all[0].item().Delay.Milliseconds())
	assert.JSONEq(t, string(all[0].Payload), string(all[0].item().Payload))
}

func TestLongJobsAreLeftForTheFreeze(t *testing.T) {
	t.Parallel()
	all, err := readOrders()
	require.NoError(t, err)
	s := &stage{orders: all}
	from, to := s.heldBack()
	long := func(orders []order) (n int) {
		for i := range orders {
			if orders[i].Behaviour == behavesSlowly {
				n++
			}
		}
		return n
	}
	assert.Equal(t, 3, long(all[from:to]))
	assert.Equal(t, 3, long(all[:from])+long(all[to:]), "and for the kill")
}
