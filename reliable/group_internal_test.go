package reliable

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/leaseq/leaseq/lease"
)

// Two calls that share the work of one cost the server twice: what waits goes beside a call under way where it is much, and
// beside two where it fills a call.
func TestWhatWaitsGoesBesideOtherCallsWhereItIsWorthACall(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		waiting, bytes, others int
		goes                   bool
	}{
		{0, 0, 0, false},
		{1, 100, 0, true},
		{1, 100, 1, false},
		{worthATrip - 1, 1500, 1, false},
		{worthATrip, 1600, 1, true},
		{1, lease.MaxBytes, 1, true},
		{worthATrip, 1600, 2, false},
		{lease.DefaultBatch - 1, 9900, 2, false},
		{lease.DefaultBatch, 10000, 2, true},
		{1, lease.MaxBytes, 3, true},
		{lease.DefaultBatch, 10000, mostTrips, false},
	} {
		g := &group{waiting: make([]*member, c.waiting), bytes: c.bytes}
		assert.Equal(t, c.goes, g.mayGo(c.others), "%+v", c)
	}
}
