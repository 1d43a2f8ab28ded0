package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
)

// The user's client writes into its options when it connects for the first time: making the blocking client out of them
// must neither read nor share what it writes. Fails with -race where it does.
func TestWaiterIsMadeWhileTheClientConnects(t *testing.T) {
	t.Parallel()
	for range 20 {
		rdb := redistest.Client(t)
		store, err := NewStore(rdb, redistest.Queue(t), nil)
		require.NoError(t, err)
		connected := make(chan error, 1)
		go func() { connected <- rdb.Ping(t.Context()).Err() }()
		for waiting := true; waiting; {
			w, err := NewWaiter(store, time.Second, nil)
			require.NoError(t, err)
			w.Close()
			select {
			case err := <-connected:
				require.NoError(t, err)
				waiting = false
			default:
			}
		}
	}
}
