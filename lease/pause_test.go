package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHowLongASweeperSleeps(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		got  Expired
		want time.Duration
	}{
		{"more has run out", Expired{More: true, Lease: 4 * time.Second}, 0},
		{"nothing is held", Expired{NextExpiry: -1, Lease: 2 * time.Second}, 500 * time.Millisecond},
		{"until the next expiry", Expired{NextExpiry: 70 * time.Millisecond, Lease: 2 * time.Second}, 70 * time.Millisecond},
		{"until the grace ends", Expired{Grace: 30 * time.Millisecond, More: true, Lease: 2 * time.Second}, 30 * time.Millisecond},
		{"a quarter of a lease in a grace", Expired{Grace: 2 * time.Second, Lease: 2 * time.Second}, 500 * time.Millisecond},
		{"a second where leases are long", Expired{NextExpiry: time.Hour, Lease: 24 * time.Hour}, time.Second},
	} {
		require.Equal(t, c.want, pause(&c.got), c.name)
	}
}
