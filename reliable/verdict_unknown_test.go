package reliable_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/keys"
	"github.com/leaseq/leaseq/internal/netfault"
	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

// The reply to an ack is lost, and so is the session that knew of it, as when somebody deletes the key. The verdict is
// sent again, and refused: that does not say that the job was lost, since the first ack has settled it.
func TestAVerdictThatIsRefusedAfterAnUnknownOneIsNotCalledALostLease(t *testing.T) {
	t.Parallel()
	name := redistest.Queue(t)
	rdb, proxy := behindProxy(t, time.Second)
	direct := redistest.Client(t)
	partition, err := keys.New(keys.DefaultPrefix, name, 0)
	require.NoError(t, err)
	q := queueOn(t, rdb, name, nil)
	sha, n := shaOf(t, "settle"), 0
	var armed atomic.Bool
	var deleted error
	proxy.Decide(func(cmd []string) netfault.Action {
		if !armed.Load() || len(cmd) < 2 || cmd[1] != sha {
			return netfault.Pass
		}
		switch n++; n {
		case 1:
			return netfault.DropReply
		case 2: // the repeat, under the same number
			deleted = direct.Del(context.Background(), partition.Key("sessions"), partition.Key("holders")).Err()
		}
		return netfault.Pass
	})
	type told struct {
		what string
		err  error
	}
	events := make(chan told, 20)
	hooks := &reliable.Hooks{
		OnDone: func(context.Context, reliable.Event) { events <- told{"done", nil} },
		OnLost: func(_ context.Context, e reliable.Event) { events <- told{"lost", e.Err} },
		OnError: func(_ context.Context, e reliable.Event) {
			if e.ID != "" {
				events <- told{"error", e.Err}
			}
		},
	}
	c, err := reliable.NewConsumer(q, reliable.HandlerFunc(func(_ context.Context, j *reliable.Job) error {
		armed.Store(j.Kind == "a")
		return nil
	}), &reliable.ConsumerOptions{Concurrency: 1, Hooks: hooks})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	put(t, queueOn(t, direct, name, nil), job("first"))
	require.Equal(t, told{"done", nil}, receive(t, events), "Redis has the scripts")
	put(t, queueOn(t, direct, name, nil), job("a"))
	got := receive(t, events)
	stop()
	require.NoError(t, receive(t, ended))
	require.NoError(t, deleted)
	assert.Equal(t, "error", got.what, got.err)
	assert.ErrorIs(t, got.err, reliable.ErrNeverKnown)
	stats, err := queueOn(t, direct, name, nil).Stats(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 2, stats.Counters["acked"], "each was acked, once")
	assert.Empty(t, events)
}
