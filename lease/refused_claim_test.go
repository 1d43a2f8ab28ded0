package lease_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/lease"
)

type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// lostThenRefused loses the answer of the first claim, after it ran, and refuses the second.
type lostThenRefused struct{ claims int }

func (h *lostThenRefused) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *lostThenRefused) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *lostThenRefused) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	var claim string
	for _, s := range lease.Scripts() {
		if s.Name == "claim" {
			claim = s.SHA()
		}
	}
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) < 2 || args[1] != claim {
			return next(ctx, cmd)
		}
		err := next(ctx, cmd)
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			return err
		}
		h.claims++
		switch h.claims {
		case 1:
			cmd.SetErr(io.EOF)
			return io.EOF
		case 2:
			err := refusal("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk")
			cmd.SetErr(err)
			return err
		}
		return err
	}
}

func TestAClaimThatIsRefusedAfterALostReplyLeavesNothingLeasedToNobody(t *testing.T) {
	t.Parallel()
	name := redistest.Queue(t)
	rdb := redistest.Client(t)
	hook := &lostThenRefused{}
	s, err := lease.NewStore(rdb, name, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close(context.Background())) })
	results, err := s.Enqueue(t.Context(), []lease.Item{{ID: "a", Record: []byte("r")}, {ID: "b", Record: []byte("r")}})
	require.NoError(t, err)
	require.Equal(t, []error{nil, nil}, results)
	_, err = s.Claim(t.Context(), 1, nil) // the script is known from here on
	require.NoError(t, err)

	rdb.AddHook(hook)
	_, err = s.Claim(t.Context(), 1, nil)
	require.ErrorIs(t, err, lease.ErrMisconf)
	require.Eventually(t, func() bool {
		stats, err := s.Stats(context.Background())
		return err == nil && stats.Processing == 1 && stats.Due == 1 && stats.Counters["released"] >= 1
	}, 10*time.Second, 5*time.Millisecond, "what the lost claim leased is given back")
}
